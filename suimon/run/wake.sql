-- Nobody polls: whoever makes a run claimable wakes one idle worker of its pool, in a statement after the write and
-- once per transaction. A worker before it goes silent proves that no submitter can have missed its idle flag.

-- name: wake
select pg_notify('suimon_wake', p.pool || ' ' || w.id)
from (select distinct unnest(%(pools)s::text[]) as pool) p
cross join lateral (
  select w.id from suimon.workers w where w.pool = p.pool and w.idle and not w.dead and not w.draining order by random() limit 1) w;

-- name: tell_workers
select pg_notify('suimon_cancel', w) from unnest(%(workers)s::text[]) as w;

-- name: listen
listen suimon_wake;

-- name: listen_cancel
listen suimon_cancel;

-- name: listen_doors
listen suimon_doors;

-- name: listen_limits
listen suimon_limits;

-- name: idle_on
update suimon.workers w set idle = true where w.id = %(worker)s and not w.dead
returning exists (select from suimon.pool_caps c where c.name = w.pool and c.cap is not null) as capped;

-- name: idle_off
update suimon.workers set idle = false where id = %(worker)s and idle;

-- Every submitter that could have missed the flag holds a transaction id below this one.
-- name: idle_mark
select pg_current_xact_id()::text::bigint as mark;

-- name: idle_safe
select pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= %(mark)s as safe;

-- waiting → queued: timers that are due (back-off, grace, durable timers); at most 1,000 a call.
-- name: due
with due as materialized (
  select r.id from suimon.runs r
  where r.status = 'waiting' and r.wake_at is not null and r.wake_at <= clock_timestamp() and not r.cancel_requested
  order by r.wake_at limit 1000 for no key update skip locked
),
woken as (
  update suimon.runs r
  set status = 'queued', reason = null, wake_at = null, since = clock_timestamp(), rank = suimon.head_of(r.pool, r.priority)
  from due where r.id = due.id
  returning r.pool
)
select pool, count(*) as runs from woken group by pool;
