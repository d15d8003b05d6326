-- Events, told in the caller's transaction by suimon.emit (schema.sql), which any language can call.

-- name: emit
select suimon.emit(%(type)s, %(payload)s::jsonb, %(key)s)::text as id;

-- name: listeners
select t.pipeline, t.name from suimon.triggers t
where t.kind = 'EVENT' and t.retired_at is null and suimon.event_fits(t.spec ->> 'event', %(type)s)
order by t.pipeline, t.name limit 1000;

-- Those of runs that end here, before their end: their rows are locked by the statement before, so who is still
-- running under this claim now is the one whose end is recorded in this very transaction.
-- name: of_runs
select suimon.tell_event(e.type, e.payload::jsonb, e.key, r.id)
from unnest(%(ids)s::uuid[], %(claims)s::int[], %(types)s::text[], %(payloads)s::text[], %(keys)s::text[])
     with ordinality as e(id, claim_no, type, payload, key, place)
join suimon.runs r on r.id = e.id
where r.status between 'running' and 'running' and r.worker_id + 0 = %(worker)s and r.claim_no = e.claim_no
order by e.place;
