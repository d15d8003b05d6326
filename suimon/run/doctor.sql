-- What a doctor looks at. Nothing here writes, and each count is bounded.

-- Everything that keeps vacuum from removing dead rows: sessions with an old snapshot or transaction, prepared
-- transactions, replication slots, standbys that report theirs. The oldest first. xids: how many transactions ago.
-- name: horizon
select * from (
  select 'session' as kind, a.pid::text as name, greatest(age(a.backend_xmin), age(a.backend_xid)) as xids,
         extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds, a.application_name as program,
         a.usename::text as who, a.state, a.datname::text as place, left(a.query, 200) as said
  from pg_stat_activity a
  where a.pid <> pg_backend_pid() and a.backend_type = 'client backend' and (a.backend_xmin is not null or a.backend_xid is not null)
  union all
  select 'standby', a.pid::text, age(a.backend_xmin), null, a.application_name, a.usename::text, a.state, null, null
  from pg_stat_activity a where a.backend_type = 'walsender' and a.backend_xmin is not null
  union all
  select 'prepared', p.gid, age(p.transaction), extract(epoch from clock_timestamp() - p.prepared)::float8, null, p.owner::text,
         'prepared', p.database::text, null
  from pg_prepared_xacts p
  union all
  select 'slot', s.slot_name::text, greatest(age(s.xmin), age(s.catalog_xmin)), null, s.plugin::text, null,
         case when s.active then 'active, process ' || s.active_pid else 'inactive' end, s.database::text, null
  from pg_replication_slots s where s.xmin is not null or s.catalog_xmin is not null
) h order by h.xids desc nulls last limit 20;

-- name: sees_all
select pg_has_role(current_user, 'pg_read_all_stats', 'usage') as sees;

-- name: clock
select extract(epoch from clock_timestamp())::float8 as now;

-- name: settings
select s.name, s.setting from pg_settings s
where s.name in ('autovacuum', 'track_counts', 'fsync', 'full_page_writes', 'synchronous_commit', 'max_connections',
                 'superuser_reserved_connections', 'idle_in_transaction_session_timeout')
order by s.name;

-- name: tables_without_autovacuum
select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'suimon' and c.reloptions && array['autovacuum_enabled=false', 'autovacuum_enabled=off', 'autovacuum_enabled=0']
order by c.relname;

-- Dead rows that should be gone; only worth a word where they are many.
-- name: dead_rows
select t.relname::text, t.n_live_tup, t.n_dead_tup, t.last_autovacuum from pg_stat_user_tables t
where t.schemaname = 'suimon' and t.n_dead_tup > 100000 and t.n_dead_tup > t.n_live_tup
order by t.n_dead_tup desc limit 5;

-- name: indexes
select c.relname::text, i.indisvalid and i.indisready as valid
from pg_index i join pg_class c on c.oid = i.indexrelid join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'suimon' order by c.relname;

-- Connections of the server now, and those that live workers have.
-- name: connections
select (select count(*) from pg_stat_activity where backend_type = 'client backend') as used,
       (select count(*) from pg_stat_activity where application_name like 'suimon:%%' and datname = current_database()) as ours,
       (select count(*) from suimon.workers w where not w.dead and w.left_at is null) as workers;

-- Lanes with room in which somebody has been waiting for a while: admission has missed them. At most 500 lanes.
-- name: room
with recursive lane(name) as (
  (select r.lane from suimon.runs r
   where r.status = 'queued' and not r.admitted and r.reason is null order by r.lane limit 1)
  union all
  select (select r.lane from suimon.runs r
          where r.status = 'queued' and not r.admitted and r.reason is null and r.lane > lane.name order by r.lane limit 1)
  from lane where lane.name is not null
)
select k.name, k.lane_limit, k.live, k.first_id::text, k.seconds from (
  select n.name, l.lane_limit, l.held_by,
         (select count(*) from (select from suimon.runs r where r.lane = n.name
                                and (r.admitted or (r.reason like 'no_code:%%' and r.started_at is not null))
                                and r.status in ('queued', 'running', 'waiting') limit 10000) c) as live,
         f.id as first_id, extract(epoch from clock_timestamp() - f.created_at)::float8 as seconds
  from (select name from lane where name is not null limit 500) n
  left join suimon.lanes l on l.name = n.name
  cross join lateral (select r.id, r.created_at from suimon.runs r
                      where r.lane = n.name and r.status = 'queued' and not r.admitted and r.reason is null
                      order by r.lane_rank limit 1) f) k
where k.held_by is null and k.live < coalesce(k.lane_limit, 2147483647) and k.seconds > %(seconds)s
order by k.seconds desc limit 20;

-- Runs of workers that are dead or gone, by worker.
-- name: orphans
select coalesce(w.name, 'worker ' || o.worker_id) as worker, count(*) as runs, min(o.id::text) as first_id
from (select r.id, r.worker_id from suimon.runs r left join suimon.workers w on w.id = r.worker_id
      where r.status = 'running' and (w.id is null or w.dead) limit 10000) o
left join suimon.workers w on w.id = o.worker_id
group by 1 order by runs desc limit 20;

-- Parents that wait for children although every fan-out of theirs has ended. Walks at most 10,000 waiting parents.
-- name: stranded
select s.id::text, s.pipeline, s.seconds from (
  select p.id, p.pipeline, extract(epoch from clock_timestamp() - p.started_at)::float8 as seconds
  from suimon.runs p
  where p.status = 'waiting' and p.reason = 'children'
    and not exists (select from suimon.fanouts o where o.parent_id = p.id and (o.state = 'open' or not suimon.is_complete(o)))
  limit 10000) s
where s.seconds > %(seconds)s limit 20;

-- Runs that wait for a time that has passed: nobody's timer fired and no sweep came.
-- name: overslept
select count(*) as runs, extract(epoch from clock_timestamp() - min(o.wake_at))::float8 as seconds from (
  select r.wake_at from suimon.runs r where r.status = 'waiting' and r.wake_at < clock_timestamp() - make_interval(secs => %(seconds)s)
  order by r.wake_at limit 10000) o;
