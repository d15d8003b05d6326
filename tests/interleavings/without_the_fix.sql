-- The obvious way of writing each statement, which the interleavings break. Every test that holds one of them runs
-- its interleaving twice: with the engine's statements, and with these, to prove that it would notice.

-- Finding 1: finish, lane lock and admission in one statement look for the next run in a snapshot older than the lock.
-- name: finish_and_admit
with locked as materialized (select l.name from suimon.lanes l where l.name = %(lane)s for no key update),
done as (
  update suimon.runs r set status = 'succeeded', worker_id = null, finished_at = clock_timestamp()
  where r.id = %(id)s and (select count(*) from locked) > 0 returning r.id
),
next as materialized (
  select r.id from locked join suimon.runs r on r.lane = locked.name
  where r.status = 'queued' and not r.admitted and (select count(*) from done) >= 0
  order by r.lane_rank limit 1 for no key update of r skip locked
),
admitted as (update suimon.runs r set admitted = true from next where r.id = next.id returning r.id)
select id::text from admitted;

-- Finding 11: the admitted successor is invisible to a claim in the same statement.
-- name: admit_and_claim
with admitted as (
  update suimon.runs r set admitted = true where r.id = %(id)s returning r.id
),
picked as materialized (
  select r.id from suimon.runs r
  where r.pool = 'default' and r.status = 'queued' and r.admitted and (select count(*) from admitted) > 0
  order by r.rank, r.id limit 10 for no key update skip locked
),
got as (
  update suimon.runs r set status = 'running', claim_no = r.claim_no + 1, worker_id = %(worker)s
  from picked where r.id = picked.id returning r.id
)
select (select count(*) from admitted), (select count(*) from got);

-- Finding 5: a submit that takes its lane's lock, in a caller's transaction.
-- name: lock_lane
select name from suimon.lanes where name = %(lane)s for no key update;

-- Finding 3: tally, settle and the parent's wake-up in one statement.
-- name: finish_and_settle
with done as (
  update suimon.runs r set status = 'succeeded', worker_id = null, finished_at = clock_timestamp()
  where r.id = %(id)s and r.status = 'running' returning r.fanout_id
),
settled as (
  update suimon.fanouts f
  set succeeded = f.succeeded + 1, state = 'settled', verdict = 'succeeded', settled_at = clock_timestamp(), settles = f.settles + 1
  from done where f.id = done.fanout_id and f.state = 'open' and f.succeeded + 1 >= f.expected returning f.parent_id
)
update suimon.runs p set status = 'queued', reason = null
from settled where p.id = settled.parent_id and p.status = 'waiting' returning p.id::text;

-- Finding 3 again, at a cancel: parks below living children without the fan-outs' locks.
-- name: park_cancelling
update suimon.runs p set status = 'waiting', reason = 'cancelling', worker_id = null
where p.id = %(parent)s and p.status = 'running'
  and exists (select from suimon.fanouts f where f.parent_id = p.id and not suimon.is_complete(f))
returning p.id::text;

-- Finding 4: parent and children cancelled in one statement.
-- name: cancel_in_one
with parent as (
  update suimon.runs r set status = 'cancelled', finished_at = clock_timestamp(), worker_id = null
  where r.id = %(id)s and r.status in ('queued', 'running', 'waiting') returning r.id
)
update suimon.runs c set status = 'cancelled', finished_at = clock_timestamp()
from parent where c.parent_id = parent.id and c.status = 'queued' returning c.id;

-- Finding 12: lock and count in one statement.
-- name: recount_in_one
with locked as materialized (select f.id from suimon.fanouts f where f.id = %(fanout)s for no key update)
update suimon.fanouts f
set succeeded = (select count(*) from suimon.runs r where r.fanout_id = f.id and r.status = 'succeeded')
from locked where f.id = locked.id;

-- Finding 13: fan-outs in whatever order the statement meets them.
-- name: tally_as_it_comes
with done as (
  update suimon.runs r set status = 'succeeded', worker_id = null, finished_at = clock_timestamp()
  where r.id = any (%(ids)s::uuid[]) and r.status = 'running' returning r.fanout_id
),
locked as materialized (
  select f.id from suimon.fanouts f where f.id in (select fanout_id from done) order by f.id desc for no key update
)
update suimon.fanouts f set succeeded = f.succeeded + 1 from locked where f.id = locked.id;

-- A rescue fenced by "its worker is dead" alone: re-checked after a wait, an outer join finds no worker at all.
-- name: interrupt_unfenced
with held as materialized (
  select r.id from suimon.runs r left join suimon.workers w on w.id = r.worker_id
  where r.id = any (%(ids)s::uuid[]) and r.status = 'running' and (w.id is null or w.dead)
  order by r.id for no key update of r
)
update suimon.runs r set status = 'queued', worker_id = null from held where r.id = held.id and r.status = 'running'
returning r.id::text;

-- A parent's end that looks at open fan-outs only: one that is being opened again is not open yet.
-- name: open_below
select f.id, f.vertex, f.state, f.settles from suimon.fanouts f
where f.parent_id = %(run)s and f.state = 'open' order by f.id for no key update;

-- Idle children looked for and cancelled in one statement: who was claimed and spawned meanwhile has children by now.
-- name: cancel_idle
with idle as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status in ('queued', 'waiting')
    and not exists (select from suimon.fanouts f where f.parent_id = r.id and not suimon.is_complete(f))
  order by r.id for no key update
)
update suimon.runs r set status = 'cancelled', finished_at = clock_timestamp(), reason = null, wake_at = null
from idle where r.id = idle.id and r.status in ('queued', 'waiting') returning r.id::text;
