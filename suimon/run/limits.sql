-- What bounds a pipeline, read and changed live. An edit is remembered: a later deploy does not take it back.

-- name: current
select p.lane_limit, p.max_queued, p.pause_after, p.lane_per, p.edited_at from suimon.pipelines p where p.name = %(pipeline)s;

-- name: lock
select p.lane_limit, p.max_queued, p.pause_after from suimon.pipelines p where p.name = %(pipeline)s for no key update;

-- name: change
update suimon.pipelines p
set lane_limit = %(concurrency)s, max_queued = %(max_queued)s, pause_after = %(pause_after)s, edited_at = clock_timestamp()
where p.name = %(pipeline)s
returning p.lane_per;

-- The last fan-out of a run's spawner that is not settled, with its lane.
-- name: spawn_lane
select f.vertex, f.lane, l.lane_limit, f.state from suimon.fanouts f left join suimon.lanes l on l.name = f.lane
where f.parent_id = %(run)s and f.vertex = %(vertex)s order by f.generation desc limit 1;

-- name: lock_lane
select l.lane_limit from suimon.lanes l where l.name = %(lane)s for no key update;

-- name: change_lane
update suimon.lanes l set lane_limit = %(concurrency)s, edited_at = clock_timestamp() where l.name = %(lane)s;

-- name: spawners
select distinct f.vertex from suimon.fanouts f where f.parent_id = %(run)s order by 1 limit 100;

-- The pipeline's own lane, and with `per` the lane of each value.
-- name: change_lanes
update suimon.lanes l set lane_limit = %(concurrency)s, edited_at = clock_timestamp()
where l.name = %(lane)s or (%(per)s and starts_with(l.name, %(lane)s || ':'))
returning l.name;
