-- Session settings, so written that they are right behind a pooler in transaction mode too.

-- name: session
-- TimeZone is one of the few settings a pooler tracks for each client. The isolation level is touched only where
-- somebody changed the server's default, because a pooler would hand this to other clients; every explicit
-- transaction names its level anyway. The backend's pid tells a pooler: it invents the one of the handshake.
select
  pg_backend_pid() as backend_pid,
  current_setting('server_version_num')::int as server_version,
  set_config('TimeZone', 'UTC', false) as time_zone,
  case
    when current_setting('default_transaction_isolation') <> 'read committed'
    then set_config('default_transaction_isolation', 'read committed', false)
  end as isolation;

-- name: hot
-- The worker's statements are few, and each is a walk along one index. A plan made for the parameters at hand, or
-- on an empty table, freezes sequential scans that cost half the speed or more; plans are held by tests.
-- %(local)s: true for this transaction only (behind a pooler), false for the session.
select
  set_config('plan_cache_mode', 'force_generic_plan', %(local)s),
  set_config('enable_seqscan', 'off', %(local)s),
  set_config('enable_bitmapscan', 'off', %(local)s),
  set_config('enable_hashjoin', 'off', %(local)s),
  set_config('enable_mergejoin', 'off', %(local)s),
  set_config('jit', 'off', %(local)s),
  -- a worker that freezes in the middle of a batch holds the locks of its runs and of their fan-outs: not for ever
  set_config('idle_in_transaction_session_timeout', '10s', %(local)s);
