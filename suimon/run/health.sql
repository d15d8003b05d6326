-- What people and their monitors ask first: does it move, is it slow, stopped, or held? Nothing here writes, and every
-- count has a bound, so that the answer costs the same on a queue of a million. Measured in docs/metrics.md.

-- Every pool that has a worker, a pipeline, a pause or a ready run (at most 500). The first 10,000 ready runs are
-- counted, without those of them that a pause of their pipeline holds; their age is that of the first thousand, where a
-- run that was begun before (and waited for something) counts only where there is no other.
-- name: pools
with recursive queued(pool) as (
  (select r.pool from suimon.runs r where r.status = 'queued' and r.admitted order by r.pool limit 1)
  union all
  select (select r.pool from suimon.runs r where r.status = 'queued' and r.admitted and r.pool > q.pool order by r.pool limit 1)
  from queued q where q.pool is not null
),
stopped as materialized (
  select array(select substr(p.what, 10) from suimon.pauses p where p.what like 'pipeline:%%' limit 1000) as pipelines
),
served as materialized (
  select w.pool,
         count(*) filter (where not w.dead) as workers,
         count(*) filter (where s.live) as live,
         coalesce(sum(w.slots) filter (where s.live), 0) as slots,
         coalesce(sum(w.starts) filter (where s.live), 0) as starts,
         coalesce(sum(w.ends) filter (where s.live), 0) as ends,
         extract(epoch from clock_timestamp() - max(coalesce(w.left_at, w.beat_at)))::float8 as silent_s
  from suimon.workers w
  cross join lateral (select not w.dead and not w.draining
    and clock_timestamp() - w.beat_at <= make_interval(secs => 3 * w.beat_ms / 1000.0) as live) s
  group by w.pool
),
named as (
  select pool from (select pool from queued limit 500) q where pool is not null
  union select pool from suimon.pipelines
  union select pool from suimon.workers where not dead
  union select substr(what, 6) from suimon.pauses where what like 'pool:%%'
)
select n.pool, c.ready, c.more, o.oldest_s, coalesce(s.workers, 0) as workers, coalesce(s.live, 0) as beating,
       coalesce(s.slots, 0) as slots, coalesce(s.starts, 0) as starts, coalesce(s.ends, 0) as ends, s.silent_s,
       exists (select from suimon.pauses p where p.what = 'pool:' || n.pool) as paused,
       (select p.cap from suimon.pool_caps p where p.name = n.pool) as cap
from named n
cross join stopped
left join served s on s.pool = n.pool
cross join lateral (
  select count(*) filter (where q.free) as ready, count(*) >= 10000 as more from (
    select stopped.pipelines = '{}' or r.vertex is not null or r.started_at is not null or r.pipeline <> all (stopped.pipelines) as free
    from suimon.runs r where r.pool = n.pool and r.status = 'queued' and r.admitted limit 10000) q) c
cross join lateral (
  select extract(epoch from clock_timestamp()
           - coalesce(min(f.created_at) filter (where f.started_at is null), min(f.created_at)))::float8 as oldest_s
  from (
    select coalesce(r.since, r.created_at) as created_at, r.started_at,
           stopped.pipelines = '{}' or r.vertex is not null or r.started_at is not null or r.pipeline <> all (stopped.pipelines) as free
    from suimon.runs r where r.pool = n.pool and r.status = 'queued' and r.admitted order by r.priority, r.rank, r.id limit 1000) f
  where f.free) o
order by n.pool limit 500;

-- Who holds what runs (10,000 of them), and which began first. A worker that is dead, gone or silent takes with it what
-- a rescue has to take back.
-- name: running
with held as materialized (
  select r.worker_id, r.id, r.pipeline, r.started_at from suimon.runs r where r.status = 'running' limit 10000
),
grouped as (
  select h.worker_id, count(*) as runs, min(h.started_at) as since from held h group by h.worker_id
)
select coalesce(w.pool, '') as pool, g.worker_id, g.runs,
       w.id is null or w.dead or clock_timestamp() - w.beat_at > make_interval(secs => 3 * w.beat_ms / 1000.0) as lost,
       extract(epoch from clock_timestamp() - coalesce(w.left_at, w.beat_at, g.since))::float8 as silent_s,
       f.id::text as first_id, f.pipeline, extract(epoch from clock_timestamp() - f.started_at)::float8 as first_s
from grouped g
left join suimon.workers w on w.id = g.worker_id
cross join lateral (select h.id, h.pipeline, h.started_at from held h where h.worker_id = g.worker_id order by h.started_at limit 1) f;

-- Why runs wait that were parked, up to 10,000 of them.
-- name: waiting
select w.reason, count(*) as runs from (
  select r.reason from suimon.runs r where r.status = 'waiting' and coalesce(r.reason, '') <> '' limit 10000) w
group by w.reason order by count(*) desc, w.reason limit 100;

-- Those of them that were asked to stop, whatever else they wait for; up to 10,000.
-- name: stopping
select s.reason, count(*) as runs from (
  select r.reason from suimon.runs r where r.cancel_requested and r.status in ('queued', 'running', 'waiting') and r.status = 'waiting'
  limit 10000) s
group by s.reason;

-- When the first of them goes on by itself.
-- name: next_wake
select min(r.wake_at) from suimon.runs r where r.status = 'waiting' and r.wake_at is not null;

-- Runs that stand in lanes, the first 20 lanes and 1,000 runs of each, with the reason of each lane's first.
-- name: lanes
with recursive standing(lane) as (
  (select r.lane from suimon.runs r where r.status = 'queued' and not r.admitted and r.reason is null order by r.lane limit 1)
  union all
  select (select r.lane from suimon.runs r where r.status = 'queued' and not r.admitted and r.reason is null and r.lane > s.lane
          order by r.lane limit 1)
  from standing s where s.lane is not null
)
select f.reason, sum(c.runs) as runs, bool_or(c.runs >= 1000) or (select count(*) from (select from standing limit 21) x) > 20 as more
from (select s.lane from standing s where s.lane is not null limit 20) l
cross join lateral (
  select suimon.reason_of(r) as reason from suimon.runs r
  where r.lane = l.lane and r.status = 'queued' and not r.admitted and r.reason is null order by r.lane_rank limit 1) f
cross join lateral (
  select count(*) as runs from (
    select from suimon.runs r where r.lane = l.lane and r.status = 'queued' and not r.admitted and r.reason is null limit 1000) q) c
group by f.reason;

-- Held one by one: no worker has the code, or their pipeline is paused. 1,000 of each, the first 50 kinds.
-- name: held_back
select h.pool, h.reason, c.runs, c.runs >= 1000 as more
from (select * from suimon.held_back_reasons() limit 50) h
cross join lateral (
  select count(*) as runs from (
    select from suimon.runs r where r.pool = h.pool and r.reason = h.reason and r.status = 'queued' and not r.admitted limit 1000) q) c
order by c.runs desc, h.pool, h.reason;

-- Runs in the queue that a pause holds and no claim has met yet: 1,000 of each, the first 50 pauses.
-- name: paused_ready
select p.what, c.runs, c.runs >= 1000 as more
from (select what from suimon.pauses where what like 'pipeline:%%' order by what limit 50) p
cross join lateral (
  select count(*) as runs from (
    select from suimon.runs r where r.pipeline = substr(p.what, 10) and r.status = 'queued' and r.parent_id is null and r.admitted
      and r.started_at is null limit 1000) q) c
where c.runs > 0;

-- Deliveries that wait, by trigger: 1,000 of each, at most 1,000 triggers. due_s: how long nothing has kept the oldest
-- from becoming a run.
-- name: deliveries
select t.pipeline, t.name, c.waiting, c.waiting >= 1000 as more, extract(epoch from clock_timestamp() - o.arrived_at)::float8 as oldest_s,
       suimon.pause_of(t.id) as pause,
       extract(epoch from clock_timestamp() - greatest(o.arrived_at, t.retry_at))::float8 as due_s
from suimon.triggers t
cross join lateral (
  select d.arrived_at from suimon.deliveries d where d.trigger_id = t.id and d.state = 'waiting' order by d.seq limit 1) o
cross join lateral (
  select count(*) as waiting from (select from suimon.deliveries d where d.trigger_id = t.id and d.state = 'waiting' limit 1000) q) c
order by o.arrived_at limit 1000;

-- name: dead_letters
select count(*) from (select from suimon.deliveries d where d.state in ('dead', 'discarded') and d.state = 'dead' limit 10000) q;

-- name: notices
select (select count(*) from (select from suimon.notices n where n.state = 'waiting' limit 10000) q) as waiting,
       (select extract(epoch from clock_timestamp() - min(f.created_at))::float8 from (
          select n.created_at from suimon.notices n where n.state = 'waiting' order by n.next_at limit 100) f) as oldest_s;

-- name: workers
select w.id, w.name, w.pool, w.slots, w.host, w.pid, w.package_version, w.idle, w.draining, w.started_at,
       extract(epoch from clock_timestamp() - w.beat_at)::float8 as silent_s, w.beat_ms, w.starts, w.ends
from suimon.workers w where not w.dead order by w.id limit 1000;

-- name: duties
select d.name, d.every_ms, d.last_at, d.last_note, extract(epoch from clock_timestamp() - d.next_at)::float8 as overdue_s,
       extract(epoch from clock_timestamp() - coalesce(d.last_at, d.next_at))::float8 as age_s
from suimon.duties d order by d.name;

-- The next that lies ahead, and how long the oldest that has passed is due: nobody has made that start yet.
-- name: next_start
select min(t.next_at) filter (where t.next_at > clock_timestamp()) as next_at,
       extract(epoch from clock_timestamp() - min(t.next_at) filter (where t.next_at <= clock_timestamp()))::float8 as due_s
from suimon.triggers t
where t.next_at is not null and t.retired_at is null and suimon.pause_of(t.id) is null;

-- The oldest transaction here that keeps dead rows from being vacuumed, if it is older than that; what it holds back is
-- every table, and the queue feels it first.
-- name: old_transaction
select a.pid, extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds, a.application_name as program,
       a.usename::text as who, a.state
from pg_stat_activity a
where a.backend_type = 'client backend' and a.pid <> pg_backend_pid() and (a.backend_xmin is not null or a.backend_xid is not null)
  and a.datname = current_database() and a.xact_start < clock_timestamp() - make_interval(secs => %(seconds)s)
order by a.xact_start limit 1;

-- name: database
select count(*) as used, current_setting('max_connections')::int as most,
       count(*) filter (where a.application_name like 'suimon:%%' and a.datname = current_database()) as ours,
       extract(epoch from clock_timestamp() - min(a.xact_start) filter (
         where a.datname = current_database() and a.pid <> pg_backend_pid()))::float8 as oldest_transaction_s
from pg_stat_activity a where a.backend_type = 'client backend';
