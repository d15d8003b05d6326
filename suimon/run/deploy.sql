-- What was written becomes what runs: new graphs are stored and made current, in one transaction.

-- name: keep_graph
insert into suimon.graphs (pipeline, hash, body) values (%(pipeline)s, %(hash)s, %(body)s)
on conflict (pipeline, hash) do nothing;

-- name: current
select p.name, g.hash from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id
where p.name = any (%(names)s::text[]);

-- name: known_graphs
select pipeline, hash from suimon.graphs where pipeline = any (%(names)s::text[]);

-- name: lock_pipelines
select pg_advisory_xact_lock(hashtext('suimon.pipelines'));

-- A changed declaration moves the live values only while nobody has edited them.
-- name: make_current
insert into suimon.pipelines as p (name, graph_id, pool, lane_limit, priority, lane_per, holds_lane, max_queued, pause_after,
                                   needs, labels)
select %(pipeline)s, g.id, %(pool)s, %(lane_limit)s, %(priority)s, %(lane_per)s, %(holds_lane)s, %(max_queued)s, %(pause_after)s,
       %(needs)s, %(labels)s
from suimon.graphs g where g.pipeline = %(pipeline)s and g.hash = %(hash)s
on conflict (name) do update
set graph_id = excluded.graph_id, deployed_at = clock_timestamp(), priority = excluded.priority, lane_per = excluded.lane_per,
    holds_lane = excluded.holds_lane, needs = excluded.needs, labels = excluded.labels,
    pause_after = case when p.edited_at is null then excluded.pause_after else p.pause_after end,
    max_queued = case when p.edited_at is null then excluded.max_queued else p.max_queued end,
    pool = case when p.pool_edited_at is null then excluded.pool else p.pool end,
    lane_limit = case when p.edited_at is null then excluded.lane_limit else p.lane_limit end;

-- name: make_lane
insert into suimon.lanes as l (name, lane_limit) values (%(lane)s, %(lane_limit)s)
on conflict (name) do update
set lane_limit = case when l.edited_at is null then excluded.lane_limit else l.lane_limit end;

-- name: set_lanes_per
update suimon.lanes set lane_limit = %(lane_limit)s where starts_with(name, %(lane)s || ':') and edited_at is null returning name;

-- name: lane_exists
select true from suimon.lanes where name = %(lane)s;

-- An address belongs to one pipeline.
-- name: slugs_taken
select t.slug, t.pipeline from suimon.triggers t
where t.slug = any (%(slugs)s::text[]) and t.retired_at is null and t.pipeline <> %(pipeline)s limit 1;

-- Its deliveries stay, and become runs as before.
-- name: retire_triggers
update suimon.triggers t set retired_at = clock_timestamp(), next_at = null
where t.pipeline = %(pipeline)s and t.retired_at is null and t.name <> all (%(names)s::text[]);

-- One that comes back goes on where it stood. A schedule's next instant is worked out by whoever keeps the doors.
-- name: keep_triggers
insert into suimon.triggers as t (pipeline, name, kind, spec, slug, next_at)
select %(pipeline)s, n.name, n.kind, n.spec::jsonb, n.slug, case when n.kind in ('CRON', 'EVERY') then clock_timestamp() end
from unnest(%(names)s::text[], %(kinds)s::text[], %(specs)s::text[], %(slugs)s::text[]) as n(name, kind, spec, slug)
on conflict (pipeline, name) do update
set spec = excluded.spec, slug = excluded.slug, retired_at = null,
    -- (what passed while it was in no graph was nobody's wish: it is not caught up with)
    cursor_at = case when t.retired_at is not null and t.next_at is null and excluded.next_at is not null
                     then clock_timestamp() else t.cursor_at end,
    next_at = case when t.spec = excluded.spec and t.retired_at is null then t.next_at else excluded.next_at end;

-- name: tell_doors
select pg_notify('suimon_doors', 'triggers');
