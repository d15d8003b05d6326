-- What operators did: who, what, to what, when and why. Rows are written with the act and outlive what they name.

-- name: note
insert into suimon.audit (actor, action, target, detail)
select %(actor)s, %(action)s, t, %(detail)s::jsonb from unnest(%(targets)s::text[]) as t;

-- Newest first; at most 1,000 a page.
-- name: listed
select a.id, a.at, a.actor, a.action, a.target, a.detail
from suimon.audit a
where (%(target)s::text is null or a.target = %(target)s) and (%(actor)s::text is null or a.actor = %(actor)s)
  and (%(action)s::text is null or a.action = %(action)s) and (%(before)s::bigint is null or a.id < %(before)s)
order by a.id desc limit least(%(n)s::int, 1000);
