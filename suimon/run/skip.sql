-- An operator lets something bad be: the lane that a failed run keeps closed, or a failed child in its merge's arithmetic.
-- States and tallies say what happened and stay as they are.

-- The lanes that these runs keep closed.
-- name: held_lanes
select l.name, l.held_by::text from suimon.lanes l
join suimon.runs r on r.lane = l.name and l.held_by = r.id
where r.id = any (%(runs)s::uuid[]) and r.finished_at is not null
order by l.name;

-- Its lane row is locked by the statement before.
-- name: let_go
update suimon.lanes l set held_by = null where l.name = %(lane)s and l.held_by = %(run)s returning l.name;

-- A child that ended badly, in a fan-out whose list has ended. Its row and its fan-out's are locked, in this order.
-- name: child
select r.id::text, r.status::text, r.reason, f.id, f.vertex, f.state, f.verdict, f.expected, f.parent_id::text
from suimon.runs r left join suimon.fanouts f on f.id = r.fanout_id and f.generation = 1
where r.id = %(run)s;

-- name: mark
update suimon.runs r set reason = 'skipped'
where r.id = %(run)s and r.status in ('failed', 'timed_out', 'cancelled') and r.reason is distinct from 'skipped'
returning r.status::text;

-- name: forgive
update suimon.fanouts f
set skipped = f.skipped + case when %(status)s = any (f.tolerate) then 0 else 1 end,
    allowed = f.allowed + case when %(status)s = any (f.tolerate) then 1 else 0 end
where f.id = %(fanout)s and f.expected is not null
returning f.id;

-- How many bad ends count against the merge: 0 when it would succeed now.
-- name: still_bad
select case when not suimon.is_over(f) then 0
            else greatest(f.failed + f.timed_out + f.cancelled - f.skipped - coalesce(f.allowed, 0), 1) end as bad
from suimon.fanouts f where f.id = %(fanout)s;
