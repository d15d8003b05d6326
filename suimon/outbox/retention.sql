-- What has ended at the doors goes after a while; what waits and dead letters never do. Ids sort by arrival, so the
-- oldest are walked along the primary key, a bounded number at a time.

-- A page of those that arrived so long ago, oldest first; some may have ended only lately, and stay.
-- name: page
select d.id::text, d.state in ('delivered', 'folded', 'missed', 'refused', 'discarded')
       and d.ended_at < clock_timestamp() - make_interval(secs => %(age_s)s) as goes
from suimon.deliveries d
where d.id > %(after)s::uuid and d.id < suimon.first_id(clock_timestamp() - make_interval(secs => %(age_s)s))
order by d.id limit 1000;

-- Refused calls and discarded dead letters go earlier.
-- name: rejected
select d.id::text from suimon.deliveries d
where d.state in ('refused', 'discarded') and d.ended_at < clock_timestamp() - make_interval(secs => %(age_s)s)
order by d.ended_at limit 500;

-- The key of a discarded one stays taken: its file may still lie in the inbox, its sender may send it once more.
-- name: drop_deliveries
with gone as (
  delete from suimon.deliveries d
  where d.id = any (%(ids)s::uuid[]) and d.state in ('delivered', 'folded', 'missed', 'refused', 'discarded')
  returning d.id, d.state, d.trigger_id, d.key, d.input
),
payloads as (delete from suimon.payloads p using gone where p.run_id = gone.id and p.name = 'delivery'),
keys as (
  insert into suimon.idempotency_keys (pipeline, key_hash, run_id, input_hash)
  select t.pipeline, sha256(convert_to(g.key, 'UTF8')), g.id, suimon.print_of(coalesce(g.input::text, '{}'))
  from gone g join suimon.triggers t on t.id = g.trigger_id where g.state = 'discarded' and g.key is not null
  on conflict do nothing
)
select count(*) from gone;

-- name: drop_events
with old as materialized (
  select e.id from suimon.events e where e.id < suimon.first_id(clock_timestamp() - make_interval(secs => %(age_s)s))
  order by e.id limit 500
),
gone as (delete from suimon.events e using old where e.id = old.id returning e.id),
payloads as (delete from suimon.payloads p using gone where p.run_id = gone.id and p.name = 'event')
select count(*) from gone;

-- name: drop_notices
with old as materialized (
  select n.id from suimon.notices n
  where n.id < suimon.first_id(clock_timestamp() - make_interval(secs => %(age_s)s)) and n.state in ('sent', 'dead')
  order by n.id limit 500
),
gone as (delete from suimon.notices n using old where n.id = old.id returning n.id)
select count(*) from gone;
