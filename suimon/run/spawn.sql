-- A fan-out: the list is read in the slot, its chunks become child runs here, one transaction a chunk. Child i has
-- the id base + i, so the primary key is the idempotency key of an item, and the children are one range of it.
-- Order: chunk = fence, chunk, check, wake. With a lane, admission follows in a transaction of its own.
-- The last one = lock, fence, beyond, duplicates, seal, settle, park, wake.

-- Whoever lost the run gets no row, and writes nothing.
-- name: fence
select r.root_id::text, r.cancel_requested from suimon.runs r
where r.id = %(parent)s and r.status = 'running' and r.worker_id = %(worker)s and r.claim_no = %(claim_no)s
for no key update;

-- The same for a chunk; whether room in the store has to be asked for; and the pool that children have now whose spawner
-- names none: their parent's for tasks of its own graph, else their pipeline's.
-- name: fence_and_pool
select r.root_id::text, r.cancel_requested, (select s.watch from suimon.store s) as watch,
       case when not %(follows)s then null
            when %(bare)s then r.pool else (select p.pool from suimon.pipelines p where p.name = %(pipeline)s) end as pool
from suimon.runs r
where r.id = %(parent)s and r.status = 'running' and r.worker_id = %(worker)s and r.claim_no = %(claim_no)s
for no key update of r;

-- Who else waits in the lanes above: a child in an ancestor's lane would wait for itself.
-- name: ancestor_lanes
with recursive up(id, parent_id, lane) as (
  select r.id, r.parent_id, r.lane from suimon.runs r where r.id = %(run)s
  union all
  select p.id, p.parent_id, p.lane from up join suimon.runs p on p.id = up.parent_id
)
select id::text, lane from up where lane is not null limit 100;

-- One that an earlier try made is locked before its parent (lock order); who makes a new one is alone with it.
-- name: lock_earlier
select f.id from suimon.fanouts f where f.parent_id = %(parent)s and f.vertex = %(vertex)s order by f.id for no key update;

-- name: open
insert into suimon.fanouts (parent_id, root_id, vertex, base, tolerate, max_failures, max_failure_ratio, fail_fast,
                            stragglers, shared)
values (%(parent)s, %(root)s, %(vertex)s, %(base)s, %(tolerate)s, %(max_failures)s, %(max_failure_ratio)s, %(fail_fast)s,
        %(stragglers)s, %(shared)s)
on conflict (parent_id, vertex, generation) do update set vertex = excluded.vertex
returning id, base::text, state, expected, lane, cancelling, (select s.watch from suimon.store s) as watch;

-- A spawn with a limit has a lane of its own, and its children take their ranks when they are admitted.
-- name: name_lane
update suimon.fanouts f set lane = 'spawn:' || f.id where f.id = %(fanout)s returning lane;

-- name: make_flow
insert into suimon.flows (root_id) values (%(root)s) on conflict do nothing;

-- At most 1,000 items a chunk. Ranks follow the root's flow (one row a root, once a chunk); a child with a lane is
-- born un-admitted and leaves the flow alone (admissions are writing it). Items above 8 KB go to payloads.
-- name: chunk
with item as materialized (
  select (u.place - 1 + %(first)s)::int as position, u.body, u.hash, u.key, u.sha256,
         suimon.child_id(%(base)s, (u.place - 1 + %(first)s)::int) as id
  from unnest(string_to_array(%(items)s, e'\x1e'), %(hashes)s::bigint[], %(keys)s::text[], %(contents)s::bytea[])
       with ordinality as u(body, hash, key, sha256, place)
),
flow as (
  insert into suimon.flows as f (root_id, last_rank)
  select %(root)s, suimon.head_of(%(pool)s, %(priority)s::smallint) + %(ranks)s where %(ranks)s > 0
  on conflict (root_id) do update set last_rank = greatest(f.last_rank + %(ranks)s, excluded.last_rank)
  returning last_rank - %(ranks)s as start
),
born as (
  insert into suimon.runs (id, root_id, parent_id, rank, lane_rank, fanout_id, item_hash, graph_id, position, lane_limit,
                           priority, max_interruptions, admitted, holds_lane, pipeline, pool, vertex, lane, item_key, input)
  select i.id, %(root)s, %(parent)s, case when %(lane)s::text is null then flow.start + i.position - %(first)s + 1 else 0 end,
         case when %(lane)s::text is null then null when %(own_lane)s then i.position else nextval('suimon.lane_rank') end,
         %(fanout)s, i.hash, %(graph_id)s, i.position, %(lane_limit)s,
         %(priority)s, %(max_interruptions)s, %(lane)s::text is null, %(holds_lane)s, %(pipeline)s, %(pool)s, %(vertex)s,
         %(lane)s || case when %(lane_per)s::text is null then ''
                     else ':' || left(coalesce(i.body::jsonb #>> string_to_array(%(lane_per)s, '.'), ''), 200) end,
         i.key,
         case when octet_length(i.body) <= 8192 then i.body::jsonb end
  from item i left join flow on true
  order by i.id
  on conflict (id) do nothing
  returning id
),
large as (
  insert into suimon.payloads (run_id, name, sha256)
  select i.id, 'input', coalesce(i.sha256, suimon.keep_text(i.body)) from item i where octet_length(i.body) > 8192
  on conflict do nothing
)
select count(*) as created from born;

-- With a lane for each value of a field, those of a chunk.
-- name: lanes_of
select distinct r.lane from suimon.runs r
where r.id >= suimon.child_id(%(base)s, %(first)s) and r.id < suimon.child_id(%(base)s, %(first)s + %(n)s) and r.lane is not null;

-- Each id of the chunk must be this fan-out's, with this very item: the manifest is frozen.
-- name: check
select i.position
from unnest(%(hashes)s::bigint[]) with ordinality as u(hash, place)
cross join lateral (select (u.place - 1 + %(first)s)::int as position) i
left join suimon.runs r on r.id = suimon.child_id(%(base)s, i.position)
where r.fanout_id is distinct from %(fanout)s or r.item_hash is distinct from u.hash
order by i.position limit 1;

-- What the spawner looks at after each chunk, without a lock.
-- name: state
select f.state, f.cancelling from suimon.fanouts f where f.id = %(fanout)s;

-- name: lock
select f.state, f.expected, f.cancelling, suimon.is_complete(f) as complete from suimon.fanouts f
where f.id = %(fanout)s for no key update;

-- A shorter list than before: a child beyond its end would be counted and never expected.
-- name: beyond
select r.position from suimon.runs r
where r.id >= suimon.child_id(%(base)s, %(n)s) and r.id <= suimon.child_id(%(base)s, 2147483647)
order by r.id desc limit 1;

-- name: duplicates
select r.item_key, (array_agg(r.position order by r.position))[1:20] as positions, count(*) as times
from suimon.runs r
where r.id >= suimon.child_id(%(base)s, 0) and r.id < suimon.child_id(%(base)s, %(n)s)
group by r.item_key having count(*) > 1
order by min(r.position) limit 20;

-- name: seal
update suimon.fanouts f
set expected = %(n)s::int,
    allowed = case when f.tolerate = '{}' then 0
                   else least(f.max_failures, floor(f.max_failure_ratio::numeric * %(n)s::int)::int) end
where f.id = %(fanout)s and f.expected is null
returning f.allowed;

-- running → waiting. The fan-outs are locked by a statement before this one; a fan-out that settled meanwhile leaves
-- the run running, and its worker goes on with the merge. wake_at: the end of the stragglers' grace.
-- name: park
update suimon.runs p
set status = 'waiting', reason = 'children', worker_id = null, attempt = 0, interruptions = 0, since = clock_timestamp(),
    wake_at = (select max(f.settled_at) from suimon.fanouts f
               where f.id = any (%(fanouts)s::bigint[]) and f.state = 'settled') + make_interval(secs => %(grace_s)s)
where p.id = %(parent)s and p.status = 'running' and p.worker_id = %(worker)s and p.claim_no = %(claim_no)s
  and not p.cancel_requested
  and exists (select from suimon.fanouts f where f.id = any (%(fanouts)s::bigint[])
              and (f.state = 'open' or (f.stragglers = 'cancel' and not suimon.is_complete(f)
                                        and f.settled_at + make_interval(secs => %(grace_s)s) > clock_timestamp())))
returning p.id::text, p.wake_at;

-- name: of_parents
select f.parent_id::text, f.vertex, f.id, f.base::text, f.expected, f.succeeded, f.failed, f.timed_out, f.cancelled,
       f.state, f.verdict, f.allowed, f.stragglers, f.cancelling, suimon.is_complete(f) as complete,
       coalesce(extract(epoch from clock_timestamp() - f.settled_at), 0)::float8 as settled_for_s
from suimon.fanouts f
where f.parent_id = any (%(ids)s::uuid[]) and f.generation = 1;

-- name: shared
select f.id, f.shared::text, p.sha256 from suimon.fanouts f
left join suimon.payloads p on f.shared is null and p.run_id = f.parent_id and p.name = 'shared:' || f.vertex
where f.id = any (%(ids)s::bigint[]);
