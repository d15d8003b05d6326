-- What the test kit asks the database: databases of its own, and time that has passed. The stored instants of what
-- has not ended are moved back, so that the engine, which reads only the server's clock, finds them due.

-- name: create_database
create database {name} template {template};

-- name: drop_database
drop database if exists {name} with (force);

-- Duties fall due twice a second instead of once a minute.
-- name: quick_duties
update suimon.duties set every_ms = 500, next_at = clock_timestamp();

-- A settled fan-out's grace for stragglers counts from its settle.
-- name: move_fanouts
update suimon.fanouts f set settled_at = f.settled_at - make_interval(secs => %(seconds)s)
from suimon.runs p
where p.id = f.parent_id and p.status in ('queued', 'running', 'waiting') and f.settled_at is not null;

-- name: move_steps
update suimon.steps s set due_at = s.due_at - make_interval(secs => %(seconds)s)
from suimon.runs r
where r.id = s.run_id and r.status in ('queued', 'running', 'waiting') and s.status = 'open' and s.due_at is not null;

-- name: move_approvals
update suimon.approvals a set expires_at = a.expires_at - make_interval(secs => %(seconds)s)
where a.decision is null and a.expires_at is not null;

-- name: move_runs
with live as materialized (
  select r.id from suimon.runs r
  where r.status in ('queued', 'running', 'waiting') and (r.wake_at is not null or r.deadline_at is not null)
  order by r.id for no key update
)
update suimon.runs r
set wake_at = r.wake_at - make_interval(secs => %(seconds)s), deadline_at = r.deadline_at - make_interval(secs => %(seconds)s)
from live where r.id = live.id;

-- The instants of that much time before now become due. They may have had their runs already (the calendar is not
-- moved): another era gives them keys of their own.
-- name: move_schedules
update suimon.triggers t
set cursor_at = coalesce(t.cursor_at, t.created_at) - make_interval(secs => %(seconds)s), era = t.era + 1,
    created_at = t.created_at - make_interval(secs => %(seconds)s), next_at = clock_timestamp()
where t.kind in ('CRON', 'EVERY') and t.retired_at is null;

-- Runs that go on without anybody's help: claimed, or claimable by the kit's worker.
-- name: moving
select count(*) from suimon.runs r
where r.status = 'running' or (r.status = 'queued' and r.admitted and r.pool = %(pool)s)
   or (r.status = 'waiting' and r.wake_at <= clock_timestamp());

-- name: runs_of
select r.id::text from suimon.runs r where r.pipeline = %(pipeline)s and r.parent_id is null order by r.id limit 10000;

-- All runs by state, for the story of a failed test.
-- name: story
select r.pipeline, r.vertex, r.status::text, r.reason, count(*) from suimon.runs r
group by 1, 2, 3, 4 order by 1, 2 nulls first, 3, 4 limit 40;
