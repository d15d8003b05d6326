-- running → succeeded | failed | timed_out | cancelled, for a whole batch, under the fence (worker and claim_no).
-- Order in the transaction: lane lock, finish, settle, admit, claim, wake. Each is a statement of its own, because
-- all parts of one statement share a snapshot taken before any lock was waited for.

-- `between 'running' and 'running'` and `worker_id + 0` keep the partial index of rescue out of the plan: the
-- planner believes it holds one row and would loop 500 x 500. The sorted locking comes first (lock order by id).
-- name: finish
with d as materialized (
  select *
  from unnest(%(ids)s::uuid[], %(claims)s::int[], %(statuses)s::suimon.run_status[], %(durations)s::bigint[],
              string_to_array(%(outputs)s, e'\x1e', ''), string_to_array(%(errors)s, e'\x1e', ''))
       as d(id, claim_no, status, duration_us, output, error)
),
held as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status between 'running' and 'running' and r.worker_id + 0 = %(worker)s
  order by r.id for no key update
),
done as (
  update suimon.runs r
  set status = case when d.status = 'cancelled' and r.deadline_at <= clock_timestamp() then 'timed_out' else d.status end,
      output = d.output::jsonb, error = d.error::jsonb, duration_us = d.duration_us,
      worker_id = null, finished_at = clock_timestamp()
  from d
  where (select count(*) from held) >= 0 and r.id = d.id and r.status between 'running' and 'running'
    and r.worker_id + 0 = %(worker)s and r.claim_no = d.claim_no
  returning r.id, r.fanout_id, r.status, r.lane, r.holds_lane
),
-- a bad end closes the lane of a pipeline that asks for it, and a good end of that very run opens it again
shut as (
  update suimon.lanes l set held_by = case when d.status = 'succeeded' then null else d.id end
  from done d
  where d.holds_lane and l.name = d.lane and (d.status in ('failed', 'timed_out') or l.held_by = d.id)
),
tally as materialized (
  select fanout_id,
         count(*) filter (where status = 'succeeded') as succeeded, count(*) filter (where status = 'failed') as failed,
         count(*) filter (where status = 'timed_out') as timed_out, count(*) filter (where status = 'cancelled') as cancelled
  from done where fanout_id is not null group by fanout_id
),
locked as materialized (
  select f.id from suimon.fanouts f where f.id in (select fanout_id from tally) order by f.id for no key update
),
counted as (
  update suimon.fanouts f
  set succeeded = f.succeeded + t.succeeded, failed = f.failed + t.failed,
      timed_out = f.timed_out + t.timed_out, cancelled = f.cancelled + t.cancelled
  from tally t join locked l on l.id = t.fanout_id
  where f.id = t.fanout_id
)
select id::text from done;

-- The large results of runs that ended under these very claims.
-- name: refer_outputs
insert into suimon.payloads (run_id, name, sha256)
select r.id, 'output', d.sha256
from unnest(%(ids)s::uuid[], %(claims)s::int[], %(contents)s::bytea[]) as d(id, claim_no, sha256)
join suimon.runs r on r.id = d.id
where r.status = 'succeeded' and r.claim_no = d.claim_no
on conflict (run_id, name) do update set sha256 = excluded.sha256;

-- The end of a fan-out, decided by exactly one finisher: its rows are locked by the statement before, the snapshot
-- is fresh, `state = 'open'` is the guard. Only its first opening fails fast: children that an operator retried one by
-- one must not be cancelled for those that were not. A parent that waits is woken when its fan-out settles, and once more when
-- the stragglers of an early settle have all stopped. `todo` says what must follow in another transaction:
-- a pool to wake, a parent that was asked to stop and now can, stragglers to be cancelled.
-- name: settle
with judged as materialized (
  select f.id, f.parent_id, f.state, f.stragglers, suimon.is_complete(f) as complete, suimon.is_over(f) as over,
         f.state = 'open' and coalesce(f.held_until < clock_timestamp(), true)
         and (suimon.is_complete(f) or (f.fail_fast and f.settles = 0 and not f.cancelling and suimon.is_over(f))) as ends
  from suimon.fanouts f where f.id = any (%(fanouts)s::bigint[])
),
settled as (
  update suimon.fanouts f
  set state = 'settled', verdict = case when j.over then 'failed' else 'succeeded' end, held_until = null,
      settled_at = clock_timestamp(), settles = f.settles + 1, cancelling = f.cancelling or not j.complete
  from judged j
  where f.id = j.id and f.state = 'open' and j.ends
  returning f.id
),
ended as materialized (
  select distinct j.parent_id from judged j
  where j.id in (select id from settled) or (j.state = 'settled' and j.complete)
),
-- only those that wait: who parks has its fan-outs locked, and a chunk that holds a running parent is not waited for
parents as materialized (
  select p.id from suimon.runs p where p.id in (select parent_id from ended) and p.status = 'waiting' order by p.id for no key update
),
woken as (
  update suimon.runs p
  set status = 'queued', wake_at = null, reason = null, since = clock_timestamp(), rank = suimon.head_of(p.pool, p.priority)
  from parents where p.id = parents.id and p.status = 'waiting' and p.reason = 'children' and not p.cancel_requested
  returning p.id, p.pool
)
select 'woken' as todo, w.id::text as id, w.pool from woken w
union all
select 'cancelled', p.id::text, p.pool from suimon.runs p
where p.id in (select parent_id from ended) and p.status in ('queued', 'waiting') and p.cancel_requested
union all
select 'stragglers', j.id::text, null from judged j where j.ends and not j.complete;

-- running → waiting for the next try. The try that failed is kept as an attempt.
-- name: retry_later
with d as materialized (
  select *
  from unnest(%(ids)s::uuid[], %(claims)s::int[], %(delays)s::double precision[], %(hows)s::text[], %(vertices)s::text[],
              string_to_array(%(errors)s, e'\x1e', '')) as d(id, claim_no, delay_s, how, vertex, error)
),
held as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status between 'running' and 'running' and r.worker_id + 0 = %(worker)s
  order by r.id for no key update
),
parked as (
  update suimon.runs r
  set status = 'waiting', reason = 'retry', worker_id = null, since = clock_timestamp(),
      wake_at = clock_timestamp() + make_interval(secs => d.delay_s)
  from d
  where (select count(*) from held) >= 0 and r.id = d.id and r.status between 'running' and 'running'
    and r.worker_id + 0 = %(worker)s and r.claim_no = d.claim_no and not r.cancel_requested
  returning r.id, r.claim_no, r.attempt, r.started_at, d.how, d.vertex, d.error
),
kept as (
  insert into suimon.attempts (run_id, claim_no, vertex, attempt, worker_id, worker_name, how, began_at, error)
  select p.id, p.claim_no, p.vertex, p.attempt, %(worker)s, %(worker_name)s, p.how, p.started_at, p.error::jsonb
  from parked p
  on conflict do nothing
)
select id::text from parked;
