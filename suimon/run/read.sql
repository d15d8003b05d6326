-- Everything people and programs look at; nothing here writes. Each statement is bounded: by a page, by a window of
-- rows that it walks at most, or by what the workers hold. Counts of a fan-out come from its tally, never from its rows.

-- (A duration of 0 is that of a vertex that was in no slot: a merge, a wait, a run with children. It was not measured.)
-- name: run
select r.id::text, r.root_id::text, r.parent_id::text, r.pipeline, r.pool, r.vertex, r.status::text,
       suimon.reason_of(r) as reason, r.attempt, r.interruptions, r.claim_no, r.priority, r.position, r.item_key,
       r.idempotency_key, r.labels, r.lane, r.cancel_requested, nullif(r.duration_us, 0) as duration_us, r.wake_at,
       r.deadline_at, r.created_at, r.started_at, r.finished_at, r.since, w.name as worker, g.hash as graph_hash, g.body::text as graph,
       r.input::text as input, i.sha256 as input_content,
       case when r.status = 'succeeded' then r.output::text end as output,
       case when r.status = 'succeeded' then o.sha256 end as output_content,
       r.error::text as error
from suimon.runs r
join suimon.graphs g on g.id = r.graph_id
left join suimon.workers w on w.id = r.worker_id
left join suimon.payloads i on r.input is null and i.run_id = r.id and i.name = 'input'
left join suimon.payloads o on r.output is null and o.run_id = r.id and o.name = 'output'
where r.id = %(id)s;

-- name: status
select r.status::text from suimon.runs r where r.id = %(id)s;

-- Of these, who has not ended: what waits for several runs asks once for all of them.
-- name: unfinished
select r.id::text from suimon.runs r where r.id = any (%(ids)s::uuid[]) and r.status in ('queued', 'running', 'waiting');

-- Ids that begin with the digits given: a range of the primary key.
-- name: by_prefix
select id::text from suimon.runs where id between %(low)s::uuid and %(high)s::uuid order by id limit 11;

-- made: children that exist, from the highest id of the range. running: those the workers hold, from their index.
-- name: fanouts
select f.id, f.vertex, f.generation, f.base::text, f.expected, f.succeeded, f.failed, f.timed_out, f.cancelled, f.state,
       f.verdict, f.allowed, f.tolerate, f.cancelling, f.lane, l.lane_limit, f.created_at, f.settled_at,
       coalesce((select r.position + 1 from suimon.runs r
                 where r.id between suimon.child_id(f.base, 0) and suimon.child_id(f.base, 2147483647)
                 order by r.id desc limit 1), 0) as made,
       (select count(*) from suimon.runs r where r.status = 'running' and r.worker_id is not null and r.fanout_id = f.id) as running
from suimon.fanouts f
left join suimon.lanes l on l.name = f.lane
where f.parent_id = %(id)s and f.generation = 1
order by f.id limit 100;

-- name: steps
select s.vertex, s.status, s.attempt, nullif(s.duration_us, 0) as duration_us, s.ended_at, s.error::text,
       s.output::text as output, p.sha256 as output_content, c.size as output_bytes
from suimon.steps s
left join suimon.payloads p on s.output is null and p.run_id = s.run_id and p.name = 'step:' || s.vertex
left join suimon.contents c on c.sha256 = p.sha256
where s.run_id = %(id)s order by s.ended_at, s.vertex limit 500;

-- name: attempts
select a.attempt, a.vertex, a.how, a.worker_name, a.began_at, a.ended_at, a.error::text
from suimon.attempts a where a.run_id = %(id)s order by a.claim_no desc, a.vertex limit 100;

-- The bad ends of a fan-out by kind: numbers, ids and quoted values in the message are blanked, so that "-11 ft" and
-- "-24 ft" are one error. Walks at most 100,000 rows of the partial index runs_ended_badly.
-- name: grouped_errors
with bad as (
  select r.id, r.position, r.item_key, r.status, r.error->>'type' as type, left(r.error->>'message', 500) as message
  from suimon.runs r
  where r.fanout_id = %(fanout)s and r.status in ('failed', 'timed_out', 'cancelled')
  order by r.position limit 100000
),
kind as (
  select b.*, regexp_replace(regexp_replace(regexp_replace(coalesce(b.message, b.status::text),
           '''[^'']*''|"[^"]*"', '"..."', 'g'), '[0-9a-f]{8}-[0-9a-f-]{27}', '#', 'g'),
           '-?[0-9]+([.,][0-9]+)*', '#', 'g') as shape
  from bad b
)
select k.status::text, k.type, k.shape, count(*) as times, min(k.position) as first_position,
       (array_agg(k.message order by k.position))[1] as example, (array_agg(k.item_key order by k.position))[1] as first_key,
       (array_agg(k.id::text order by k.position))[1] as first_run
from kind k group by k.status, k.type, k.shape order by times desc, first_position limit 20;

-- How long the last try of each child took in its slot. Exact up to 50,000 children; of more, every n-th is looked up.
-- name: durations
select percentile_disc(array[0.5, 0.95, 0.99, 1.0]) within group (order by r.duration_us) as us, count(*) as measured
from generate_series(0, %(made)s::int - 1, greatest(1, %(made)s::int / 50000)) as i
join suimon.runs r on r.id = suimon.child_id(%(base)s, i)
where r.duration_us > 0;

-- name: slowest_now
select r.id::text, r.position, r.item_key, r.attempt, r.started_at,
       extract(epoch from clock_timestamp() - r.started_at)::float8 as for_s, w.name as worker
from suimon.runs r left join suimon.workers w on w.id = r.worker_id
where r.status = 'running' and r.worker_id is not null and r.fanout_id = %(fanout)s
order by r.started_at limit 5;

-- name: lane_holders
select r.id::text, r.status::text, suimon.reason_of(r) as reason, r.pipeline, r.created_at from suimon.runs r
where r.lane = %(lane)s and (r.admitted or (r.reason like 'no_code:%%' and r.started_at is not null))
  and r.status in ('queued', 'running', 'waiting')
order by r.lane_rank limit 5;

-- How many stand before it, counted up to 10,000.
-- name: lane_before
select count(*) from (
  select from suimon.runs r
  where r.lane = %(lane)s and r.status = 'queued' and not r.admitted and r.reason is null
    and r.lane_rank < (select m.lane_rank from suimon.runs m where m.id = %(id)s)
  limit 10000) before;

-- What the waiting ones of a fan-out's last 1,000 children wait for, the most frequent first: the first are done first.
-- name: children_wait
select w.why, count(*) from (
  select suimon.reason_of(r) as why from (
    select c.* from suimon.runs c
    where c.id between suimon.child_id(%(base)s, 0) and suimon.child_id(%(base)s, 2147483647)
    order by c.id desc limit 1000) r
  where r.status in ('queued', 'waiting')) w
group by w.why order by 2 desc, 1 limit 5;

-- name: pool_workers
select w.name, w.slots, w.draining, cardinality(w.tasks) as tasks,
       extract(epoch from clock_timestamp() - w.beat_at)::float8 as silent_s, w.beat_ms
from suimon.workers w where w.pool = %(pool)s and not w.dead order by w.id limit 100;

-- When somebody of a pool was last heard; null: it never had a worker.
-- name: pool_silent_since
select max(coalesce(w.left_at, w.beat_at)) from suimon.workers w where w.pool = %(pool)s;

-- What --wait looks at, several times a second: the run and its fan-outs' tallies.
-- name: progress
select r.status::text, suimon.reason_of(r) as reason, f.vertex, f.expected, f.succeeded, f.failed, f.timed_out, f.cancelled, f.state
from suimon.runs r left join suimon.fanouts f on f.parent_id = r.id
where r.id = %(id)s order by f.id desc limit 20;
