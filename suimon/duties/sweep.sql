-- The one slow safety sweep. The rows of duties are the clock and their lock is the election: two takers for a moment
-- do no harm, because each duty is idempotent. One statement takes what is due and says where there is work, so that
-- an idle engine sends this statement and nothing else.

-- (what was kept long enough is asked of the oldest row, so that an index answers; who can measure the free disk brings
-- it along, and it is written when it is 25 seconds old or moved by more than a hundredth)
-- name: take
with measured as (
  update suimon.store s set disk_free = %(disk_free)s::bigint, disk_total = %(disk_total)s::bigint, disk_at = clock_timestamp()
  where %(disk_free)s::bigint is not null
    and (s.disk_at is null or s.disk_at < clock_timestamp() - interval '25 seconds'
         or abs(s.disk_free - %(disk_free)s::bigint) * 100 > s.disk_free)
),
due as materialized (
  select d.name from suimon.duties d where d.next_at <= clock_timestamp() order by d.name for update skip locked
),
taken as (
  update suimon.duties d
  set next_at = clock_timestamp() + make_interval(secs => d.every_ms / 1000.0), last_worker = %(worker)s, last_at = clock_timestamp()
  from due where d.name = due.name
  returning d.name
)
select t.name,
       case t.name
         when 'timers' then exists (select from suimon.runs r where r.status = 'waiting' and r.wake_at <= clock_timestamp())
         when 'rescue' then exists (select from suimon.runs r left join suimon.workers w on w.id = r.worker_id
                                    where r.status = 'running' and (w.id is null or w.dead))
         when 'lanes' then exists (select from suimon.runs r where r.status = 'queued' and not r.admitted and r.reason is null)
         when 'cancels' then exists (select from suimon.runs r where r.cancel_requested and r.status in ('queued', 'running', 'waiting'))
                          or exists (select from suimon.fanouts f where f.cancelling
                                     and (f.expected is null or f.succeeded + f.failed + f.timed_out + f.cancelled < f.expected))
         when 'deadlines' then exists (select from suimon.runs r where r.deadline_at <= clock_timestamp()
                                       and r.status in ('queued', 'running', 'waiting'))
         when 'repair' then exists (select from suimon.fanouts f where f.state = 'open')
         when 'flows' then exists (select from suimon.flows)
         when 'prune' then exists (select from suimon.runs r where r.reason = 'pruning')
                        or exists (select from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id
                                   where g.body -> 'keep' is not null)
                        or coalesce((select d.ended_at from suimon.deliveries d where d.state in ('refused', 'discarded')
                                     order by d.ended_at limit 1) < clock_timestamp() - interval '7 days', false)
                        or coalesce(suimon.first_id(clock_timestamp() - interval '30 days') > any (array[
                             (select d.id from suimon.deliveries d where d.state not in ('waiting', 'dead') order by d.id limit 1),
                             (select e.id from suimon.events e order by e.id limit 1),
                             (select n.id from suimon.notices n where n.state <> 'waiting' order by n.id limit 1)]), false)
         when 'notices' then exists (select from suimon.channels c where c.enabled)
         when 'wakes' then exists (select from suimon.workers w where w.idle and not w.dead and not w.draining
                                   and exists (select from suimon.runs r where r.pool = w.pool and r.status = 'queued' and r.admitted))
         when 'doors' then exists (select from suimon.triggers t where t.next_at <= clock_timestamp() and t.retired_at is null)
                        or exists (select from suimon.deliveries d where d.state = 'waiting')
         when 'quotas' then exists (select from suimon.quota_holds)
                         or exists (select from suimon.runs r where r.status = 'waiting' and coalesce(r.reason, '') <> ''
                                    and r.reason >= 'quota:' and r.reason < 'quota;')
         when 'contents' then coalesce((select c.touched_at from suimon.contents c where c.refs = 0 order by c.touched_at limit 1)
                                       < clock_timestamp() - interval '1 hour', false)
         when 'storage' then exists (select from suimon.store s where s.watch)
                          or exists (select from suimon.steps x join suimon.runs r on r.id = x.run_id
                                     where x.status = 'deferred' and r.finished_at is null)
         when 'pools' then exists (select from suimon.pipelines p where p.moving_from <> '{}')
         when 'pauses' then exists (select from suimon.pauses_due(null)) or exists (select from suimon.pauses_over())
       end as work
from taken t;

-- Pools with an idle worker and a run for it.
-- name: slept_over
select distinct w.pool from suimon.workers w
where w.idle and not w.dead and not w.draining
  and exists (select from suimon.runs r where r.pool = w.pool and r.status = 'queued' and r.admitted);

-- Open fan-outs, oldest first, at most 100 a sweep: those whose count may be wrong are recounted.
-- name: open_fanouts
select f.id, f.base::text, f.parent_id::text, f.expected, f.succeeded + f.failed + f.timed_out + f.cancelled as ended,
       suimon.is_complete(f) as complete
from suimon.fanouts f where f.state = 'open' and f.id > %(after)s order by f.id limit 100;

-- Compared in one snapshot, without a lock: a finish changes child and tally in one transaction.
-- name: looks_wrong
select f.id from suimon.fanouts f
cross join lateral (
  select count(*) filter (where r.status = 'succeeded') as succeeded, count(*) filter (where r.status = 'failed') as failed,
         count(*) filter (where r.status = 'timed_out') as timed_out, count(*) filter (where r.status = 'cancelled') as cancelled
  from suimon.runs r
  where r.id >= suimon.child_id(f.base, 0) and r.id <= suimon.child_id(f.base, 2147483647)) c
where f.id = %(fanout)s
  and (f.succeeded, f.failed, f.timed_out, f.cancelled) is distinct from (c.succeeded, c.failed, c.timed_out, c.cancelled);

-- name: count_children
select count(*) filter (where r.status = 'succeeded') as succeeded, count(*) filter (where r.status = 'failed') as failed,
       count(*) filter (where r.status = 'timed_out') as timed_out, count(*) filter (where r.status = 'cancelled') as cancelled
from suimon.runs r
where r.id >= suimon.child_id(%(base)s, 0) and r.id <= suimon.child_id(%(base)s, 2147483647);

-- name: lock_fanout
select f.succeeded, f.failed, f.timed_out, f.cancelled from suimon.fanouts f where f.id = %(fanout)s for no key update;

-- name: correct
update suimon.fanouts set succeeded = %(succeeded)s, failed = %(failed)s, timed_out = %(timed_out)s, cancelled = %(cancelled)s
where id = %(fanout)s;

-- Parents that wait for children although all their fan-outs have ended: nothing should be able to cause it. Those
-- that were asked to stop end in a transaction after their last child's, and are the cancels' duty.
-- name: stranded_parents
select f.id from suimon.runs p join suimon.fanouts f on f.parent_id = p.id
where p.status = 'waiting' and p.reason = 'children' and not p.cancel_requested and f.state = 'settled' and suimon.is_complete(f)
  and not exists (select from suimon.fanouts o where o.parent_id = p.id and (o.state = 'open' or not suimon.is_complete(o)))
order by f.id limit 200;

-- name: drop_flows
delete from suimon.flows f
where f.root_id in (
  select g.root_id from suimon.flows g left join suimon.runs r on r.id = g.root_id
  where r.id is null or (r.finished_at is not null and r.finished_at < clock_timestamp() - interval '1 minute')
    and not exists (select from suimon.fanouts o where o.root_id = g.root_id and o.state = 'open')
  limit 1000);

-- A spawn's lane ends with its fan-out; a retry makes it again.
-- name: drop_spawn_lanes
delete from suimon.lanes l
where l.name in (
  select f.lane from suimon.fanouts f
  where f.lane is not null and f.state = 'settled' and f.settled_at < clock_timestamp() - interval '1 minute'
    and suimon.is_complete(f) and f.lane like 'spawn:%%'
  order by f.id desc limit 1000);
