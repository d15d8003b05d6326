-- The runs of the dead. A rescuer judges only by what it has seen itself (duties/liveness in worker/beat.py): death is
-- then a durable flag, and rescue goes by state, not by event: running runs whose worker is dead or gone.

-- name: register
insert into suimon.workers (name, pool, slots, host, pid, boot_id, pid_started, package_version, beat_ms, tasks)
values (%(name)s, %(pool)s, %(slots)s, %(host)s, %(pid)s, %(boot_id)s, %(pid_started)s, %(package_version)s, %(beat_ms)s, %(tasks)s)
returning id;

-- name: make_pools
insert into suimon.pools (name, priority, head)
select %(pool)s, g, (extract(epoch from clock_timestamp()) * 1000000)::bigint from generate_series(0, 3) as g
on conflict do nothing;

-- The heartbeat; no row back: dead, kill the slots and leave. It also returns the others' beats, so that a look
-- costs nothing more, whether anybody asked one of this worker's runs to stop, whether runs were held back elsewhere for
-- want of code that this worker has, whether its pool has a cap, and the schema's number, so that a worker notices a
-- migration under way.
-- name: beat
with mine as (
  update suimon.workers set beat = beat + 1, beat_at = clock_timestamp(), draining = %(draining)s,
    starts = %(starts)s, ends = %(ends)s
  where id = %(worker)s and not dead
  returning id
)
select w.id, w.beat, w.beat_ms, w.id in (select id from mine) as mine,
       exists (select from suimon.runs r where r.status = 'running' and r.worker_id = w.id and r.cancel_requested
               and w.id = %(worker)s) as asked_to_cancel,
       exists (select from suimon.runs r where w.id = %(worker)s and r.pool = w.pool and r.status = 'queued' and not r.admitted
               and r.reason = any (array(select 'no_code:' || t from unnest(w.tasks) as t))) as code_waits,
       (select m.schema_version from suimon.meta m) as schema_version,
       exists (select from suimon.pool_caps c where w.id = %(worker)s and c.name = w.pool and c.cap is not null) as capped
from suimon.workers w where not w.dead
order by w.id = %(worker)s desc, w.id desc limit 1000;

-- A look of one that is no worker and only judges: everybody's beats, and the schema's number. Writes nothing.
-- name: beats
select m.schema_version, w.id, w.beat, w.beat_ms from suimon.meta m left join suimon.workers w on not w.dead
order by w.id desc limit 1000;

-- A beat that raced in wins. By now its slots have ended (by its own hand, or its guardian's), and with them their calls:
-- its places at destinations are free.
-- name: bury
with gone as (
  update suimon.workers set dead = true, idle = false, left_at = clock_timestamp()
  where id = %(id)s and beat = %(beat)s and not dead returning id, name
),
freed as (delete from suimon.leases l using gone where l.worker_id = gone.id)
select id, name from gone;

-- name: leave
update suimon.workers set dead = true, idle = false, left_at = clock_timestamp() where id = %(worker)s and not dead;

-- claim_no is the fence: by the time they are locked another rescuer may have freed them and a live worker have them.
-- name: orphans
select r.id::text, r.claim_no, r.lane, r.fanout_id
from suimon.runs r
left join suimon.workers w on w.id = r.worker_id
where r.status = 'running' and (w.id is null or w.dead)
order by r.id limit 500;

-- running → queued, or → failed when it has taken too many workers or slots with it. Two ways in: a dead worker's
-- runs (worker is null here: any dead or missing one) and a live worker's own dead slot (worker is given, and claim_no
-- must fit). The try is kept as an attempt; the place in the lane stays.
-- name: interrupt
with d as materialized (
  select * from unnest(%(ids)s::uuid[], %(claims)s::int[]) as d(id, claim_no)
),
held as materialized (
  select r.id, r.worker_id, w.name as worker_name, r.interruptions + 1 as interruptions
  from suimon.runs r
  left join suimon.workers w on w.id = r.worker_id
  where r.id = any (%(ids)s::uuid[]) and r.status between 'running' and 'running'
    and case when %(worker)s::bigint is null then w.id is null or w.dead else r.worker_id = %(worker)s end
  order by r.id for no key update of r
),
back as (
  update suimon.runs r
  set status = case when h.interruptions > r.max_interruptions then 'failed' else 'queued' end::suimon.run_status,
      interruptions = h.interruptions, worker_id = null, since = clock_timestamp(),
      alone = case when h.interruptions >= r.max_interruptions - 1 then %(alone)s else 0 end,
      rank = greatest(r.rank, suimon.head_of(r.pool, r.priority)),
      finished_at = case when h.interruptions > r.max_interruptions then clock_timestamp() end,
      error = case when h.interruptions > r.max_interruptions then jsonb_build_object(
        'type', 'Poisoned', 'code', 'SUI-5004',
        'message', format('%%s died %%s times while this run was there: it is not tried again', %(what)s::text, h.interruptions),
        'workers', (select coalesce(jsonb_agg(a.worker_name order by a.claim_no), '[]'::jsonb) || to_jsonb(array[h.worker_name])
                    from suimon.attempts a where a.run_id = r.id and a.how = 'interrupted')) end
  from held h join d on d.id = h.id
  where r.id = h.id and r.status between 'running' and 'running' and (d.claim_no is null or r.claim_no = d.claim_no)
  returning r.id, r.claim_no, r.attempt, r.vertex, r.status, r.pool, r.lane, r.holds_lane, r.fanout_id, r.started_at,
            h.worker_id, h.worker_name
),
shut as (
  update suimon.lanes l set held_by = b.id from back b where b.holds_lane and b.status = 'failed' and l.name = b.lane
),
kept as (
  insert into suimon.attempts (run_id, claim_no, attempt, worker_id, worker_name, how, began_at, error)
  select b.id, b.claim_no, b.attempt, b.worker_id, b.worker_name, 'interrupted', b.started_at,
         jsonb_build_object('type', 'Interrupted', 'message', %(what)s::text || ' died')
  from back b where b.status = 'queued'
  on conflict do nothing
),
tally as materialized (
  select fanout_id, count(*) as failed from back where status = 'failed' and fanout_id is not null group by fanout_id
),
locked as materialized (
  select f.id from suimon.fanouts f where f.id in (select fanout_id from tally) order by f.id for no key update
),
counted as (
  update suimon.fanouts f set failed = f.failed + t.failed from tally t join locked l on l.id = t.fanout_id where f.id = t.fanout_id
)
select id::text, status::text, pool, lane, fanout_id from back;
