-- Storage pressure: marks on the payload store and on the free disk, what they hold back, and its return. The judgement
-- itself is in the schema (suimon.may_spawn, suimon.see_pressure), because every language's doors ask it.

-- name: may_spawn
select suimon.may_spawn(%(fanout)s, %(base)s, %(last)s, %(large)s, %(ahead)s) as may;

-- The whole fan-out waits: 30 seconds at first, five minutes at last, and a fifth of that at random.
-- name: defer
insert into suimon.steps as s (run_id, vertex, status, attempt, claim_no, due_at, output)
values (%(run)s, %(vertex)s, 'deferred', 1, %(claim_no)s, clock_timestamp() + make_interval(secs => 30 * (1 + random() / 5)),
        jsonb_build_object('ahead', %(ahead)s::bigint))
on conflict (run_id, vertex) do update
set status = 'deferred', attempt = s.attempt + 1, claim_no = excluded.claim_no,
    due_at = clock_timestamp() + make_interval(secs => least(30 * 2 ^ least(s.attempt, 10), 300) * (1 + random() / 5)),
    output = case when %(ahead)s::bigint is null then s.output else excluded.output end
returning extract(epoch from s.due_at - clock_timestamp())::float8 as later_s;

-- name: prune_soon
select suimon.prune_soon();

-- name: see
select suimon.see_pressure() as pressure;

-- Above a mark, or too little disk: what doors go by. Nothing is written.
-- name: judged
select j.above, j.scarce from suimon.judge_pressure() j;

-- False: there is nothing to look at.
-- name: watch
select s.watch from suimon.store s;

-- name: state
select s.high_bytes, s.low_bytes, s.disk_min_bytes, s.disk_ok_bytes,
       case when s.disk_at > clock_timestamp() - interval '3 minutes' then s.disk_free end as disk_free,
       case when s.disk_at > clock_timestamp() - interval '3 minutes' then s.disk_total end as disk_total,
       suimon.store_bytes() as bytes, s.above_since, s.scarce_since, s.version, s.edited_by, s.edited_at,
       (select count(*) from (select from suimon.steps d join suimon.runs r on r.id = d.run_id
                              where d.status = 'deferred' and r.finished_at is null limit 10000) q) as deferred,
       (select coalesce(sum(n.count), 0)::bigint from suimon.refusals n where n.code = 'storage') as refused
from suimon.store s;

-- Room that nobody holds. null: no marks.
-- name: room
select s.high_bytes - suimon.store_bytes() - (
  select coalesce(sum(h.ahead), 0) from suimon.store_holds h join suimon.fanouts f on f.id = h.fanout_id
  where suimon.is_spawning(f))::bigint as room
from suimon.store s;

-- Deferred runs, those that are half stored first, then the oldest; at most 100.
-- name: deferred
select r.id::text, coalesce((d.output ->> 'ahead')::bigint, 0) as ahead, f.id, h.fanout_id is not null as half_stored
from suimon.steps d
join suimon.runs r on r.id = d.run_id
left join suimon.fanouts f on f.parent_id = d.run_id and f.vertex = d.vertex and f.generation = 1
left join suimon.store_holds h on h.fanout_id = f.id
where d.status = 'deferred' and r.status = 'waiting' and r.reason = 'storage' and not r.cancel_requested
order by h.fanout_id nulls last, d.ended_at, d.run_id limit 100;

-- name: goes_first
select suimon.goes_first(%(fanout)s) as first;

-- name: wake
with next as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status = 'waiting' and r.reason = 'storage' and not r.cancel_requested
  order by r.id for no key update skip locked
)
update suimon.runs r set status = 'queued', reason = null, wake_at = null, rank = suimon.head_of(r.pool, r.priority)
from next where r.id = next.id
returning r.pool;

-- While anything is held back a prune comes every half minute.
-- name: prune_again
update suimon.duties d
set next_at = least(d.next_at, clock_timestamp() + make_interval(secs => least(d.every_ms / 1000.0, 30)))
where d.name = 'prune'
  and (exists (select from suimon.store s where s.above_since is not null or s.scarce_since is not null)
       or exists (select from suimon.steps x join suimon.runs r on r.id = x.run_id where x.status = 'deferred' and r.finished_at is null));

-- name: lock
select s.high_bytes, s.low_bytes, s.disk_min_bytes, s.version from suimon.store s for no key update;

-- name: change
update suimon.store s
set high_bytes = %(high_bytes)s, low_bytes = %(low_bytes)s, disk_min_bytes = %(disk_min_bytes)s,
    disk_ok_bytes = 2 * %(disk_min_bytes)s::bigint, version = s.version + 1, edited_by = %(by)s, edited_at = clock_timestamp();

-- The oldest step that waits for room: run, vertex, since, next try, whether its fan-out is half stored, and whether
-- nothing that could end would make room for it.
-- name: oldest
select d.run_id::text, r.pipeline, d.vertex, extract(epoch from clock_timestamp() - d.ended_at)::float8 as waited_s, d.due_at,
       f.id is not null and exists (select from suimon.runs c where c.id = suimon.child_id(f.base, 0)) as half,
       suimon.no_room_comes(coalesce(f.id, 0)) as alone
from suimon.steps d
join suimon.runs r on r.id = d.run_id
left join suimon.fanouts f on f.parent_id = d.run_id and f.vertex = d.vertex and f.generation = 1
where d.status = 'deferred' and r.finished_at is null
order by d.ended_at limit 1;

-- name: step
select d.vertex, d.due_at, d.attempt, d.ended_at as since,
       exists (select from suimon.fanouts f join suimon.runs c on c.id = suimon.child_id(f.base, 0)
               where f.parent_id = d.run_id and f.vertex = d.vertex) as half
from suimon.steps d where d.run_id = %(run)s and d.status = 'deferred' order by d.due_at limit 1;
