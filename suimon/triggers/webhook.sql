-- Calls from outside: whose address it is, what was stored of earlier ones, and the log of those that were refused.

-- name: find
select t.id, t.pipeline, t.name, t.kind, t.spec, t.note from suimon.triggers t
where t.slug = %(slug)s and t.retired_at is null and t.kind = 'WEBHOOK';

-- The body that first came with this key; null: its delivery is gone.
-- name: first_body
select d.detail ->> 'body_sha256' as body_sha256 from suimon.deliveries d
where d.trigger_id = %(trigger)s and d.key = %(key)s and d.state in ('waiting', 'delivered', 'dead', 'discarded');

-- Rows of calls that made no run: refused ones, and repetitions of one that did.
-- name: log
insert into suimon.deliveries (id, trigger_id, state, ended_at, run_id, duplicate, source, code, why, detail)
select n.id, n.trigger_id, n.state, clock_timestamp(), n.run_id, n.state = 'delivered', n.source, n.code, n.why, n.detail::jsonb
from unnest(%(ids)s::uuid[], %(triggers)s::bigint[], %(states)s::text[], %(runs)s::uuid[], %(sources)s::text[], %(codes)s::text[],
            %(whys)s::text[], %(details)s::text[]) as n(id, trigger_id, state, run_id, source, code, why, detail);

-- In one order for everybody: no deadlocks.
-- name: count
insert into suimon.refusals as r (trigger_id, code, count)
select n.trigger_id, n.code, n.count
from unnest(%(triggers)s::bigint[], %(codes)s::text[], %(counts)s::bigint[]) as n(trigger_id, code, count)
order by n.trigger_id, n.code
on conflict (trigger_id, code) do update set count = r.count + excluded.count;

-- Only the newest refused ones are kept; %(n)s rows go at most.
-- name: trim
delete from suimon.deliveries d where d.id in (
  select o.id from suimon.deliveries o
  where o.state = 'refused' and o.id < (
    select k.id from suimon.deliveries k where k.state = 'refused' order by k.id desc offset %(keep)s::int - 1 limit 1)
  order by o.id limit %(n)s);

-- And only the newest of those keep the body they brought.
-- name: drop_bodies
update suimon.deliveries d set detail = d.detail - 'body' where d.id in (
  select o.id from suimon.deliveries o
  where o.state = 'refused' and o.detail ? 'body' and o.id < (
    select k.id from suimon.deliveries k where k.state = 'refused' order by k.id desc offset %(keep)s::int - 1 limit 1)
  order by o.id desc limit %(n)s);

-- A refused call; a row that stands for many has no body.
-- name: refused
select d.trigger_id, d.detail from suimon.deliveries d
where d.id = %(id)s and d.state = 'refused' and d.trigger_id is not null and d.detail ? 'headers';

-- name: by_key
select d.id::text from suimon.deliveries d
where d.trigger_id = %(trigger)s and d.key = %(key)s and d.state in ('waiting', 'delivered', 'dead', 'discarded');
