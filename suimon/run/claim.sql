-- queued → running. The n smallest admitted rows of the pool by (priority, rank, id), each priority from the
-- worker's own floor, so that dead index entries which a long transaction elsewhere keeps are not walked again.
-- An empty floored claim proves nothing: see run/claim.py. Runs on the worker's hot connection (generic plan,
-- no sequential, bitmap, hash or merge plans).

-- name: claim
with p0 as materialized (
  select r.id from suimon.runs r
  where r.pool = %(pool)s and r.priority = 0 and r.status = 'queued' and r.admitted and r.rank >= %(floor0)s
  order by r.rank, r.id limit %(n)s for no key update skip locked
),
p1 as materialized (
  select r.id from suimon.runs r
  where r.pool = %(pool)s and r.priority = 1 and r.status = 'queued' and r.admitted and r.rank >= %(floor1)s
  order by r.rank, r.id limit %(n)s - (select count(*) from p0) for no key update skip locked
),
p2 as materialized (
  select r.id from suimon.runs r
  where r.pool = %(pool)s and r.priority = 2 and r.status = 'queued' and r.admitted and r.rank >= %(floor2)s
  order by r.rank, r.id limit %(n)s - (select count(*) from p0) - (select count(*) from p1) for no key update skip locked
),
p3 as materialized (
  select r.id from suimon.runs r
  where r.pool = %(pool)s and r.priority = 3 and r.status = 'queued' and r.admitted and r.rank >= %(floor3)s
  order by r.rank, r.id
  limit %(n)s - (select count(*) from p0) - (select count(*) from p1) - (select count(*) from p2)
  for no key update skip locked
),
picked as materialized (
  select id from p0 union all select id from p1 union all select id from p2 union all select id from p3
),
got as (
  update suimon.runs r
  set status = 'running', claim_no = r.claim_no + 1, attempt = r.attempt + 1, worker_id = %(worker)s,
      started_at = clock_timestamp()
  from picked where r.id = picked.id
  returning r.*
)
select id::text, claim_no, attempt, interruptions, graph_id, vertex, pipeline, fanout_id, item_key, lane, priority, rank,
       alone, cancel_requested, root_id::text, input::text, extract(epoch from deadline_at - clock_timestamp())::float8
from got order by priority, rank, id;

-- name: inputs
select run_id::text, body from suimon.payloads where run_id = any (%(ids)s::uuid[]) and name = 'input';

-- The head of the pool, published while claiming. A row another worker writes just now is passed over.
-- name: publish_head
update suimon.pools p set head = h.head
from unnest(%(priorities)s::smallint[], %(heads)s::bigint[]) as h(priority, head)
where p.name = %(pool)s and p.priority = h.priority
  and p.ctid in (select q.ctid from suimon.pools q where q.name = %(pool)s order by q.priority for no key update skip locked);

-- Nothing is queued here: new runs start at the clock.
-- name: publish_clock
update suimon.pools p set head = (extract(epoch from clock_timestamp()) * 1000000)::bigint
where p.ctid in (select q.ctid from suimon.pools q where q.name = %(pool)s order by q.priority for no key update skip locked);

-- Before the several statements of one batch that end claims, each of which locks in the order of ids: so do all.
-- name: lock_held
select r.id from suimon.runs r
where r.id = any (%(ids)s::uuid[]) and r.status between 'running' and 'running' and r.worker_id + 0 = %(worker)s
order by r.id for no key update;

-- running → queued, uncounted: the claim never began. Its try falls back; its place in a lane stays.
-- name: release
with d as materialized (
  select * from unnest(%(ids)s::uuid[], %(claims)s::int[]) as d(id, claim_no) order by id
),
held as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status between 'running' and 'running' and r.worker_id + 0 = %(worker)s
  order by r.id for no key update
),
back as (
  update suimon.runs r
  set status = 'queued', worker_id = null, attempt = greatest(r.attempt - 1, 0), rank = suimon.head_of(r.pool, r.priority)
  from d
  where (select count(*) from held) >= 0 and r.id = d.id and r.status between 'running' and 'running'
    and r.worker_id + 0 = %(worker)s and r.claim_no = d.claim_no
  returning r.id::text, r.pool
)
select id, pool from back;

-- The worker has not the code: held back with its reason until one that has the code takes it back.
-- name: hold_back
with d as materialized (
  select * from unnest(%(ids)s::uuid[], %(claims)s::int[], %(reasons)s::text[]) as d(id, claim_no, reason)
),
held as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status between 'running' and 'running' and r.worker_id + 0 = %(worker)s
  order by r.id for no key update
)
update suimon.runs r
set status = 'queued', worker_id = null, attempt = greatest(r.attempt - 1, 0), admitted = false, reason = d.reason
from d
where (select count(*) from held) >= 0 and r.id = d.id and r.status between 'running' and 'running'
  and r.worker_id + 0 = %(worker)s and r.claim_no = d.claim_no
returning r.id::text;

-- What was held back for want of code that a worker has, oldest first.
-- name: held_back
select r.id::text, r.lane from suimon.runs r
where r.pool = %(pool)s and r.status = 'queued' and not r.admitted and r.reason = any (%(reasons)s::text[])
order by r.id limit %(n)s;

-- These are not held back any more. A run of a lane stands in it again, where admission finds it at its old place.
-- name: readmit
with v as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status = 'queued' and not r.admitted and r.reason = any (%(reasons)s::text[])
  order by r.id for no key update skip locked
),
back as (
  update suimon.runs r
  set reason = null, admitted = r.lane is null, rank = suimon.head_of(r.pool, r.priority)
  from v where r.id = v.id
  returning r.id, r.lane, r.lane_rank
)
-- its old place may lie before the lane's floor
update suimon.lanes l set floor = least(l.floor, b.lane_rank)
from (select lane, min(lane_rank) as lane_rank from back where lane is not null group by lane) b where l.name = b.lane;

-- name: claim_these
with picked as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status = 'queued' and r.admitted
  order by r.id for no key update skip locked
),
got as (
  update suimon.runs r
  set status = 'running', claim_no = r.claim_no + 1, attempt = r.attempt + 1, worker_id = %(worker)s,
      started_at = clock_timestamp()
  from picked where r.id = picked.id
  returning r.*
)
select id::text, claim_no, attempt, interruptions, graph_id, vertex, pipeline, fanout_id, item_key, lane, priority, rank,
       alone, cancel_requested, root_id::text, input::text, extract(epoch from deadline_at - clock_timestamp())::float8
from got order by priority, rank, id;

-- What the database says this worker holds: compared with what it does hold after every lost answer.
-- name: holdings
select id::text, claim_no, cancel_requested from suimon.runs where status = 'running' and worker_id = %(worker)s;

-- name: cancel_requests
select id::text, claim_no from suimon.runs where status = 'running' and worker_id = %(worker)s and cancel_requested;

-- The first try of a task with a deadline sets it; the later ones find it.
-- name: set_deadline
update suimon.runs r set deadline_at = coalesce(r.deadline_at, clock_timestamp() + make_interval(secs => %(deadline_s)s))
where r.id = %(run)s and r.status = 'running' and r.worker_id = %(worker)s and r.claim_no = %(claim_no)s
returning extract(epoch from r.deadline_at - clock_timestamp())::float8;

-- name: graphs
select id, pipeline, body::text from suimon.graphs where id = any (%(ids)s::int[]);
