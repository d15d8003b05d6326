-- Waiting deliveries become runs, in the order of seq, under the lock of the trigger's row.

-- Whoever works on this trigger holds its row; another taker goes on to the next trigger. No pause is longer than two
-- minutes: a later time was written by a clock that has been set back since, and is none.
-- name: lock
select t.id, t.pipeline, suimon.pause_of(t.id) as pause,
       case when t.retry_at <= clock_timestamp() + interval '2 minutes'
            then greatest(extract(epoch from t.retry_at - clock_timestamp()), 0)::float8 end as retry_in_s
from suimon.triggers t where t.id = %(trigger)s for no key update of t skip locked;

-- The oldest that wait.
-- name: waiting
select d.id::text, d.key, d.input::text, d.tries, extract(epoch from clock_timestamp() - d.arrived_at)::float8 as age_s,
       p.sha256, c.size
from suimon.deliveries d
left join suimon.payloads p on d.input is null and p.run_id = d.id and p.name = 'delivery'
left join suimon.contents c on c.sha256 = p.sha256
where d.trigger_id = %(trigger)s and d.state = 'waiting' order by d.seq limit %(n)s;

-- name: delivered
with gone as (
  update suimon.deliveries d
  set state = 'delivered', run_id = u.run_id, duplicate = u.duplicate, ended_at = clock_timestamp(), code = null, why = null,
      tries = d.tries + 1
  from unnest(%(ids)s::uuid[], %(runs)s::uuid[], %(duplicates)s::boolean[]) as u(id, run_id, duplicate)
  where d.id = u.id and d.state = 'waiting'
  returning d.id
)
delete from suimon.payloads p using gone where p.run_id = gone.id and p.name = 'delivery';

-- name: dead
update suimon.deliveries d set state = 'dead', ended_at = clock_timestamp(), code = u.code, why = u.why, tries = d.tries + 1
from unnest(%(ids)s::uuid[], %(codes)s::text[], %(whys)s::text[]) as u(id, code, why)
where d.id = u.id and d.state = 'waiting'
returning d.id::text;

-- The oldest could not go: it says why, and is not tried again before.
-- name: hold_up
update suimon.deliveries d set tries = d.tries + %(tried)s, code = %(code)s, why = %(why)s where d.id = %(id)s and d.state = 'waiting';

-- name: retry_at
update suimon.triggers set retry_at = clock_timestamp() + make_interval(secs => %(delay_s)s) where id = %(trigger)s;

-- name: go_on
update suimon.triggers set retry_at = null where id = %(trigger)s and retry_at is not null;

-- Triggers with deliveries that may be tried now, at most 1,000 a round, and when the next one may. Those that nothing has
-- kept waiting come first: a thousand that wait for their full pipelines do not stand before them round after round.
-- name: due
select t.id from suimon.triggers t
where exists (select from suimon.deliveries d where d.trigger_id = t.id and d.state = 'waiting')
  and (t.retry_at is null or t.retry_at not between clock_timestamp() and clock_timestamp() + interval '2 minutes')
order by t.retry_at nulls first, t.id limit 1000;

-- (no row where nothing waits: greatest would make a zero of it, and a loop of that)
-- name: next_in
select greatest(extract(epoch from min(t.retry_at) - clock_timestamp()), 0)::float8 as in_s from suimon.triggers t
where t.retry_at is not null and exists (select from suimon.deliveries d where d.trigger_id = t.id and d.state = 'waiting')
having min(t.retry_at) is not null;
