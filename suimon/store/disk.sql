-- Where the server keeps its data (null: this role may not know), and when it started.

-- name: server
select current_setting('data_directory', true) as folder, extract(epoch from pg_postmaster_start_time())::float8 as started;
