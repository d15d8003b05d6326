-- queued → running. The n smallest admitted rows of the pool by (priority, rank, id), each priority from the
-- worker's own floor, so that dead index entries which a long transaction elsewhere keeps are not walked again.
-- An empty floored claim proves nothing: see run/claim.py. Runs on the worker's hot connection (generic plan,
-- no sequential, bitmap, hash or merge plans). A paused pool claims nothing. `paused` names the pause of a claimed row's
-- pipeline: only of one that begins (fresh) and is a run of its own, and only asked when anything at all is paused.
-- A capped pool: its row is locked in a statement before (lock_cap), and counted here; who has not locked it takes nothing.

-- name: claim
with room as materialized (
  select exists (select from suimon.pauses) as paused,
         case when exists (select from suimon.pauses p where p.what = 'pool:' || %(pool)s) then 0
              else coalesce((select case when %(capped)s then least(greatest(c.cap - suimon.held_in(c.name), 0), %(n)s) else 0 end
                             from suimon.pool_caps c where c.name = %(pool)s and c.cap is not null), %(n)s) end as n
),
p0 as materialized (
  select r.id, r.started_at is null as fresh from suimon.runs r
  where r.pool = %(pool)s and r.priority = 0 and r.status = 'queued' and r.admitted and r.rank >= %(floor0)s
  order by r.rank, r.id limit (select n from room) for no key update skip locked
),
p1 as materialized (
  select r.id, r.started_at is null as fresh from suimon.runs r
  where r.pool = %(pool)s and r.priority = 1 and r.status = 'queued' and r.admitted and r.rank >= %(floor1)s
  order by r.rank, r.id limit (select n from room) - (select count(*) from p0) for no key update skip locked
),
p2 as materialized (
  select r.id, r.started_at is null as fresh from suimon.runs r
  where r.pool = %(pool)s and r.priority = 2 and r.status = 'queued' and r.admitted and r.rank >= %(floor2)s
  order by r.rank, r.id limit (select n from room) - (select count(*) from p0) - (select count(*) from p1) for no key update skip locked
),
p3 as materialized (
  select r.id, r.started_at is null as fresh from suimon.runs r
  where r.pool = %(pool)s and r.priority = 3 and r.status = 'queued' and r.admitted and r.rank >= %(floor3)s
  order by r.rank, r.id
  limit (select n from room) - (select count(*) from p0) - (select count(*) from p1) - (select count(*) from p2)
  for no key update skip locked
),
picked as materialized (
  select * from p0 union all select * from p1 union all select * from p2 union all select * from p3
),
got as (
  update suimon.runs r
  set status = 'running', claim_no = r.claim_no + 1, attempt = r.attempt + 1, worker_id = %(worker)s,
      started_at = clock_timestamp()
  from picked where r.id = picked.id
  returning r.*, picked.fresh
)
select id::text, claim_no, attempt, interruptions, graph_id, vertex, pipeline, fanout_id, item_key, lane, priority, rank,
       alone, cancel_requested, root_id::text, input::text, extract(epoch from deadline_at - clock_timestamp())::float8,
       case when fresh and vertex is null and (select paused from room)
            then (select p.what from suimon.pauses p where p.what = 'pipeline:' || got.pipeline) end as paused, not fresh as begun
from got order by priority, rank, id;

-- The last lock of a batch: whoever holds it waits for nobody. No row: the pool has no cap.
-- name: lock_cap
select c.cap from suimon.pool_caps c where c.name = %(pool)s and c.cap is not null for no key update;

-- name: inputs
select run_id::text, sha256 from suimon.payloads where run_id = any (%(ids)s::uuid[]) and name = 'input';

-- The head of the pool, published while claiming. A row another worker writes just now is passed over.
-- name: publish_head
update suimon.pools p set head = h.head
from unnest(%(priorities)s::smallint[], %(heads)s::bigint[]) as h(priority, head)
where p.name = %(pool)s and p.priority = h.priority
  and p.ctid in (select q.ctid from suimon.pools q where q.name = %(pool)s order by q.priority for no key update skip locked);

-- Nothing is queued here: new runs start at the clock. A pause or a cap leaves the head where it is: there may be a queue.
-- name: publish_clock
update suimon.pools p set head = (extract(epoch from clock_timestamp()) * 1000000)::bigint
where p.ctid in (select q.ctid from suimon.pools q where q.name = %(pool)s order by q.priority for no key update skip locked)
  and not exists (select from suimon.pauses s where s.what = 'pool:' || %(pool)s)
  and not exists (select from suimon.pool_caps c where c.name = %(pool)s and c.cap is not null);

-- Before the several statements of one batch that end claims, each of which locks in the order of ids: so do all.
-- name: lock_held
select r.id from suimon.runs r
where r.id = any (%(ids)s::uuid[]) and r.status between 'running' and 'running' and r.worker_id + 0 = %(worker)s
order by r.id for no key update;

-- running → queued, uncounted: the claim never began. Its try falls back; its place in a lane stays. A run that no
-- earlier claim had begun is fresh again, for pauses. `begun`: those of them that an earlier claim had begun, as the claim
-- said; one that only ever asked to be called later has nothing else to show for it.
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
  set status = 'queued', worker_id = null, attempt = greatest(r.attempt - 1, 0), rank = suimon.head_of(r.pool, r.priority),
      since = clock_timestamp(),
      started_at = case when r.attempt <= 1 and not r.id = any (%(begun)s::uuid[])
                      and not exists (select from suimon.steps s where s.run_id = r.id)
                      and not exists (select from suimon.fanouts f where f.parent_id = r.id) then null else r.started_at end
  from d
  where (select count(*) from held) >= 0 and r.id = d.id and r.status between 'running' and 'running'
    and r.worker_id + 0 = %(worker)s and r.claim_no = d.claim_no
  returning r.id::text, r.pool
)
select id, pool from back;

-- Held back with its reason: until a worker that has the code takes it back, or until somebody resumes its pipeline. The
-- pauses are locked, so that a resume that is seen by nobody here comes after this and finds these rows; whose pause is
-- gone by now stays in the queue. Who stands in the paused pipeline's own lane needs no reason: the lane admits nobody,
-- and keeps the order. Who had begun and lacks its code keeps its place in its lane (started_at stays, and admission counts
-- it): nobody overtakes a run that is half done. One that has not begun steps aside, for those whose code is there.
-- name: hold_back
with d as materialized (
  select u.*, case when u.reason like 'paused:%%' then substr(u.reason, 8) end as what
  from unnest(%(ids)s::uuid[], %(claims)s::int[], %(reasons)s::text[]) as u(id, claim_no, reason)
),
still as materialized (
  select p.what from suimon.pauses p where p.what = any (array(select distinct d.what from d where d.what is not null))
  order by p.what for key share
),
held as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status between 'running' and 'running' and r.worker_id + 0 = %(worker)s
  order by r.id for no key update
),
back as (
  update suimon.runs r
  set status = 'queued', worker_id = null, attempt = greatest(r.attempt - 1, 0), since = clock_timestamp(),
      started_at = case when r.attempt <= 1 and not r.id = any (%(begun)s::uuid[])
                      and not exists (select from suimon.steps s where s.run_id = r.id)
                      and not exists (select from suimon.fanouts f where f.parent_id = r.id) then null else r.started_at end,
      admitted = d.what is not null and still.what is null,
      reason = case when d.what is null then d.reason
                    when still.what is null or r.lane = d.what or starts_with(r.lane, d.what || ':')
                      or starts_with(r.lane, d.what || '/') then null
                    else d.reason end
  from d left join still on still.what = d.what
  where (select count(*) from held) >= 0 and r.id = d.id and r.status between 'running' and 'running'
    and r.worker_id + 0 = %(worker)s and r.claim_no = d.claim_no
  returning r.id, r.lane, r.lane_rank, r.admitted
)
update suimon.lanes l set floor = least(l.floor, b.lane_rank)
from (select lane, min(lane_rank) as lane_rank from back where lane is not null and not admitted group by lane) b
where l.name = b.lane;

-- What was held back for want of code that a worker has, oldest first.
-- name: held_back
select r.id::text, r.lane from suimon.runs r
where r.pool = %(pool)s and r.status = 'queued' and not r.admitted and r.reason = any (%(reasons)s::text[])
  and not exists (select from suimon.pauses p where p.what = 'pool:' || %(pool)s)
order by r.id
limit coalesce((select least(%(n)s, greatest(c.cap - suimon.held_in(c.name), 0)) from suimon.pool_caps c
                where c.name = %(pool)s and c.cap is not null), %(n)s);

-- These are not held back any more. Who kept its place in a lane is in at once; another one stands in it again, where
-- admission finds it at its old place.
-- name: readmit
with v as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status = 'queued' and not r.admitted and r.reason = any (%(reasons)s::text[])
  order by r.id for no key update skip locked
),
back as (
  update suimon.runs r
  set reason = null, admitted = r.lane is null or r.started_at is not null, since = clock_timestamp(),
      rank = suimon.head_of(r.pool, r.priority)
  from v where r.id = v.id
  returning r.id, r.lane, r.lane_rank
)
-- its old place may lie before the lane's floor
update suimon.lanes l set floor = least(l.floor, b.lane_rank)
from (select lane, min(lane_rank) as lane_rank from back where lane is not null group by lane) b where l.name = b.lane;

-- name: claim_these
with room as materialized (
  select exists (select from suimon.pauses) as paused,
         (select greatest(c.cap - suimon.held_in(c.name), 0) from suimon.pool_caps c
          where c.name = %(pool)s and c.cap is not null) as n
),
picked as materialized (
  select r.id, r.started_at is null as fresh from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status = 'queued' and r.admitted
  order by r.id limit (select n from room) for no key update skip locked
),
got as (
  update suimon.runs r
  set status = 'running', claim_no = r.claim_no + 1, attempt = r.attempt + 1, worker_id = %(worker)s,
      started_at = clock_timestamp()
  from picked where r.id = picked.id
  returning r.*, picked.fresh
)
select id::text, claim_no, attempt, interruptions, graph_id, vertex, pipeline, fanout_id, item_key, lane, priority, rank,
       alone, cancel_requested, root_id::text, input::text, extract(epoch from deadline_at - clock_timestamp())::float8,
       case when fresh and vertex is null and (select paused from room)
            then (select p.what from suimon.pauses p where p.what = 'pipeline:' || got.pipeline) end as paused, not fresh as begun
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
