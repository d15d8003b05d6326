-- The bookkeeping of migrations. It is made by the runner, together with the first migration, and is no part of
-- schema.sql: the schema says what the engine needs, this says how a database got there.

-- name: lock
-- One migrator at a time, in the whole database; the others wait here. It ends with the session.
select pg_advisory_lock(hashtextextended('suimon:migrate', 0));

-- name: unlock
select pg_advisory_unlock(hashtextextended('suimon:migrate', 0));

-- name: lock_timeout
-- Of the transaction. Whoever queues for a table's strongest lock holds up all who come after it.
set local lock_timeout = '2s';

-- name: present
select
  to_regnamespace('suimon') is not null as has_schema,
  to_regclass('suimon.migrations') is not null as has_migrations;

-- name: create_bookkeeping
create table suimon.migrations (
  number int primary key,
  name text not null,
  sha256 text not null,
  applied_at timestamptz not null default clock_timestamp()
);
create table suimon.meta (
  one bool primary key default true check (one),
  schema_version int not null,
  package_version text not null,
  changed_at timestamptz not null default clock_timestamp()
);

-- name: applied
select number, name, sha256, applied_at
from suimon.migrations
order by number;

-- name: record
insert into suimon.migrations (number, name, sha256)
values (%(number)s, %(name)s, %(sha256)s);

-- name: set_version
-- Changes the row only when there is something to change, so that a second migrate writes nothing.
insert into suimon.meta as meta (schema_version, package_version)
values (%(schema_version)s, %(package_version)s)
on conflict (one) do update
set schema_version = excluded.schema_version,
    package_version = excluded.package_version,
    changed_at = clock_timestamp()
where (meta.schema_version, meta.package_version)
  is distinct from (excluded.schema_version, excluded.package_version);

-- name: version
select schema_version, package_version
from suimon.meta;
