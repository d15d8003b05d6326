-- Many runs at once, chosen by a filter. Pages by id, so that a page never meets a run twice.

-- Runs that nobody spawned, of one pipeline or of all, in the order of their ids.
-- name: roots
select found.id::text, found.status::text, found.pipeline
from suimon.pipelines p
cross join lateral (
  select r.id, r.status, r.pipeline from suimon.runs r
  where r.pipeline = p.name and r.parent_id is null and r.id > %(after)s::uuid
    and (%(statuses)s::suimon.run_status[] is null or r.status = any (%(statuses)s::suimon.run_status[]))
    and (%(since)s::timestamptz is null or r.created_at >= %(since)s::timestamptz)
    and (%(until)s::timestamptz is null or r.created_at < %(until)s::timestamptz)
    and (%(error)s::text is null or r.error ->> 'type' = %(error)s::text)
  order by r.id limit 1000) found
where %(pipeline)s::text is null or p.name = %(pipeline)s
order by found.id limit 1000;

-- Children of one run, from the ranges of its fan-outs; lists that were replaced are left out.
-- name: children
select found.id::text, found.status::text, found.pipeline
from suimon.fanouts f
cross join lateral (
  select r.id, r.status, r.pipeline from suimon.runs r
  where r.id >= suimon.child_id(f.base, 0) and r.id <= suimon.child_id(f.base, 2147483647) and r.id > %(after)s::uuid
    and (%(statuses)s::suimon.run_status[] is null or r.status = any (%(statuses)s::suimon.run_status[]))
    and (%(since)s::timestamptz is null or r.created_at >= %(since)s::timestamptz)
    and (%(until)s::timestamptz is null or r.created_at < %(until)s::timestamptz)
    and (%(error)s::text is null or r.error ->> 'type' = %(error)s::text)
  order by r.id limit 1000) found
where f.parent_id = %(parent)s::uuid and f.generation = 1 and (%(vertex)s::text is null or f.vertex = %(vertex)s)
order by found.id limit 1000;

-- Those that failed because of their children: alone they would only fail again.
-- name: failed_by_children
select distinct r.id::text from suimon.runs r join suimon.fanouts f on f.parent_id = r.id
where r.id = any (%(ids)s::uuid[]) and f.generation = 1 and f.verdict = 'failed' and r.status <> 'cancelled';

-- name: now
select clock_timestamp();
