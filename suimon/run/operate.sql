-- What an operator does to single runs: a new run of the same input, a held lane let go, another priority.

-- name: original
select r.pipeline, r.status::text, r.parent_id::text, r.graph_id, r.reason = 'pruning' as pruning,
       r.input::text as input, p.sha256 as input_content, r.labels
from suimon.runs r left join suimon.payloads p on r.input is null and p.run_id = r.id and p.name = 'input'
where r.id = %(run)s;

-- In the transaction that made it: nobody has seen the run with the other graph.
-- name: pin
update suimon.runs r
set graph_id = %(graph_id)s,
    deadline_at = clock_timestamp() + make_interval(secs => (select suimon.seconds_of(g.body ->> 'deadline')
                                                            from suimon.graphs g where g.id = %(graph_id)s))
where r.id = %(run)s and r.status = 'queued' and r.claim_no = 0
returning r.id::text;

-- name: alive
select r.status::text, r.priority, r.parent_id::text, r.root_id::text from suimon.runs r where r.id = %(run)s;

-- name: lock_priority
select r.priority from suimon.runs r where r.id = %(run)s for no key update;

-- Unfinished runs of an id range, a page at a time; a child of a fan-out is its own range.
-- name: unfinished
select r.id::text from suimon.runs r
where r.id >= %(low)s::uuid and r.id <= %(high)s::uuid and r.status in ('queued', 'running', 'waiting')
order by r.id limit 1000;

-- name: fanouts_between
select f.id, f.parent_id::text, f.base::text from suimon.fanouts f
where f.parent_id >= %(low)s::uuid and f.parent_id <= %(high)s::uuid and (f.parent_id, f.id) > (%(after_parent)s::uuid, %(after)s)
order by f.parent_id, f.id limit 100;

-- The head of that priority, and one further back for each run: many moved at once stay a flow, in their order, and a
-- single run that comes later does not stand behind all of them. Who is not admitted gets its rank when it is.
-- name: set_priority
with moved as materialized (
  select r.id, row_number() over (order by r.rank, r.id) as place from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status in ('queued', 'running', 'waiting')
),
locked as materialized (
  select r.id, r.pool from suimon.runs r where r.id in (select id from moved) order by r.id for no key update
),
heads as materialized (
  select d.pool, suimon.head_of(d.pool, %(priority)s::smallint) as head from (select distinct pool from locked) d
),
done as (
  update suimon.runs r
  set priority = %(priority)s,
      rank = case when r.status = 'queued' and r.admitted then h.head + %(before)s + m.place - 1 else r.rank end
  from locked k join moved m on m.id = k.id join heads h on h.pool = k.pool
  where r.id = k.id and r.status in ('queued', 'running', 'waiting')
  returning r.id, r.root_id, r.pool, r.status, r.rank, r.admitted
),
flow as (
  update suimon.flows f set last_rank = greatest(f.last_rank, d.rank)
  from (select root_id, max(rank) as rank from done where status = 'queued' and admitted group by root_id) d
  where f.root_id = d.root_id
)
select d.pool, count(*) as moved, count(*) filter (where d.status = 'queued' and d.admitted) as ranked from done d group by d.pool;

-- name: graph_of
select g.body::text from suimon.runs r join suimon.graphs g on g.id = r.graph_id where r.id = %(run)s;
