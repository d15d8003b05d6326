-- What the connections of the HTTP server say at their beginning, and how the database is asked whether it answers.

-- name: session
select set_config('statement_timeout', %(timeout)s, false), set_config('lock_timeout', '10000', false);

-- name: probe
select 1;
