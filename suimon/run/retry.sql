-- An operator's retry: succeeded | failed | timed_out | cancelled → queued, and every merge above it opens again, up to
-- the root. First the fan-outs are held and the parents re-opened, in one transaction; then the children in batches;
-- last the hold is lifted. A hold ends by itself after a minute without a batch, so a crash leaves nothing shut.

-- name: facts
select r.id::text, r.status::text, r.parent_id::text, r.root_id::text, r.fanout_id, r.lane, r.pipeline, r.pool, r.graph_id,
       r.vertex, f.vertex as spawned_by, coalesce(f.generation, 1) as generation
from suimon.runs r left join suimon.fanouts f on f.id = r.fanout_id
where r.id = any (%(ids)s::uuid[]);

-- name: fanouts_of
select f.id, f.parent_id::text, f.vertex, f.state, f.verdict, f.expected, f.base::text,
       f.succeeded, f.failed, f.timed_out, f.cancelled
from suimon.fanouts f where f.parent_id = any (%(ids)s::uuid[]) and f.generation = 1 order by f.id;

-- Children of one fan-out that ended badly, in item order; at most 1,000 a page.
-- name: bad_children
select r.id::text, r.status::text, r.position, r.lane,
       exists (select from suimon.fanouts f where f.parent_id = r.id and f.failed + f.timed_out + f.cancelled > 0) as has_bad_children
from suimon.runs r
where r.fanout_id = %(fanout)s and r.status in ('failed', 'timed_out', 'cancelled') and r.position > %(after)s
  and r.status = any (%(statuses)s::suimon.run_status[])
order by r.position limit 1000;

-- Roots that are being removed: nothing below them is opened again.
-- name: pruning
select distinct t.id::text from suimon.runs r join suimon.runs t on t.id = r.root_id
where r.id = any (%(ids)s::uuid[]) and t.reason = 'pruning' limit 1;

-- Held against the pruner's mark (it takes `for update`), and against nothing else; who holds it looks for the mark in
-- its next statement.
-- name: keep_roots
select t.id from suimon.runs t where t.id in (select r.root_id from suimon.runs r where r.id = any (%(ids)s::uuid[]))
order by t.id for key share;

-- name: hold
with f as materialized (
  select id from suimon.fanouts where id = any (%(fanouts)s::bigint[]) order by id for no key update
)
update suimon.fanouts o
set held_until = clock_timestamp() + interval '60 seconds', state = 'open', verdict = null, settled_at = null, cancelling = false
from f where o.id = f.id;

-- name: lock_fanouts
select id from suimon.fanouts where id = any (%(fanouts)s::bigint[]) order by id for no key update;

-- name: lane_limits
select distinct on (r.lane) r.lane, r.lane_limit, case when r.lane like 'spawn:%%' then r.root_id end
from suimon.runs r
where r.lane = any (%(lanes)s::text[]) and r.status = 'queued' and not r.admitted and r.reason is null
order by r.lane;

-- name: lift
update suimon.fanouts set held_until = null where id = any (%(fanouts)s::bigint[]);

-- A list that was cut short (its spawner failed or was cancelled) is read on by the retried spawner, which would stop
-- at once if the fan-out had been left settled.
-- name: unseal
update suimon.fanouts f
set expected = null, allowed = null, skipped = 0, cancelling = false, state = 'open', verdict = null, settled_at = null
where f.parent_id = any (%(ids)s::uuid[]) and f.generation = 1
  and not exists (select from suimon.steps s where s.run_id = f.parent_id and s.vertex = f.vertex and s.status = 'succeeded')
  and exists (select from suimon.runs r where r.id = f.parent_id and r.vertex is null);

-- Parents that wait for something behind the merge that opens (a decision, a time, a destination): they look again, and
-- find their children out.
-- name: look_again
with behind as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status = 'waiting' and r.reason not in ('children', 'retry', 'cancelling')
    and not r.cancel_requested
  order by r.id for no key update
)
update suimon.runs r
set status = 'queued', reason = null, wake_at = null, since = clock_timestamp(), rank = suimon.head_of(r.pool, r.priority)
from behind b where r.id = b.id
returning r.pool;

-- With the questions they have asked and the checkpoints they have kept: all of it was about what is tried again.
-- name: forget_steps
with d as materialized (
  select * from unnest(%(ids)s::uuid[], %(vertices)s::text[]) as d(id, vertex)
),
questions as (delete from suimon.approvals a using d where a.run_id = d.id and a.vertex = d.vertex),
kept as (delete from suimon.checkpoints c using d where c.run_id = d.id and c.vertex = d.vertex)
delete from suimon.steps s using d where s.run_id = d.id and s.vertex = d.vertex;

-- name: forget_failed_steps
with bad as materialized (
  select s.run_id, s.vertex from suimon.steps s
  where s.run_id = any (%(ids)s::uuid[]) and s.status <> 'succeeded' and s.status <> 'skipped'
),
-- who rejected, or nobody in time: people are asked anew
questions as (delete from suimon.approvals a using bad b where a.run_id = b.run_id and a.vertex = b.vertex)
delete from suimon.steps s using bad b where s.run_id = b.run_id and s.vertex = b.vertex;

-- name: reopen
with asked as materialized (
  select r.id, r.status as old, r.claim_no, r.attempt, r.started_at, r.finished_at, r.error, r.reason = 'skipped' as skipped,
         r.pipeline, r.pool, r.fanout_id
  from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status in ('succeeded', 'failed', 'timed_out', 'cancelled')
    and not exists (select from suimon.runs t where t.id = r.root_id and t.reason = 'pruning')
  order by r.id for no key update
),
-- the end that is undone stays in the run's history; one that never began has none
kept as (
  insert into suimon.attempts (run_id, claim_no, attempt, how, began_at, ended_at, error)
  select a.id, a.claim_no, a.attempt, case a.old when 'succeeded' then 'retried' else a.old::text end,
         a.started_at, a.finished_at, a.error
  from asked a where a.claim_no > 0
  on conflict (run_id, claim_no, vertex) do nothing
),
-- a pipeline's pool may be another one by now (run/moving.py); who was given a pool by name stays there
homes as materialized (
  select a.id, a.old, a.skipped, case when n.pool is null then coalesce(p.pool, a.pool) else a.pool end as pool
  from asked a
  left join suimon.pipelines p on p.name = a.pipeline
  left join (select d.fanout_id, suimon.named_pool(d.fanout_id) as pool
             from (select distinct fanout_id from asked where fanout_id is not null) d) n on n.fanout_id = a.fanout_id
),
back as (
  update suimon.runs r
  set status = 'queued', admitted = r.lane is null, attempt = 0, interruptions = 0, alone = 0, cancel_requested = false,
      started_at = null, finished_at = null, wake_at = null, reason = null, output = null, error = null,
      since = clock_timestamp(), pool = a.pool, rank = suimon.head_of(a.pool, r.priority)
  from homes a where r.id = a.id
  returning r.id, r.fanout_id, r.lane, r.lane_rank, r.pool, a.old, a.skipped
),
tally as materialized (
  select fanout_id,
         count(*) filter (where old = 'succeeded') as succeeded, count(*) filter (where old = 'failed') as failed,
         count(*) filter (where old = 'timed_out') as timed_out, count(*) filter (where old = 'cancelled') as cancelled,
         array_agg(old::text) filter (where skipped) as forgiven
  from back where fanout_id is not null group by fanout_id
),
locked as materialized (
  select f.id from suimon.fanouts f where f.id in (select fanout_id from tally) order by f.id for no key update
),
uncounted as (
  update suimon.fanouts f
  set succeeded = f.succeeded - t.succeeded, failed = f.failed - t.failed,
      timed_out = f.timed_out - t.timed_out, cancelled = f.cancelled - t.cancelled,
      -- what an operator had forgiven is tried again: it must be forgiven again
      skipped = f.skipped - (select count(*) from unnest(t.forgiven) s where s <> all (f.tolerate)),
      allowed = f.allowed - (select count(*) from unnest(t.forgiven) s where s = any (f.tolerate)),
      state = 'open', verdict = null, settled_at = null, cancelling = false,
      held_until = case when f.held_until is not null then clock_timestamp() + interval '60 seconds' end
  from tally t join locked l on l.id = t.fanout_id
  where f.id = t.fanout_id
),
-- its old place in the lane may lie before the lane's floor; the lane rows are locked by the statement before
lowered as (
  update suimon.lanes l set floor = least(l.floor, b.lane_rank)
  from (select lane, min(lane_rank) as lane_rank from back where lane is not null group by lane) b where l.name = b.lane
)
select id::text, fanout_id, lane, pool from back;

-- The fan-outs below a run: it may not succeed with an open one. All are locked: one that a retry is opening in this
-- moment is waited for, and then seen as open.
-- name: below
select f.id, f.vertex, f.state, f.settles from suimon.fanouts f where f.parent_id = %(run)s order by f.id for no key update;

-- name: note
insert into suimon.audit (actor, action, target, detail) values (%(actor)s, %(action)s, %(target)s, %(detail)s::jsonb);
