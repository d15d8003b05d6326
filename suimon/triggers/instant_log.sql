-- What became of each instant of a schedule.

-- A run that was there before (its key says so) may have its row already.
-- name: write
insert into suimon.deliveries (id, trigger_id, state, duplicate, ended_at, run_id, key, source, code, why, detail)
select d.id, %(trigger)s, %(state)s, %(duplicate)s, clock_timestamp(), %(run)s::uuid, d.key, d.source, %(code)s, %(why)s,
       d.detail::jsonb
from unnest(%(ids)s::uuid[], %(keys)s::text[], %(sources)s::text[], %(details)s::text[])
     with ordinality as d(id, key, source, detail, place)
order by d.place
on conflict (trigger_id, key) where key is not null and state in ('waiting', 'delivered', 'dead', 'discarded') do nothing;
