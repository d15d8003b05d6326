-- What an operator asks first: does it move? Queues, workers, duties. Nothing here writes, and each count is bounded.

-- Every pool that has a worker, a pipeline or a queued run; its queue counted up to 100,000.
-- name: pools
with recursive queued(pool) as (
  (select r.pool from suimon.runs r where r.status = 'queued' and r.admitted order by r.pool limit 1)
  union all
  select (select r.pool from suimon.runs r where r.status = 'queued' and r.admitted and r.pool > q.pool order by r.pool limit 1)
  from queued q where q.pool is not null
),
named as (
  select pool from (select pool from queued limit 500) q where pool is not null
  union select pool from suimon.pipelines
  union select pool from suimon.workers where not dead
)
select n.pool,
       (select count(*) from (select from suimon.runs r where r.pool = n.pool and r.status = 'queued' and r.admitted
                              limit 100000) c) as ready,
       (select extract(epoch from clock_timestamp() - min(o.created_at))::float8 from (
          select r.created_at from suimon.runs r where r.pool = n.pool and r.status = 'queued' and r.admitted
          order by r.priority, r.rank, r.id limit 100) o) as oldest_s,
       (select count(*) from suimon.workers w where w.pool = n.pool and not w.dead) as workers,
       (select coalesce(sum(w.slots), 0) from suimon.workers w where w.pool = n.pool and not w.dead) as slots,
       (select count(*) from suimon.workers w where w.pool = n.pool and not w.dead and not w.draining
          and clock_timestamp() - w.beat_at <= make_interval(secs => 3 * w.beat_ms / 1000.0)) as beating,
       (select count(*) from suimon.workers w join suimon.runs r on r.worker_id = w.id and r.status = 'running'
        where w.pool = n.pool and not w.dead) as running
from named n order by n.pool limit 500;

-- Held one by one, since no worker has the code; walks at most 10,000.
-- name: held_back
select h.pool, h.reason, count(*) from (
  select r.pool, r.reason from suimon.runs r where r.status = 'queued' and not r.admitted and r.reason is not null limit 10000) h
group by h.pool, h.reason order by count(*) desc limit 20;

-- Runs of workers that are dead or gone; a rescuer takes them back within a sweep.
-- name: orphaned
select count(*) from (
  select from suimon.runs r left join suimon.workers w on w.id = r.worker_id
  where r.status = 'running' and (w.id is null or w.dead) limit 10000) o;

-- name: workers
select w.id, w.name, w.pool, w.slots, w.host, w.pid, w.package_version, w.idle, w.draining, w.started_at,
       extract(epoch from clock_timestamp() - w.beat_at)::float8 as silent_s, w.beat_ms,
       (select count(*) from suimon.runs r where r.worker_id = w.id and r.status = 'running') as running
from suimon.workers w where not w.dead order by w.id limit 1000;

-- name: duties
select d.name, extract(epoch from clock_timestamp() - d.next_at)::float8 as overdue_s, d.every_ms, d.last_at, d.last_note
from suimon.duties d order by d.name;
