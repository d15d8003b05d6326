-- Pools as people see them, and how many runs of one may be claimed at once.

-- Pools that somebody serves, caps or pauses, that a pipeline uses or a vertex of a current graph names. At most 1,000.
-- name: names
select p.name from suimon.pools p
union select c.name from suimon.pool_caps c where c.cap is not null
union select w.pool from suimon.workers w where not w.dead
union select substr(s.what, 6) from suimon.pauses s where starts_with(s.what, 'pool:')
union select p.pool from suimon.pipelines p
union select v.value #>> '{config,pool}' from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id
  cross join json_each(g.body -> 'vertices') v where v.value #>> '{config,pool}' is not null
order by 1 limit 1000;

-- Ready runs are counted up to 10,000; pipelines are named up to 50. Who beats within three intervals is alive.
-- name: listed
select n.name, c.cap, coalesce(c.version, 0) as version, c.edited_at, suimon.held_in(n.name) as held,
       (select count(*) from (select from suimon.runs r
                              where r.pool = n.name and r.status = 'queued' and r.admitted limit 10001) q) as ready,
       w.workers, w.slots,
       (select s.by from suimon.pauses s where s.what = 'pool:' || n.name) as paused_by,
       array(select p.name from suimon.pipelines p where p.pool = n.name order by p.name limit 50) as pipelines
from unnest(%(names)s::text[]) as n(name)
left join suimon.pool_caps c on c.name = n.name
cross join lateral (
  select count(*) as workers, coalesce(sum(w.slots), 0)::int as slots from suimon.workers w
  where w.pool = n.name and not w.dead and not w.draining
    and clock_timestamp() - w.beat_at <= make_interval(secs => 3 * w.beat_ms / 1000.0)) w
order by n.name;

-- A first cap waits for the claims under way, which have read that there is none and hold this table until they commit;
-- those that come after see it. Not for ever: a backup holds the table too, and claims queue behind whoever waits.
-- name: patience
select set_config('lock_timeout', %(ms)s::text || 'ms', true);

-- name: lock_all
lock table suimon.pool_caps in access exclusive mode;

-- name: make
insert into suimon.pool_caps (name, cap, version) values (%(name)s, null, 0) on conflict (name) do nothing;

-- name: lock
select c.cap, c.version from suimon.pool_caps c where c.name = %(name)s for no key update;

-- name: change
update suimon.pool_caps c set cap = %(cap)s, version = c.version + 1, edited_at = clock_timestamp() where c.name = %(name)s;

-- The workers of the pool learn of the cap; those that wait for room claim.
-- name: tell
select pg_notify('suimon_limits', 'pool ' || %(name)s::text);

-- name: cap
select c.cap, suimon.held_in(c.name) as held from suimon.pool_caps c where c.name = %(name)s and c.cap is not null;
