-- Which pool a pipeline's runs are for, changed live; those that wait move after it, in batches. An edit names the pools
-- they come from on the pipeline's row, so that whoever comes next goes on where somebody died.

-- declared: what the current graph says.
-- name: lock
select p.pool, coalesce(g.body ->> 'pool', 'default') as declared, p.pool_edited_at is not null as edited
from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id
where p.name = %(pipeline)s for no key update of p;

-- name: look
select p.pool, coalesce(g.body ->> 'pool', 'default') as declared, p.pool_edited_at is not null as edited
from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id where p.name = %(pipeline)s;

-- name: change
update suimon.pipelines p
set pool = %(pool)s, pool_edited_at = case when %(edited)s then clock_timestamp() end,
    moving_from = m.pools, moving_mark = null, moving_since = case when m.pools <> '{}' then clock_timestamp() end
from (select array(select unnest(q.moving_from) union select q.pool except select %(pool)s) as pools
      from suimon.pipelines q where q.name = %(pipeline)s) m
where p.name = %(pipeline)s;

-- name: unfinished
select p.name from suimon.pipelines p where p.moving_from <> '{}' order by p.name limit 1000;

-- name: moving
select p.pool, p.moving_from, p.moving_mark from suimon.pipelines p where p.name = %(pipeline)s and p.moving_from <> '{}';

-- Who had begun before this commits holds a lower number.
-- name: set_mark
update suimon.pipelines p set moving_mark = pg_current_xact_id()::text::bigint
where p.name = %(pipeline)s and p.moving_from <> '{}' and p.moving_mark is null;

-- Whether all that may have read the old pool have ended. Ten seconds, because a statement reads before it has a number.
-- name: safe
select p.moving_mark is not null and pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= p.moving_mark
       and p.moving_since < clock_timestamp() - interval '10 seconds' as safe
from suimon.pipelines p where p.name = %(pipeline)s;

-- name: done
update suimon.pipelines p set moving_from = '{}', moving_mark = null, moving_since = null
where p.name = %(pipeline)s and p.pool = %(pool)s and p.moving_from = %(from)s;

-- What runs or is parked, by id: first of all, since it may be making children. A page walks what all pipelines have.
-- name: held
select r.id::text, r.fanout_id from suimon.runs r
where r.status = 'running' and r.pipeline = %(pipeline)s and r.pool = any (%(from)s::text[]) and r.id > %(after)s::uuid
union all
select r.id::text, r.fanout_id from suimon.runs r
where r.status = 'waiting' and coalesce(r.reason, '') <> '' and r.pipeline = %(pipeline)s and r.pool = any (%(from)s::text[])
  and r.id > %(after)s::uuid
order by 1 limit 1000;

-- What stands in the queue of one old pool, in its order: 10,000 rows are walked, ours and the last of them returned.
-- name: ready
select w.id::text, w.fanout_id, w.priority, w.rank, w.pipeline = %(pipeline)s as ours, w.n from (
  select q.*, row_number() over (order by q.priority, q.rank, q.id) as n, count(*) over () as walked from (
    select r.id, r.fanout_id, r.priority, r.rank, r.pipeline from suimon.runs r
    where r.pool = %(from)s and r.status = 'queued' and r.admitted and r.priority = %(priority)s
      and (r.rank, r.id) > (%(rank)s, %(after)s::uuid)
    order by r.rank, r.id limit 10000) q) w
where w.pipeline = %(pipeline)s or w.n = w.walked
order by w.n;

-- What was held back one by one there: by a pause, or for want of code.
-- name: held_back
select r.id::text, r.fanout_id, r.reason, r.rank from suimon.runs r
where r.pool = %(from)s and r.status = 'queued' and not r.admitted and r.reason is not null
  and (r.reason, r.rank, r.id) > (%(reason)s, %(rank)s, %(after)s::uuid) and r.pipeline = %(pipeline)s
order by r.reason, r.rank, r.id limit 1000;

-- Lanes in which this pipeline's runs stand; from the index one probe a lane, 500 lanes a page.
-- name: lanes
with recursive lane(name) as (
  (select r.lane from suimon.runs r
   where r.status = 'queued' and not r.admitted and r.reason is null and r.lane > %(after)s order by r.lane limit 1)
  union all
  select (select r.lane from suimon.runs r
          where r.status = 'queued' and not r.admitted and r.reason is null and r.lane > lane.name order by r.lane limit 1)
  from lane where lane.name is not null
)
select l.name, coalesce((select f.pipeline from suimon.runs f where f.lane = l.name and f.status = 'queued' and not f.admitted
                         and f.reason is null limit 1) = %(pipeline)s, false) as ours
from (select lane.name from lane where lane.name is not null limit 500) l;

-- name: standing
select r.id::text, r.fanout_id, r.lane_rank from suimon.runs r
where r.lane = %(lane)s and r.status = 'queued' and not r.admitted and r.reason is null and r.lane_rank > %(after)s
order by r.lane_rank limit 1000;

-- name: named_pools
select f.id, suimon.named_pool(f.id) from unnest(%(fanouts)s::bigint[]) as f(id);

-- The last rank in the new pool of what is older than this run: what an earlier call has moved stays before it.
-- name: moved_before
select coalesce(max(w.rank), 0) from (
  select r.rank, r.id, r.pool from suimon.runs r
  where r.pipeline = %(pipeline)s and r.status = 'queued' and r.admitted and r.parent_id is null
  order by r.rank desc limit 10000) w
where w.pool = %(pool)s and w.id < %(id)s::uuid;

-- At most 1,000 of them, in the order of their ids. In the queue: behind `last`, in the order they had. Who is being
-- claimed or ended just now is passed over, and met again if it comes back.
-- name: move
with v as materialized (
  select r.id, r.rank, r.priority, r.status, r.admitted from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.pool = any (%(from)s::text[]) and r.status in ('queued', 'running', 'waiting')
  order by r.id for no key update skip locked
),
heads as materialized (
  select d.priority, greatest(suimon.head_of(%(pool)s, d.priority), %(last)s) as head from (select distinct v.priority from v) d
),
ranked as materialized (
  select v.id, case when v.status = 'queued' and v.admitted
                    then h.head + row_number() over (partition by v.priority, v.status, v.admitted order by v.rank, v.id) end as rank
  from v join heads h on h.priority = v.priority
),
moved as (
  update suimon.runs r set pool = %(pool)s, rank = coalesce(k.rank, r.rank), since = clock_timestamp() from ranked k where r.id = k.id
  returning k.rank
)
select count(*), coalesce(max(m.rank), 0) from moved m;

-- name: workers
select count(*) from suimon.workers w where w.pool = %(pool)s and not w.dead and not w.draining;
