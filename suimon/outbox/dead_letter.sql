-- Deliveries as people see and move them. Edges: dead → waiting (requeue), dead → discarded, discarded → dead (restore,
-- seven days). A delivery that was delivered or refused is processed again as a new one. Every statement names the
-- state it expects, so two people at once do no harm.

-- name: listed
select d.id::text, d.state, t.pipeline, t.name as trigger, d.source, d.arrived_at, d.ended_at, d.tries, d.run_id::text,
       d.duplicate, d.code, d.why
from suimon.deliveries d left join suimon.triggers t on t.id = d.trigger_id
where (cardinality(%(states)s::text[]) = 0 or d.state = any (%(states)s::text[]))
  and (%(pipeline)s::text is null or t.pipeline = %(pipeline)s) and (%(trigger)s::text is null or t.name = %(trigger)s)
  and (%(since_s)s::float8 is null or d.id >= suimon.first_id(clock_timestamp() - make_interval(secs => %(since_s)s)))
  and (%(before)s::uuid is null or d.id < %(before)s::uuid)
order by d.id desc limit least(%(n)s::int, 1000);

-- name: by_prefix
select d.id::text from suimon.deliveries d where d.id >= %(low)s::uuid and d.id <= %(high)s::uuid order by d.id limit 11;

-- (a call that was answered at once leaves its input with its run)
-- name: one
select d.id::text, d.state, t.pipeline, t.name as trigger, d.trigger_id, d.source, d.key, d.arrived_at, d.ended_at, d.tries,
       d.run_id::text, d.duplicate, d.code, d.why,
       case when d.state <> 'delivered' then d.input::text
            else coalesce(i.input::text, case when o.sha256 is null then nullif(d.input::text, '{}') end) end as input, d.detail,
       case when d.state = 'delivered' then coalesce(o.sha256, p.sha256) else p.sha256 end as content
from suimon.deliveries d
left join suimon.triggers t on t.id = d.trigger_id
left join suimon.payloads p on p.run_id = d.id and p.name = 'delivery'
left join suimon.runs i on i.id = d.run_id
left join suimon.payloads o on o.run_id = d.run_id and o.name = 'input'
where d.id = %(id)s;

-- The dead ones that are meant, oldest arrival first, after the last page.
-- name: dead
select d.id::text, d.seq, t.pipeline, d.code, d.why
from suimon.deliveries d left join suimon.triggers t on t.id = d.trigger_id
where d.state = %(state)s and d.seq > %(after)s and (%(code)s::text is null or d.code = %(code)s)
  and (%(pipeline)s::text is null or t.pipeline = %(pipeline)s)
order by d.seq limit %(n)s;

-- Before its deliveries, as whoever delivers has it: no deadlock.
-- name: lock_triggers
select t.id from suimon.triggers t
where t.id in (select d.trigger_id from suimon.deliveries d where d.id = any (%(ids)s::uuid[])) order by t.id for no key update;

-- To the place where it arrived: behind what is older, before what came later. Tried at once.
-- name: requeue
with back as (
  update suimon.deliveries d
  set state = 'waiting', ended_at = null, tries = 0, code = null, why = null
  where d.id = any (%(ids)s::uuid[]) and d.state = 'dead'
  returning d.id, d.trigger_id
),
now as (
  update suimon.triggers t set retry_at = null
  where t.id in (select trigger_id from back) and t.retry_at is not null
)
select b.id::text from back b;

-- name: set_input
update suimon.deliveries d set input = case when octet_length(%(input)s) <= 8192 then %(input)s::jsonb end
where d.id = %(id)s and d.state = 'dead' returning d.id;

-- name: drop_payload
delete from suimon.payloads p where p.run_id = %(id)s and p.name = 'delivery';

-- name: discard
update suimon.deliveries d set state = 'discarded', ended_at = clock_timestamp()
where d.id = any (%(ids)s::uuid[]) and d.state = 'dead' returning d.id::text;

-- name: restore
update suimon.deliveries d set state = 'dead', ended_at = clock_timestamp()
where d.id = any (%(ids)s::uuid[]) and d.state = 'discarded' returning d.id::text;

-- A new delivery with a new key: the same thing once more, on purpose.
-- name: again
insert into suimon.deliveries (id, trigger_id, state, source, input, detail)
values (%(new)s, %(trigger)s, 'waiting', %(source)s, case when octet_length(%(input)s) <= 8192 then %(input)s::jsonb end,
        jsonb_build_object('again_of', %(id)s::text));

-- name: tell_keepers
select pg_notify('suimon_doors', 'deliveries');
