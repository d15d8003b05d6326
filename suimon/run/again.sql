-- An operator's retry of one step: what it and all steps after it have left behind is forgotten.

-- The fan-outs whose lists will be read again; locked, so that what is seen stays.
-- name: lists
select f.id, f.vertex, suimon.is_complete(f) as complete, f.expected is null as unsealed
from suimon.fanouts f
where f.parent_id = %(run)s and f.generation = 1 and f.vertex = any (%(vertices)s::text[])
order by f.id for no key update;

-- The list that a new one replaces gets a number below 1: it can be looked at, and nothing counts it any more.
-- name: put_aside
update suimon.fanouts f
set generation = (select least(min(o.generation), 0) - 1 from suimon.fanouts o where o.parent_id = f.parent_id and o.vertex = f.vertex),
    state = 'settled', verdict = coalesce(f.verdict, 'failed'), settled_at = coalesce(f.settled_at, clock_timestamp()),
    held_until = null
where f.id = any (%(fanouts)s::bigint[]);

-- Before the steps, which take all questions along: the record keeps what was decided.
-- name: forget_approvals
delete from suimon.approvals a where a.run_id = %(run)s and a.vertex = any (%(vertices)s::text[])
returning a.vertex, a.decision, a.decided_by, a.decided_at;
