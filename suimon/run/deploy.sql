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
insert into suimon.pipelines as p (name, graph_id, pool, lane_limit, priority, lane_per, holds_lane)
select %(pipeline)s, g.id, %(pool)s, %(lane_limit)s, %(priority)s, %(lane_per)s, %(holds_lane)s
from suimon.graphs g where g.pipeline = %(pipeline)s and g.hash = %(hash)s
on conflict (name) do update
set graph_id = excluded.graph_id, deployed_at = clock_timestamp(), priority = excluded.priority, lane_per = excluded.lane_per,
    holds_lane = excluded.holds_lane,
    pool = case when p.edited_at is null then excluded.pool else p.pool end,
    lane_limit = case when p.edited_at is null then excluded.lane_limit else p.lane_limit end;

-- name: make_lane
insert into suimon.lanes as l (name, lane_limit) values (%(lane)s, %(lane_limit)s)
on conflict (name) do update
set lane_limit = case when l.edited_at is null then excluded.lane_limit else l.lane_limit end;

-- name: set_lanes_per
update suimon.lanes set lane_limit = %(lane_limit)s where starts_with(name, %(lane)s || ':') and edited_at is null returning name;

-- name: lane_exists
select true from suimon.lanes where name = %(lane)s;
