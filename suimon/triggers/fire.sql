-- What arrived becomes a run. Deliveries of one trigger go in the order of seq, under the lock of the trigger's row.

-- name: live
select t.id, t.pipeline, t.name, t.kind, t.spec, t.note from suimon.triggers t
where t.retired_at is null and t.kind = any (%(kinds)s::text[]) order by t.id;

-- name: by_id
select t.id, t.pipeline, t.name, t.kind, t.spec, t.note from suimon.triggers t where t.id = %(trigger)s;

-- A key that waits, was delivered, is dead or discarded passes by; so does one whose run outlived its delivery.
-- name: arrive
with arrived as materialized (
  select a.* from unnest(%(ids)s::uuid[], %(keys)s::text[], %(sources)s::text[], %(inputs)s::text[], %(details)s::text[],
                        %(contents)s::bytea[])
       with ordinality as a(id, key, source, input, detail, sha256, place)
  where a.key is null or not exists (
    select from suimon.idempotency_keys k where k.pipeline = %(pipeline)s and k.key_hash = sha256(convert_to(a.key, 'UTF8')))
),
stored as (
  insert into suimon.deliveries (id, trigger_id, state, key, source, input, detail)
  select a.id, %(trigger)s, 'waiting', a.key, a.source, case when octet_length(a.input) <= 8192 then a.input::jsonb end, a.detail::jsonb
  from arrived a order by a.place
  on conflict (trigger_id, key) where key is not null and state in ('waiting', 'delivered', 'dead', 'discarded') do nothing
  returning id
),
large as (
  insert into suimon.payloads (run_id, name, sha256)
  select a.id, 'delivery', coalesce(a.sha256, suimon.keep_text(a.input))
  from arrived a join stored s on s.id = a.id where octet_length(a.input) > 8192
)
select id::text from stored;

-- name: tell_keepers
select pg_notify('suimon_doors', 'deliveries');

-- As many as may wait for one trigger do.
-- name: many_waiting
select true from suimon.deliveries d where d.trigger_id = %(trigger)s and d.state = 'waiting'
order by d.seq offset %(most)s - 1 limit 1;

-- name: any_waiting
select true from suimon.deliveries d where d.trigger_id = %(trigger)s and d.state = 'waiting' limit 1;

-- A call that is answered at once: its delivery and its run in one transaction.
-- name: store_one
insert into suimon.deliveries (id, trigger_id, state, ended_at, run_id, duplicate, key, source, code, why, input, detail)
select %(id)s, %(trigger)s, %(state)s, case when %(state)s <> 'waiting' then clock_timestamp() end, %(run)s, %(duplicate)s,
       %(key)s, %(source)s, %(code)s, %(why)s, case when octet_length(%(input)s) <= 8192 then %(input)s::jsonb end, %(detail)s::jsonb
on conflict (trigger_id, key) where key is not null and state in ('waiting', 'delivered', 'dead', 'discarded') do nothing
returning id::text;

-- name: by_key
select d.id::text, d.run_id::text, d.state, d.why, d.input::text, p.sha256 from suimon.deliveries d
left join suimon.payloads p on p.run_id = d.id and p.name = 'delivery'
where d.trigger_id = %(trigger)s and d.key = %(key)s and d.state in ('waiting', 'delivered', 'dead', 'discarded');

-- name: pause_of
select suimon.pause_of(%(trigger)s) as pause;

-- Age of the oldest run that waits, for Retry-After.
-- name: oldest_queued
select extract(epoch from clock_timestamp() - min(q.created_at))::float8 as age_s from (
  select r.created_at from suimon.runs r
  where r.pipeline = %(pipeline)s and r.status = 'queued' and r.parent_id is null limit 1000) q;
