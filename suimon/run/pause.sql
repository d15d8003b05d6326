-- What stands still, and what goes on again. A row of suimon.pauses is the pause; whoever claims, admits or delivers
-- looks at it. Resuming deletes the row first, durably, and then lets in what was held back, in batches.

-- What a name may mean.
-- name: pipeline
select true from suimon.pipelines where name = %(name)s;

-- name: pipelines
select name from suimon.pipelines order by name limit 1000;

-- (one that is in no graph any more may have deliveries that wait, and a pause that only a name can lift)
-- name: triggers
select t.id, t.pipeline, t.name from suimon.triggers t
where (t.retired_at is null or exists (select from suimon.pauses p where p.what = 'trigger:' || t.id)
       or exists (select from suimon.deliveries d where d.trigger_id = t.id and d.state = 'waiting'))
  and (t.name = %(name)s or t.id::text = %(name)s or t.pipeline || '/' || t.name = %(name)s)
order by t.id limit 20;

-- name: trigger_names
select t.name from suimon.triggers t where t.retired_at is null order by t.name limit 1000;

-- Pools that somebody serves, that a pipeline uses, or a vertex of a current graph; and those that are paused.
-- name: pools
select p.name from suimon.pools p
union select substr(p.what, 6) from suimon.pauses p where starts_with(p.what, 'pool:')
union select p.pool from suimon.pipelines p
union select v.value #>> '{config,pool}' from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id
  cross join json_each(g.body -> 'vertices') v where v.value #>> '{config,pool}' is not null
order by 1 limit 1000;

-- name: destinations
select d.name from suimon.destinations d order by d.name limit 1000;

-- By hand. A pause that the engine made becomes somebody's word: a good end does not lift it any more.
-- name: pause
insert into suimon.pauses as p (what, by, why) values (%(what)s, %(by)s, %(why)s)
on conflict (what) do update set automatic = false, by = excluded.by, why = excluded.why, at = clock_timestamp()
where p.automatic
returning p.what;

-- By the engine; the failures are counted again under the lock of the pipeline's row.
-- name: lock_pipeline
select true from suimon.pipelines where name = %(pipeline)s for no key update;

-- name: due
select d.pipeline, d.bad::text[] as bad, d.healed from suimon.pauses_due(%(pipeline)s) d order by d.pipeline;

-- The same for one trigger's pipeline, and for those with a schedule that has come.
-- name: due_of_trigger
select d.pipeline from suimon.triggers t cross join lateral suimon.pauses_due(t.pipeline) d where t.id = %(trigger)s;

-- name: due_of_schedules
select d.pipeline from (
  select distinct t.pipeline from suimon.triggers t
  where t.next_at <= clock_timestamp() and t.retired_at is null limit 1000) t
cross join lateral suimon.pauses_due(t.pipeline) d;

-- name: pause_by_itself
insert into suimon.pauses (what, automatic, by, why, runs)
values ('triggers:' || %(pipeline)s, true, 'suimon', %(why)s, %(runs)s::uuid[])
on conflict (what) do nothing returning what;

-- What the failures were, oldest first, and which of them no trigger started.
-- name: failures
select r.id::text, r.status::text, left(coalesce(r.error ->> 'type', ''), 100) as type,
       left(coalesce(r.error ->> 'message', ''), 200) as message,
       not exists (select from suimon.deliveries d where d.run_id = r.id and d.state = 'delivered' and not d.duplicate) as by_hand
from suimon.runs r where r.id = any (%(runs)s::uuid[]) order by r.finished_at, r.id;

-- name: resume
delete from suimon.pauses where what = any (%(whats)s::text[]) returning what;

-- name: resume_healed
delete from suimon.pauses where what = 'triggers:' || %(pipeline)s and automatic returning what;

-- Bad ends until then are forgiven; null: until now.
-- name: forgive
update suimon.pipelines set failures_since = greatest(failures_since, coalesce(%(until)s::timestamptz, clock_timestamp()))
where name = %(pipeline)s;

-- Deliveries may go on, and are tried at once. Who holds a trigger's row may just have met the pause and be writing a time
-- to wait for: it is waited for, so there is no condition on that time here.
-- name: try_deliveries
with held as materialized (
  select t.id from suimon.triggers t
  where case when split_part(%(what)s, ':', 1) = 'trigger' then t.id::text = substr(%(what)s, 9)
             else t.pipeline = substr(%(what)s, 1 + strpos(%(what)s, ':')) end
  order by t.id for no key update
)
update suimon.triggers t set retry_at = null from held h where t.id = h.id;

-- name: tell_doors
select pg_notify('suimon_doors', 'deliveries');

-- Whoever keeps a destination's limits looks again.
-- name: tell_limits
select pg_notify('suimon_limits', %(name)s);

-- name: listed
select p.what, p.automatic, p.by, p.why, p.runs::text[] as runs, p.at, t.pipeline, t.name
from suimon.pauses p
left join suimon.triggers t on p.what like 'trigger:%%' and t.id::text = substr(p.what, 9)
where %(what)s::text is null or p.what = %(what)s
order by p.at, p.what limit 1000;

-- What was held back by a pause that is over, by pool; all of it, or one pause's.
-- name: over
select o.pool, o.reason from suimon.pauses_over() o where %(reason)s::text is null or o.reason = %(reason)s;

-- The next of them in the order they had, at most 1,000; none if it is paused again.
-- name: held
select r.id::text, r.lane from suimon.runs r
where r.pool = %(pool)s and r.reason = %(reason)s and r.status = 'queued' and not r.admitted
  and not exists (select from suimon.pauses p where p.what = substr(%(reason)s, 8))
order by r.rank, r.id limit 1000;

-- Into the queue again in the order they had: single runs behind the last of their pipeline, children at the head. A run
-- with a lane stands in it again, at its old place, which may lie before the lane's floor.
-- name: readmit
with v as materialized (
  select r.id, r.rank, r.pool, r.priority, r.pipeline, r.parent_id is null as single from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status = 'queued' and not r.admitted and r.reason = %(reason)s
  order by r.id for no key update skip locked
),
heads as materialized (
  select d.*, greatest(suimon.head_of(d.pool, d.priority), case when d.single then coalesce((
           select q.rank from suimon.runs q
           where q.pipeline = d.pipeline and q.status = 'queued' and q.admitted and q.parent_id is null
             and q.rank >= suimon.head_of(d.pool, d.priority)
           order by q.rank desc limit 1), 0) else 0 end) as head
  from (select distinct pool, priority, pipeline, single from v) d
),
ranked as materialized (
  select v.id, h.head + row_number() over (partition by v.pool, v.priority, v.single order by v.rank, v.id) as rank
  from v join heads h on h.pool = v.pool and h.priority = v.priority and h.single = v.single
),
back as (
  update suimon.runs r set reason = null, admitted = r.lane is null, rank = k.rank, since = clock_timestamp()
  from ranked k where r.id = k.id
  returning r.id, r.lane, r.lane_rank
),
lowered as (
  update suimon.lanes l set floor = least(l.floor, b.lane_rank)
  from (select lane, min(lane_rank) as lane_rank from back where lane is not null group by lane) b where l.name = b.lane
)
select count(*) from back;

-- The lanes of a pipeline.
-- name: lanes
select l.name from suimon.lanes l
where l.name = %(lane)s or starts_with(l.name, %(lane)s || ':') or starts_with(l.name, %(lane)s || '/')
order by l.name;
