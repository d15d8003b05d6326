-- What the embedded server's supervisor asks its server.

-- name: database_exists
select 1
from pg_database
where datname = %(name)s;

-- name: create_database
create database {name};
