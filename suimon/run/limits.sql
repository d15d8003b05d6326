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

-- The pipeline's own lane, and with `per` the lane of each value.
-- name: change_lanes
update suimon.lanes l set lane_limit = %(concurrency)s, edited_at = clock_timestamp()
where l.name = %(lane)s or (%(per)s and starts_with(l.name, %(lane)s || ':'))
returning l.name;
