-- Retention: runs that nobody needs any more go, root by root. The root is marked first (from then on a retry is
-- refused), then everything below it goes from the leaves up, in batches. At every moment the same holds: no run goes
-- while a fan-out names it as its parent, and no fan-out goes while a child of its range exists. So a crash between any
-- two statements leaves a marked root from which all that is left can be reached.

-- What the pipelines say about their finished runs; current graphs only.
-- name: policies
select p.name, suimon.seconds_of(g.body #>> '{keep,age}') as age_s, (g.body #>> '{keep,count}')::int as kept
from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id
where g.body -> 'keep' is not null and (%(pipeline)s::text is null or p.name = %(pipeline)s)
order by p.name;

-- name: without_policy
select p.name from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id
where g.body -> 'keep' is null order by p.name limit 1000;

-- The first id that is too young to be judged by its age: ids sort by their time of birth, and nobody ends before it.
-- name: id_at
select (lpad(to_hex((extract(epoch from clock_timestamp() - make_interval(secs => %(age_s)s)) * 1000)::bigint), 12, '0')
        || '00000000000000000000')::uuid::text as id;

-- The newest of those that are one too many: `kept` terminal roots are newer.
-- name: beyond
select r.id::text from suimon.runs r
where r.pipeline = %(pipeline)s and r.parent_id is null and r.status in ('succeeded', 'failed', 'timed_out', 'cancelled')
order by r.id desc offset %(kept)s limit 1;

-- A page of roots that may go, oldest first: it walks at most 1,000 rows of the index, and says where it stopped.
-- name: page
with walked as materialized (
  select r.id, r.status, r.finished_at, r.reason, r.lane from suimon.runs r
  where r.pipeline = %(pipeline)s and r.parent_id is null and r.id > %(after)s::uuid and r.id <= %(last)s::uuid
  order by r.id limit 1000
)
select w.id::text,
       w.finished_at is not null and w.reason is distinct from 'pruning'
       and (%(age_s)s::float8 is null or w.finished_at < clock_timestamp() - make_interval(secs => %(age_s)s))
       and not exists (select from suimon.lanes l where l.name = w.lane and l.held_by = w.id) as goes
from walked w order by w.id;

-- Terminal, not holding its lane, and nobody is re-opening something below it: a retry holds its roots with a key share
-- lock, which `for update` respects, and looks for the mark after it has the lock.
-- name: mark
with chosen as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.parent_id is null and r.finished_at is not null and r.reason is distinct from 'pruning'
  order by r.id for update skip locked
)
update suimon.runs r set reason = 'pruning' from chosen c where r.id = c.id returning r.id::text;

-- name: marked
select r.id::text from suimon.runs r where r.reason = 'pruning' and r.id > %(after)s::uuid order by r.id limit 100;

-- Fan-outs of every run of an id range: children of one fan-out are one range.
-- name: fanouts_between
select f.id, f.parent_id::text, f.base::text, f.vertex from suimon.fanouts f
where f.parent_id >= %(low)s::uuid and f.parent_id <= %(high)s::uuid and (f.parent_id, f.id) > (%(after_parent)s::uuid, %(after)s)
order by f.parent_id, f.id limit 100;

-- The next children that have ended and have nothing below them any more.
-- name: next_ended
select r.id::text from suimon.runs r
where r.id > %(after)s::uuid and r.id <= %(high)s::uuid and r.finished_at is not null
  and not exists (select from suimon.fanouts f where f.parent_id = r.id)
order by r.id limit 500;

-- name: first_ended
select r.id::text from suimon.runs r
where r.id >= %(low)s::uuid and r.id <= %(high)s::uuid and r.finished_at is not null
  and not exists (select from suimon.fanouts f where f.parent_id = r.id)
order by r.id limit 500;

-- The large things, a bounded number at a time: artifacts of 1 MiB a part, payloads of up to 16 MiB, log text.
-- name: drop_artifacts
delete from suimon.artifacts a where a.ctid = any (array(
  select x.ctid from suimon.artifacts x where x.run_id = any (%(ids)s::uuid[]) limit 200));

-- name: drop_payloads
delete from suimon.payloads p where p.ctid = any (array(
  select x.ctid from suimon.payloads x where x.run_id = any (%(ids)s::uuid[]) limit 500));

-- name: drop_logs
delete from suimon.logs l where l.ctid = any (array(
  select x.ctid from suimon.logs x where x.run_id = any (%(ids)s::uuid[]) limit 2000));

-- name: drop_checkpoints
delete from suimon.checkpoints c where c.ctid = any (array(
  select x.ctid from suimon.checkpoints x where x.run_id = any (%(ids)s::uuid[]) limit 500));

-- What is small goes with the runs themselves, in one statement; a run that has something below it again stays.
-- name: drop_runs
with gone as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.finished_at is not null
    and not exists (select from suimon.fanouts f where f.parent_id = r.id)
  order by r.id for update
),
steps as (delete from suimon.steps x using gone where x.run_id = gone.id),
tries as (delete from suimon.attempts x using gone where x.run_id = gone.id),
signals as (delete from suimon.signals x using gone where x.run_id = gone.id),
approvals as (delete from suimon.approvals x using gone where x.run_id = gone.id),
progress as (delete from suimon.progress x using gone where x.run_id = gone.id),
flows as (delete from suimon.flows x using gone where x.root_id = gone.id)
delete from suimon.runs r using gone where r.id = gone.id;

-- A fan-out goes when its range is empty, with its lane.
-- name: drop_fanout
with gone as (
  delete from suimon.fanouts f
  where f.id = %(fanout)s
    and not exists (select from suimon.runs r where r.id >= suimon.child_id(f.base, 0) and r.id <= suimon.child_id(f.base, 2147483647))
  returning f.lane
),
lanes as (delete from suimon.lanes l using gone where l.name = gone.lane and l.name like 'spawn:%%')
select count(*) from gone;

-- There is more to do than one turn of the duty may: the next turn comes soon.
-- name: again_soon
update suimon.duties set next_at = clock_timestamp() + interval '10 seconds' where name = 'prune' and next_at > clock_timestamp();

-- What would go: roots of one pipeline and, from their tallies, the children directly below them.
-- name: children_of
select coalesce(sum(f.succeeded + f.failed + f.timed_out + f.cancelled), 0)::bigint
from suimon.fanouts f where f.parent_id = any (%(ids)s::uuid[]);
