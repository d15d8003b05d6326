-- What happened at each vertex of a run with more than one. Written under the fence; the run goes on only after the
-- commit, so a step that is recorded as done is never done again by a rescue.

-- name: record
with d as materialized (
  select *
  from unnest(%(ids)s::uuid[], %(claims)s::int[], %(vertices)s::text[], %(statuses)s::text[], %(durations)s::bigint[],
              string_to_array(%(outputs)s, e'\x1e', ''), string_to_array(%(errors)s, e'\x1e', ''))
       as d(id, claim_no, vertex, status, duration_us, output, error)
),
held as materialized (
  select r.id, r.attempt from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status between 'running' and 'running' and r.worker_id + 0 = %(worker)s
  order by r.id for no key update
),
-- the next step's tries are counted from one, and its interruptions from none
advanced as (
  update suimon.runs r set attempt = 1, interruptions = 0, alone = 0
  from d join held h on h.id = d.id
  where r.id = d.id and r.status between 'running' and 'running' and r.worker_id + 0 = %(worker)s and r.claim_no = d.claim_no
  returning r.id, r.claim_no, d.vertex, d.status, d.duration_us, d.output, d.error, h.attempt
),
kept as (
  insert into suimon.steps (run_id, vertex, status, attempt, claim_no, duration_us, output, error)
  select a.id, a.vertex, a.status, a.attempt, a.claim_no, a.duration_us, a.output::jsonb, a.error::jsonb from advanced a
  on conflict (run_id, vertex) do update
  set status = excluded.status, attempt = excluded.attempt, claim_no = excluded.claim_no, duration_us = excluded.duration_us,
      output = excluded.output, error = excluded.error, ended_at = clock_timestamp()
)
select id::text, vertex from advanced;

-- The large results of steps that were recorded under these very claims.
-- name: refer_outputs
insert into suimon.payloads (run_id, name, sha256)
select s.run_id, 'step:' || s.vertex, d.sha256
from unnest(%(ids)s::uuid[], %(claims)s::int[], %(vertices)s::text[], %(contents)s::bytea[]) as d(id, claim_no, vertex, sha256)
join suimon.steps s on s.run_id = d.id and s.vertex = d.vertex
where s.status = 'succeeded' and s.claim_no = d.claim_no
on conflict (run_id, name) do update set sha256 = excluded.sha256;

-- name: skip
insert into suimon.steps (run_id, vertex, status, attempt, claim_no)
select %(run)s, u.vertex, 'skipped', 0, %(claim_no)s from unnest(%(vertices)s::text[]) as u(vertex)
on conflict (run_id, vertex) do nothing;

-- name: of_runs
select s.run_id::text, s.vertex, s.status, s.output::text, p.sha256, s.error::text
from suimon.steps s
left join suimon.payloads p on s.output is null and s.status = 'succeeded' and p.run_id = s.run_id and p.name = 'step:' || s.vertex
where s.run_id = any (%(ids)s::uuid[]);

-- Under the fence too, and before the finish in the same transaction: who lost the run adds nothing to its log.
-- name: keep_logs
insert into suimon.logs (run_id, claim_no, stream, body)
select d.id, d.claim_no, d.stream, d.body
from unnest(%(ids)s::uuid[], %(claims)s::int[], %(streams)s::text[], %(bodies)s::text[]) with ordinality
     as d(id, claim_no, stream, body, place)
join suimon.runs r on r.id = d.id
where r.status between 'running' and 'running' and r.worker_id + 0 = %(worker)s and r.claim_no = d.claim_no
order by d.place;

-- name: checkpoint
select c.value from suimon.checkpoints c where c.run_id = %(run)s and c.vertex = %(vertex)s and c.name = %(name)s;

-- name: keep_checkpoint
insert into suimon.checkpoints (run_id, vertex, name, value, claim_no)
values (%(run)s, %(vertex)s, %(name)s, %(value)s, %(claim_no)s)
on conflict (run_id, vertex, name) do nothing;

-- name: keep_part
insert into suimon.artifacts as a (run_id, vertex, name, part, sha256, claim_no)
values (%(run)s, %(vertex)s, %(name)s, %(part)s, %(sha256)s, %(claim_no)s)
on conflict (run_id, vertex, name, part) do update set sha256 = excluded.sha256, claim_no = excluded.claim_no;

-- name: drop_parts
delete from suimon.artifacts a
where a.run_id = %(run)s and a.vertex = %(vertex)s and a.name = %(name)s and a.part >= %(part)s;

-- name: keep_progress
insert into suimon.progress as p (run_id, done, total)
select d.id, d.done, d.total
from unnest(%(ids)s::uuid[], %(claims)s::int[], %(dones)s::bigint[], %(totals)s::bigint[]) as d(id, claim_no, done, total)
join suimon.runs r on r.id = d.id
where r.status between 'running' and 'running' and r.worker_id + 0 = %(worker)s and r.claim_no = d.claim_no
on conflict (run_id) do update set done = excluded.done, total = excluded.total, at = clock_timestamp();
