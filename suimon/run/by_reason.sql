-- Runs that wait for one reason, newest first, children too. Each source walks at most 20,000 rows, of an index that has
-- only rows like these; of what it found, those whose reason is the one asked for.
-- name: runs
with parked as materialized (
  select r.id from suimon.runs r
  where r.status = 'waiting' and coalesce(r.reason, '') <> '' and r.reason = any (%(reasons)s::text[]) and r.id < %(before)s::uuid
  limit 20000
),
held_back as materialized (
  select r.id from suimon.runs r
  where r.status = 'queued' and not r.admitted and r.reason is not null and r.reason = any (%(reasons)s::text[])
    and r.id < %(before)s::uuid
  limit 20000
),
stopping as materialized (
  select r.id from suimon.runs r
  where 'cancelling' = any (%(reasons)s::text[]) and r.cancel_requested and r.status in ('queued', 'running', 'waiting')
    and r.id < %(before)s::uuid
  order by r.id desc limit 20000
),
standing as materialized (
  select r.id from suimon.runs r
  where %(lanes)s and r.status = 'queued' and not r.admitted and r.reason is null and r.id < %(before)s::uuid
  limit 20000
),
ready as materialized (
  select r.id from unnest(%(pools)s::text[]) as p(name)
  join suimon.runs r on r.pool = p.name and r.status = 'queued' and r.admitted and r.id < %(before)s::uuid
  limit 20000
),
paused as materialized (
  select r.id from unnest(%(pipelines)s::text[]) as p(name)
  join suimon.runs r on r.pipeline = p.name and r.status = 'queued' and r.parent_id is null and r.id < %(before)s::uuid
  limit 20000
),
found as (
  select id from parked union select id from held_back union select id from stopping
  union select id from standing union select id from ready union select id from paused
)
select w.id::text, w.pipeline, w.status::text, w.why, w.attempt, w.created_at, w.started_at, w.finished_at, null as error,
       w.idempotency_key, w.labels
from (select r.*, suimon.reason_of(r) as why from found f join suimon.runs r on r.id = f.id) w
where w.why = any (%(reasons)s::text[]) and (%(pipeline)s::text is null or w.pipeline = %(pipeline)s)
order by w.id desc limit %(n)s;
