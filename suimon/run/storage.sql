-- Where the bytes are. Nothing here writes.

-- name: tables
select c.relname::text as name, pg_total_relation_size(c.oid) as total, pg_relation_size(c.oid) as rows_size,
       pg_indexes_size(c.oid) as indexes, coalesce(pg_total_relation_size(c.reltoastrelid), 0) as large,
       greatest(t.n_live_tup, 0) as live, greatest(t.n_dead_tup, 0) as dead
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_stat_user_tables t on t.relid = c.oid
where n.nspname = 'suimon' and c.relkind = 'r'
order by total desc, name;

-- name: database
select pg_database_size(current_database()) as size;

-- How much of each table a sample may read: about 100,000 rows.
-- name: portion
select least(100, 10000000.0 / greatest(c.reltuples, 1))::float8 as percent
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'suimon' and c.relname = %(name)s;

-- What the large things of each pipeline take, as they are stored (compressed); scaled up where it was a sample.
-- name: payloads
select coalesce(r.pipeline, '(no run)') as pipeline, (count(*) * 100 / %(percent)s)::bigint as n,
       (sum(pg_column_size(p.body)) * 100 / %(percent)s)::bigint as size
from suimon.payloads p tablesample system (%(percent)s) repeatable (1) left join suimon.runs r on r.id = p.run_id
group by 1 order by size desc limit 1000;

-- name: logs
select coalesce(r.pipeline, '(no run)') as pipeline, (count(*) * 100 / %(percent)s)::bigint as n,
       (sum(pg_column_size(p.body)) * 100 / %(percent)s)::bigint as size
from suimon.logs p tablesample system (%(percent)s) repeatable (1) left join suimon.runs r on r.id = p.run_id
group by 1 order by size desc limit 1000;

-- name: artifacts
select coalesce(r.pipeline, '(no run)') as pipeline, (count(*) * 100 / %(percent)s)::bigint as n,
       (sum(pg_column_size(p.body)) * 100 / %(percent)s)::bigint as size
from suimon.artifacts p tablesample system (%(percent)s) repeatable (1) left join suimon.runs r on r.id = p.run_id
group by 1 order by size desc limit 1000;
