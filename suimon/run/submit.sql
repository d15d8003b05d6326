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
with asked as materialized (
  select a.*
  from unnest(%(ids)s::uuid[], %(key_hashes)s::bytea[], %(input_hashes)s::bytea[], %(keys)s::text[], %(inputs)s::text[])
       with ordinality as a(id, key_hash, input_hash, key, input, place)
),
-- the constraint that makes one key one run; who loses the race inserts nothing and looks the winner up
keyed as (
  insert into suimon.idempotency_keys (pipeline, key_hash, run_id, input_hash)
  select %(pipeline)s, a.key_hash, a.id, a.input_hash from asked a where a.key_hash is not null order by a.key_hash
  on conflict do nothing
  returning run_id
),
target as materialized (
  select p.*, suimon.head_of(p.pool, p.priority) as head,
         -- the pipeline's own word, else the strictest of its tasks
         suimon.seconds_of(g.body ->> 'deadline') as deadline_s,
         coalesce((g.body ->> 'maxInterruptions')::smallint,
                  (select min((v.value -> 'config' ->> 'maxInterruptions')::smallint)
                   from json_each(g.body -> 'vertices') v where v.value ->> 'type' = 'TASK'), 3) as max_interruptions
  from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id
  where p.name = %(pipeline)s
),
-- a flood of single runs queues behind itself
flow as materialized (
  select greatest(t.head, coalesce((
    select r.rank from suimon.runs r
    where r.pipeline = %(pipeline)s and r.status = 'queued' and r.admitted and r.parent_id is null and r.rank >= t.head
    order by r.rank desc limit 1), 0)) as last_rank
  from target t
),
-- a limited pipeline has its lane; with `per` there is one for each value (a missing value makes no run)
laned as materialized (
  select a.*, case when t.lane_limit is null then null
                   when t.lane_per is null then 'pipeline:' || %(pipeline)s
                   else 'pipeline:' || %(pipeline)s || ':' || left(a.input::jsonb #>> string_to_array(t.lane_per, '.'), 200)
              end as lane
  from asked a cross join target t
),
born as (
  insert into suimon.runs (id, root_id, rank, lane_rank, graph_id, lane_limit, priority, max_interruptions, admitted,
                           holds_lane, deadline_at, pipeline, pool, lane, idempotency_key, input)
  select a.id, a.id, flow.last_rank + a.place, case when t.lane_limit is not null then nextval('suimon.lane_rank') end,
         t.graph_id, t.lane_limit, t.priority, t.max_interruptions, t.lane_limit is null,
         t.holds_lane, clock_timestamp() + make_interval(secs => t.deadline_s),
         %(pipeline)s, t.pool, a.lane, a.key,
         case when octet_length(a.input) <= 8192 then a.input::jsonb end
  from laned a cross join target t cross join flow
  where (a.key_hash is null or a.id in (select run_id from keyed)) and (a.lane is not null or t.lane_limit is null)
  order by a.place
  returning id, pool, lane, lane_rank, lane_limit
),
large as (
  insert into suimon.payloads (run_id, name, body)
  select a.id, 'input', a.input from asked a join born b on b.id = a.id where octet_length(a.input) > 8192
)
select id, pool, lane, lane_rank, lane_limit from born;

-- name: existing
select k.key_hash, k.run_id, k.input_hash, r.status, r.id is null as pruned
from suimon.idempotency_keys k
left join suimon.runs r on r.id = k.run_id
where k.pipeline = %(pipeline)s and k.key_hash = any (%(key_hashes)s::bytea[]);

-- name: in_the_way
select id, status from suimon.runs
where pipeline = %(pipeline)s and parent_id is null and status in ('queued', 'running', 'waiting')
  and (%(lane)s::text is null or lane = %(lane)s)
order by id limit 1;

-- name: keep_payload
insert into suimon.payloads (run_id, name, body)
select * from unnest(%(run_ids)s::uuid[], %(names)s::text[], %(bodies)s::text[])
on conflict (run_id, name) do update set body = excluded.body;
