-- → queued. Submit takes no lock: a caller's open transaction must not hold a lane. A run with a lane is born
-- un-admitted; admission (lane.sql) follows after the commit. Order in a transaction: submit, wake.

-- name: target
select p.graph_id, p.pool, p.lane_limit, p.priority, g.body::text as graph, p.lane_per, p.holds_lane
from suimon.pipelines p
join suimon.graphs g on g.id = p.graph_id
where p.name = %(pipeline)s;

-- name: names
select name from suimon.pipelines order by name limit 1000;

-- name: submit
select id::text, pool, lane, lane_rank, lane_limit
from suimon.new_runs(%(pipeline)s, %(ids)s::uuid[], %(keys)s::text[], %(inputs)s::text[], %(asking)s::int,
                     %(labels)s::text[], %(contents)s::bytea[]);

-- name: lock_quotas
select suimon.quota_lock(suimon.quotas_of(p.name, suimon.labels_of(p.labels, %(labels)s::text[])))
from suimon.pipelines p where p.name = %(pipeline)s and exists (select from suimon.quotas);

-- Whose key has its run already, and whether that was asked with the same input.
-- name: existing
select a.place, k.run_id, k.input_hash = suimon.print_of(a.input) as same_input, r.status
from unnest(%(keys)s::text[], %(inputs)s::text[]) with ordinality as a(key, input, place)
join suimon.idempotency_keys k on k.pipeline = %(pipeline)s and k.key_hash = sha256(convert_to(a.key, 'UTF8'))
left join suimon.runs r on r.id = k.run_id;

-- max_queued and how many wait; counted up to one more than may.
-- name: room
select p.max_queued, suimon.queued_of(p.name, p.max_queued + 1) as queued from suimon.pipelines p where p.name = %(pipeline)s;

-- name: labels_of
select r.labels from suimon.runs r where r.id = %(run)s;

-- As many as the limit lets live; the oldest of them, when there are so many.
-- name: in_the_way
with bound as (
  select greatest(coalesce(p.lane_limit, 1), 1) as n from suimon.pipelines p where p.name = %(pipeline)s
),
met as (
  select r.id, r.status from suimon.runs r
  where r.pipeline = %(pipeline)s and r.parent_id is null and r.status in ('queued', 'running', 'waiting')
    and (%(lane)s::text is null or r.lane = %(lane)s)
  order by r.id limit (select n from bound)
)
select m.id, m.status from met m where (select count(*) from met) >= (select n from bound) order by m.id limit 1;
