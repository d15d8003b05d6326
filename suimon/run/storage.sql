-- Where the bytes are, and where large ones go.

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

-- What the large things of each pipeline take, as they are stored (compressed); scaled up where it was a sample. What
-- several refer to is counted for each of them.
-- name: payloads
select coalesce(r.pipeline, '(no run)') as pipeline, (count(*) * 100 / %(percent)s)::bigint as n,
       (sum(c.stored) * 100 / %(percent)s)::bigint as size
from suimon.payloads p tablesample system (%(percent)s) repeatable (1) join suimon.contents c on c.sha256 = p.sha256
left join suimon.runs r on r.id = p.run_id
group by 1 order by size desc limit 1000;

-- name: logs
select coalesce(r.pipeline, '(no run)') as pipeline, (count(*) * 100 / %(percent)s)::bigint as n,
       (sum(pg_column_size(p.body)) * 100 / %(percent)s)::bigint as size
from suimon.logs p tablesample system (%(percent)s) repeatable (1) left join suimon.runs r on r.id = p.run_id
group by 1 order by size desc limit 1000;

-- name: artifacts
select coalesce(r.pipeline, '(no run)') as pipeline, (count(*) * 100 / %(percent)s)::bigint as n,
       (sum(c.stored) * 100 / %(percent)s)::bigint as size
from suimon.artifacts p tablesample system (%(percent)s) repeatable (1) join suimon.contents c on c.sha256 = p.sha256
left join suimon.runs r on r.id = p.run_id
group by 1 order by size desc limit 1000;

-- Of all contents; scaled up where it was a sample.
-- name: contents
select (count(*) * 100 / %(percent)s)::bigint as n, coalesce(sum(c.size) * 100 / %(percent)s, 0)::bigint as raw,
       coalesce(sum(c.stored) * 100 / %(percent)s, 0)::bigint as stored, coalesce(sum(c.refs) * 100 / %(percent)s, 0)::bigint as refs,
       (count(*) filter (where c.body is null) * 100 / %(percent)s)::bigint as in_objects
from suimon.contents c tablesample system (%(percent)s) repeatable (1);

-- name: usage
select coalesce(sum(u.db_bytes), 0)::bigint as db_bytes, coalesce(sum(u.object_bytes), 0)::bigint as object_bytes,
       (select s.object_url from suimon.store s) as object_url
from suimon.store_usage u;

-- name: objects
select s.object_url from suimon.store s for update;

-- name: set_objects
update suimon.store s set object_url = %(url)s;
