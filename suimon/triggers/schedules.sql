-- The schedules as they stand.

-- Those of one pipeline or of all, with what stands in their way.
-- name: schedules
select t.id, t.pipeline, t.name, t.spec, t.created_at, t.cursor_at, t.era, t.note, suimon.pause_of(t.id) as paused,
       clock_timestamp() as now
from suimon.triggers t
where t.retired_at is null and t.kind in ('CRON', 'EVERY') and (%(pipeline)s::text is null or t.pipeline = %(pipeline)s)
order by t.pipeline, t.name limit 1000;

-- name: schedule
select t.pipeline, t.spec, t.created_at, t.cursor_at, t.era, clock_timestamp() as now
from suimon.triggers t where t.id = %(trigger)s and t.retired_at is null and t.kind in ('CRON', 'EVERY');
