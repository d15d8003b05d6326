-- Lists, a page at a time: children of a fan-out, log text, runs, pipelines. Nothing here writes.

-- name: children
select r.id::text, r.position, r.item_key, r.status::text, suimon.reason_of(r) as reason, r.attempt,
       nullif(r.duration_us, 0) as duration_us, r.started_at, r.finished_at, r.error::text,
       r.input::text as input, case when r.status = 'succeeded' then r.output::text end as output,
       i.sha256 as input_content, ic.size as input_bytes, o.sha256 as output_content, oc.size as output_bytes
from suimon.runs r
left join suimon.payloads i on r.input is null and i.run_id = r.id and i.name = 'input'
left join suimon.contents ic on ic.sha256 = i.sha256
left join suimon.payloads o on r.output is null and r.status = 'succeeded' and o.run_id = r.id and o.name = 'output'
left join suimon.contents oc on oc.sha256 = o.sha256
where r.id between suimon.child_id(%(base)s, %(first)s) and suimon.child_id(%(base)s, %(last)s)
order by r.id limit %(n)s;

-- Of one fan-out's window of 100,000 positions, those in the given states.
-- name: positions_by_status
select r.position from suimon.runs r
where r.id between suimon.child_id(%(base)s, %(first)s) and suimon.child_id(%(base)s, %(last)s)
  and r.status = any (%(statuses)s::suimon.run_status[])
order by r.id limit %(n)s;

-- The same for the bad ends alone, from their partial index, over any distance.
-- name: bad_positions
select r.position from suimon.runs r
where r.fanout_id = %(fanout)s and r.status in ('failed', 'timed_out', 'cancelled') and r.position >= %(first)s
  and r.status = any (%(statuses)s::suimon.run_status[])
order by r.position limit %(n)s;

-- name: children_at
select r.id::text, r.position, r.item_key, r.status::text, suimon.reason_of(r) as reason, r.attempt,
       nullif(r.duration_us, 0) as duration_us, r.started_at, r.finished_at, r.error::text,
       r.input::text as input, case when r.status = 'succeeded' then r.output::text end as output,
       i.sha256 as input_content, ic.size as input_bytes, o.sha256 as output_content, oc.size as output_bytes
from unnest(%(positions)s::int[]) as u(position)
join suimon.runs r on r.id = suimon.child_id(%(base)s, u.position)
left join suimon.payloads i on r.input is null and i.run_id = r.id and i.name = 'input'
left join suimon.contents ic on ic.sha256 = i.sha256
left join suimon.payloads o on r.output is null and r.status = 'succeeded' and o.run_id = r.id and o.name = 'output'
left join suimon.contents oc on oc.sha256 = o.sha256
order by r.id;

-- name: logs
select l.claim_no, l.seq, l.stream, l.at, l.body from suimon.logs l
where l.run_id = %(id)s and (l.claim_no, l.seq) > (%(after_claim)s, %(after_seq)s)
order by l.claim_no, l.seq limit %(n)s;

-- Runs that nobody spawned, newest first. Walks per pipeline at most 20,000 of them when states or labels are asked for.
-- name: runs
select r.id::text, r.pipeline, r.status::text, suimon.reason_of(r), r.attempt, r.created_at, r.started_at,
       r.finished_at, r.error->>'message' as error, r.idempotency_key, r.labels
from suimon.pipelines p
cross join lateral (
  select w.id from (
    select n.id, n.status, n.labels from suimon.runs n
    where n.pipeline = p.name and n.parent_id is null and n.id < %(before)s::uuid
    order by n.id desc
    limit case when %(statuses)s::text[] is null and %(labels)s::text[] is null then %(n)s::int else 20000 end) w
  where (%(statuses)s::text[] is null or w.status::text = any (%(statuses)s::text[]))
    and (%(labels)s::text[] is null or w.labels @> %(labels)s::text[])
  order by w.id desc limit %(n)s::int) found
join suimon.runs r on r.id = found.id
where %(pipeline)s::text is null or p.name = %(pipeline)s
order by r.id desc limit %(n)s::int;

-- name: pipelines
select p.name, p.pool, p.lane_limit, p.priority, p.deployed_at, g.hash,
       (select r.status::text from suimon.runs r where r.pipeline = p.name and r.parent_id is null
        order by r.id desc limit 1) as last_status,
       (select r.created_at from suimon.runs r where r.pipeline = p.name and r.parent_id is null
        order by r.id desc limit 1) as last_at
from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id
where p.name > %(after)s
order by p.name limit %(n)s;

-- name: pipeline
select p.name, p.pool, p.lane_limit, p.max_queued, p.pause_after, p.priority, p.deployed_at, p.edited_at,
       p.pool_edited_at, g.hash, g.body::text as graph,
       (select count(*) from suimon.graphs v where v.pipeline = p.name) as versions
from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id where p.name = %(name)s;
