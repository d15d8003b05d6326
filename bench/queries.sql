-- What the benchmark asks the database beside the engine: when things happened, what was stored, and who is idle.

-- name: create_database
create database {name} template template0;

-- name: drop_database
drop database if exists {name} with (force);

-- name: machine
select current_setting('server_version') as version, current_setting('fsync') as fsync,
       current_setting('synchronous_commit') as synchronous_commit, current_setting('shared_buffers') as shared_buffers;

-- name: idle_worker
select count(*) filter (where idle) from suimon.workers where not dead;

-- name: tally
select coalesce(sum(succeeded + failed + timed_out + cancelled), 0)::bigint from suimon.fanouts where parent_id = %(run)s;

-- name: run
select status::text, extract(epoch from finished_at - created_at)::float8 as took_s, error::text, reason
from suimon.runs where id = %(run)s;

-- When the list was stored whole: the end of the spawner's step.
-- name: spawned
select extract(epoch from s.ended_at - r.created_at)::float8 from suimon.runs r
join suimon.steps s on s.run_id = r.id and s.vertex = 'jobs' where r.id = %(run)s;

-- Seconds between the ends of children: first to 10 %, 90 % to last, first to last; and how many.
-- name: tenths
with t as (
  select min(finished_at) as first, max(finished_at) as last, count(*) as n,
         percentile_disc(0.1) within group (order by finished_at) as p10,
         percentile_disc(0.9) within group (order by finished_at) as p90
  from suimon.runs where parent_id = %(run)s and finished_at is not null
)
select extract(epoch from p10 - first)::float8, extract(epoch from last - p90)::float8, extract(epoch from last - first)::float8, n
from t;

-- name: drained
select count(*) from suimon.runs where pipeline = %(pipeline)s and finished_at is not null;

-- name: drain_time
select extract(epoch from max(finished_at) - min(started_at))::float8, count(*), bool_and(status = 'succeeded')
from suimon.runs where pipeline = %(pipeline)s;

-- name: results_of_children
select r.position as n, r.output, r.attempt from suimon.runs r
where r.id in (select suimon.child_id(f.base, p) from suimon.fanouts f, unnest(%(positions)s::int[]) p where f.parent_id = %(run)s);

-- name: results
select (r.input ->> 'n')::bigint as n, r.output, r.attempt from suimon.runs r where r.id = any (%(ids)s::uuid[]);

-- name: hold_snapshot
select count(*) from suimon.workers;

-- Which backend serves whom, so that the time of each can be read from the system.
-- name: backends
select pid, coalesce(nullif(application_name, ''), backend_type) from pg_stat_activity;

-- name: log_all
alter system set log_statement = 'all';

-- name: log_prefix
alter system set log_line_prefix = '@%a@ ';

-- name: log_none
alter system reset log_statement;

-- name: reload
select pg_reload_conf();

-- name: transactions
select xact_commit + xact_rollback from pg_stat_database where datname = current_database();

-- What the tasks of the pipeline "clock" read in their first line, and how long each run stood in the queue.
-- name: starts
select id::text, (output ->> 'began_ns')::bigint, extract(epoch from started_at - created_at)::float8 * 1000
from suimon.runs where id = any (%(ids)s::uuid[]) and status = 'succeeded' order by id;

-- name: drain_tenths
with t as (
  select min(finished_at) as first, max(finished_at) as last, count(*) as n,
         percentile_disc(0.1) within group (order by finished_at) as p10,
         percentile_disc(0.9) within group (order by finished_at) as p90
  from suimon.runs where pipeline = %(pipeline)s and finished_at is not null
)
select extract(epoch from p10 - first)::float8, extract(epoch from last - p90)::float8, extract(epoch from last - first)::float8, n
from t;

-- name: forget_runs
truncate suimon.runs, suimon.payloads, suimon.flows, suimon.contents, suimon.store_usage;

-- name: store_bytes
select suimon.store_bytes();

-- name: raw_bytes
select coalesce(sum(c.size), 0)::bigint from suimon.runs r
join suimon.payloads p on p.run_id = r.id and p.name = 'output' join suimon.contents c on c.sha256 = p.sha256
where r.parent_id = %(run)s;

-- A history in bulk: the secondary indexes of runs are dropped and made again around it.
-- name: secondary_indexes
select indexname::text, indexdef from pg_indexes
where schemaname = 'suimon' and tablename = 'runs' and indexname <> 'runs_pkey' order by 1;

-- name: triggers_off
alter table suimon.runs disable trigger user;

-- name: triggers_on
alter table suimon.runs enable trigger user;

-- One a second until an hour ago; every twentieth of a pipeline failed.
-- name: load_runs
insert into suimon.runs (id, root_id, graph_id, pipeline, pool, status, created_at, started_at, finished_at, claim_no, attempt,
                         duration_us, input, output, error)
select i.id, i.id, g.id, g.pipeline, 'default', i.status::suimon.run_status, i.at, i.at, i.at + interval '2 seconds', 1, 1, 1500000,
       jsonb_build_object('n', i.n), case when i.status = 'succeeded' then to_jsonb(i.n) end,
       case when i.status = 'failed' then jsonb_build_object('type', 'ValueError', 'message', 'no such row') end
from (
  select n, at, 'p' || (n %% %(pipelines)s) as pipeline,
         case when (n / %(pipelines)s) %% 20 = 0 then 'failed' else 'succeeded' end as status,
         (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(n), 19, '0'))::uuid as id
  from (select n, clock_timestamp() - interval '1 hour' - (%(runs)s - n) * interval '1 second' as at
        from generate_series(0, %(runs)s - 1) as n) t) i
join suimon.graphs g on g.pipeline = i.pipeline;

-- name: load_steps
insert into suimon.steps (run_id, vertex, status, attempt, claim_no, duration_us, output, ended_at)
select r.id, 't', r.status::text, 1, 1, 1500000, r.output, r.finished_at from suimon.runs r where r.finished_at is not null;

-- name: load_logs
insert into suimon.logs (run_id, claim_no, stream, at, body)
select r.id, 1, 'log', r.started_at, 'a line of log text, as long as most of them are' from suimon.runs r where r.finished_at is not null;

-- name: analyze
analyze suimon.runs, suimon.steps, suimon.logs;

-- name: early_run
select id::text from suimon.runs order by id limit 1 offset 60;

-- name: a_trigger
select id from suimon.triggers where pipeline = 'p7';
