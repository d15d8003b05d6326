-- Cancel: the words first, durable, then the work in batches that any sweep can go on with. `cancel_requested` on the
-- run, `cancelling` on its fan-outs (a spawner's next chunk is refused by its fence); then the children by id range;
-- a run that executes is told through its worker. The run becomes cancelled when all below it has ended.

-- Fan-outs of these runs that still have somebody alive; locked before their parents (lock order).
-- name: mark_fanouts
with live as materialized (
  select f.id from suimon.fanouts f
  where f.parent_id = any (%(ids)s::uuid[]) and not suimon.is_complete(f) order by f.id for no key update
)
update suimon.fanouts f set cancelling = true from live where f.id = live.id and not f.cancelling returning f.id;

-- name: request
with asked as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status in ('queued', 'running', 'waiting') order by r.id for no key update
)
update suimon.runs r set cancel_requested = true
from asked where r.id = asked.id
returning r.id::text, r.status::text, r.worker_id, r.lane, r.fanout_id, r.pool;

-- What must see the effect of these locks is a later statement: fan-outs before their parents.
-- name: lock_fanouts
select f.id from suimon.fanouts f where f.parent_id = any (%(ids)s::uuid[]) order by f.id for no key update;

-- name: lock_idle
select r.id from suimon.runs r
where r.id = any (%(ids)s::uuid[]) and r.status in ('queued', 'waiting') order by r.id for no key update;

-- A spawner that will not go on leaves an open list: it ends with what exists.
-- name: seal_stopped
with stopped as materialized (
  select f.id, f.base from suimon.fanouts f
  join suimon.runs p on p.id = f.parent_id
  where f.parent_id = any (%(ids)s::uuid[]) and f.cancelling and f.expected is null
    and (p.status <> 'running' or (p.worker_id = %(worker)s and p.cancel_requested))
  order by f.id for no key update of f
)
update suimon.fanouts f
set expected = (select count(*) from suimon.runs c
                where c.id >= suimon.child_id(s.base, 0) and c.id <= suimon.child_id(s.base, 2147483647)),
    allowed = coalesce(f.allowed, case when f.tolerate = '{}' then 0 else f.max_failures end)
from stopped s where f.id = s.id
returning f.id;

-- The next fan-outs to work on; a spawn with stragglers = 'finish' lets those run that run.
-- name: cancelling
select f.id, f.parent_id::text, f.base::text, f.expected is null as unsealed,
       f.stragglers = 'finish' and not p.cancel_requested as leave_running
from suimon.fanouts f join suimon.runs p on p.id = f.parent_id
where f.cancelling and (f.expected is null or f.succeeded + f.failed + f.timed_out + f.cancelled < f.expected)
  and f.id > %(after)s
order by f.id limit 100;

-- Live children of one fan-out, by id range.
-- name: live_children
select r.id::text, r.status::text, r.position, r.lane, r.cancel_requested
from suimon.runs r
where r.id >= suimon.child_id(%(base)s, %(first)s) and r.id <= suimon.child_id(%(base)s, 2147483647)
  and r.status in ('queued', 'running', 'waiting')
order by r.id limit 1000;

-- queued | waiting → cancelled, those that have nobody alive below them. A worker that claimed one of them before
-- lock_idle wins: the row is not idle any more, or has children by now, and its worker is told.
-- name: cancel_idle
with idle as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status in ('queued', 'waiting')
    and not exists (select from suimon.fanouts f where f.parent_id = r.id and not suimon.is_complete(f))
  order by r.id for no key update
),
done as (
  update suimon.runs r
  set status = case when r.deadline_at <= clock_timestamp() then 'timed_out' else 'cancelled' end::suimon.run_status,
      finished_at = clock_timestamp(), wake_at = null, reason = null,
      error = case when r.deadline_at <= clock_timestamp()
                   then jsonb_build_object('type', 'DeadlinePassed', 'message', 'its deadline has passed')
                   else jsonb_build_object('type', 'Cancelled', 'message', %(why)s::text) end
  from idle where r.id = idle.id and r.status in ('queued', 'waiting')
  returning r.id, r.status, r.fanout_id, r.lane, r.pool
),
tally as materialized (
  select fanout_id, count(*) filter (where status = 'cancelled') as cancelled, count(*) filter (where status = 'timed_out') as timed_out
  from done where fanout_id is not null group by fanout_id
),
locked as materialized (
  select f.id from suimon.fanouts f where f.id in (select fanout_id from tally) order by f.id for no key update
),
counted as (
  update suimon.fanouts f set cancelled = f.cancelled + t.cancelled, timed_out = f.timed_out + t.timed_out
  from tally t join locked l on l.id = t.fanout_id where f.id = t.fanout_id
)
select id::text, fanout_id, lane, pool from done;

-- Asked to stop, not running, nobody alive below: left over by a crash in the middle of a cancel.
-- name: stoppable
select r.id::text from suimon.runs r
where r.cancel_requested and r.status in ('queued', 'waiting')
  and not exists (select from suimon.fanouts f where f.parent_id = r.id and not suimon.is_complete(f))
order by r.id limit 500;

-- running → waiting: asked to stop, but children are alive. The fan-outs are locked by a statement before this one.
-- name: park_cancelling
update suimon.runs p
set status = 'waiting', reason = 'cancelling', worker_id = null, since = clock_timestamp()
where p.id = %(parent)s and p.status = 'running' and p.worker_id = %(worker)s and p.claim_no = %(claim_no)s
  and exists (select from suimon.fanouts f where f.parent_id = p.id and not suimon.is_complete(f))
returning p.id::text;

-- Unfinished runs whose deadline has passed: they are asked to stop, and end timed_out. At most 500 a call.
-- name: overdue
select r.id::text from suimon.runs r
where r.deadline_at <= clock_timestamp() and r.status in ('queued', 'running', 'waiting') and not r.cancel_requested
order by r.deadline_at limit 500;
