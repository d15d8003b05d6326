-- Admission: who behind a lane may be claimed. One idempotent act, run after a submit's commit and at finish,
-- cancel, rescue, retry, limit change and by the sweep. Lock the lane rows in a statement of their own; count the
-- live runs and admit in the next: in one statement the count would be older than the lock.

-- name: make_rows
insert into suimon.lanes (name, lane_limit, root_id)
select * from unnest(%(names)s::text[], %(limits)s::int[], %(roots)s::uuid[]) as u(name, lane_limit, root_id) order by name
on conflict (name) do nothing;

-- name: lock
select name from suimon.lanes where name = any (%(lanes)s::text[]) order by name for no key update;

-- name: lock_flows
select f.root_id from suimon.flows f
where f.root_id in (select l.root_id from suimon.lanes l where l.name = any (%(lanes)s::text[]))
order by f.root_id for no key update;

-- Admits at most 1,000 runs a lane and call. The floor is the lane_rank of the last admission less a margin of
-- 1,000 for submitters that took their number early and commit late; whoever is later still lowers the floor. The lanes
-- of a paused pipeline (pipeline:NAME, with :VALUE or /ANCESTOR behind it) admit nobody. Who had begun and is held back for
-- want of code counts as one that is in (claim.sql, hold_back).
-- name: admit
with room as materialized (
  select l.name, l.lane_limit, l.floor, l.last_rank, l.root_id, l.held_by,
         case when l.name like 'pipeline:%%' and exists (
                select from suimon.pauses p where p.what = 'pipeline:' || split_part(split_part(l.name, ':', 2), '/', 1)) then 0
              else least(1000, coalesce(l.lane_limit - (
                select count(*) from suimon.runs r
                where r.lane = l.name and (r.admitted or (r.reason like 'no_code:%%' and r.started_at is not null))
                  and r.status in ('queued', 'running', 'waiting')), 1000)) end as free
  from suimon.lanes l
  where l.name = any (%(lanes)s::text[])
),
next as materialized (
  select c.id, c.lane_rank, c.pool, c.priority, room.name as lane, room.lane_limit,
         row_number() over (partition by coalesce(room.root_id::text, room.name) order by room.name, c.lane_rank) as place
  from room cross join lateral (
    select r.id, r.lane_rank, r.pool, r.priority
    from suimon.runs r
    where r.lane = room.name and r.status = 'queued' and not r.admitted and r.reason is null
      and r.lane_rank >= room.floor - 1000
    order by r.lane_rank
    limit case when room.held_by is null then greatest(room.free, 0) else 0 end
    for no key update skip locked) c
),
-- behind a failed run that keeps its lane closed nobody is let in but that run itself; `between` keeps the index of
-- all that wait in the lane out of the plan
held as materialized (
  select c.id, c.lane_rank, c.pool, c.priority, room.name as lane, room.lane_limit, 1::bigint as place
  from room cross join lateral (
    select r.id, r.lane_rank, r.pool, r.priority
    from suimon.runs r
    where r.id = room.held_by and r.status between 'queued' and 'queued' and not r.admitted and r.reason is null
    limit greatest(room.free, 0)
    for no key update skip locked) c
),
heads as materialized (
  select d.pool, d.priority, suimon.head_of(d.pool, d.priority) as head
  from (select pool, priority from next union select pool, priority from held) d
),
-- each lane is a flow of its own, a spawn's lane is part of its root's flow
ranked as materialized (
  select n.id, n.lane, n.lane_limit, n.lane_rank, n.pool, room.root_id,
         greatest(h.head, room.last_rank, coalesce(f.last_rank, 0)) + n.place as rank
  from (select * from next union all select * from held) n
  join room on room.name = n.lane
  join heads h on h.pool = n.pool and h.priority = n.priority
  left join suimon.flows f on f.root_id = room.root_id
),
-- joined by id alone: the row is locked above, and any other predicate tempts the planner into a partial index
admitted as (
  update suimon.runs r set admitted = true, lane_limit = k.lane_limit, rank = k.rank
  from ranked k where r.id = k.id
  returning r.pool
),
moved as (
  update suimon.lanes l set floor = g.floor, last_rank = g.last_rank
  from (select lane, max(lane_rank) as floor, max(rank) as last_rank from ranked group by lane) g
  where l.name = g.lane
),
flowed as (
  update suimon.flows f set last_rank = greatest(f.last_rank, g.last_rank)
  from (select root_id, max(rank) as last_rank from ranked where root_id is not null group by root_id) g
  where f.root_id = g.root_id
)
select pool, count(*) as admitted from admitted group by pool;

-- Lanes with runs waiting behind them, from the index alone: one probe per lane, at most 500 lanes a page; and whether
-- somebody may be let in.
-- name: waiting_lanes
with recursive lane(name) as (
  (select r.lane from suimon.runs r
   where r.status = 'queued' and not r.admitted and r.reason is null and r.lane > %(after)s order by r.lane limit 1)
  union all
  select (select r.lane from suimon.runs r
          where r.status = 'queued' and not r.admitted and r.reason is null and r.lane > lane.name order by r.lane limit 1)
  from lane where lane.name is not null
)
select lane.name, coalesce((select p.lane_limit from suimon.runs p
       where p.lane = lane.name and p.status = 'queued' and not p.admitted and p.reason is null limit 1), 1) as lane_limit,
       coalesce((select l.lane_limit is null or l.lane_limit > (select count(*) from (
                   select from suimon.runs r
                   where r.lane = l.name and (r.admitted or (r.reason like 'no_code:%%' and r.started_at is not null))
                     and r.status in ('queued', 'running', 'waiting') limit l.lane_limit) live)
                 from suimon.lanes l where l.name = lane.name), true) as has_room
from lane where lane.name is not null limit 500;

-- The limit that those who wait in a lane were born with; no row: nobody waits.
-- name: limit_of
select r.lane_limit from suimon.runs r
where r.lane = %(lane)s and r.status = 'queued' and not r.admitted and r.reason is null order by r.lane_rank limit 1;

-- Who took its number early and committed late, and the sweep, look again from there. The lanes are locked.
-- name: lower
update suimon.lanes l set floor = u.rank
from unnest(%(names)s::text[], %(ranks)s::bigint[]) as u(name, rank)
where l.name = u.name and l.floor > u.rank;

-- name: set_limit
update suimon.lanes set lane_limit = %(lane_limit)s, edited_at = clock_timestamp() where name = %(lane)s returning name;
