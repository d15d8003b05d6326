-- running → waiting on a durable timer, a signal or an approval, and the words that end such a wait.
-- The parked run and whoever ends its wait take the run's row lock first, each in a statement of its own: a signal
-- that comes while the run is being parked waits for the parking, and then finds it.

-- name: fence
select r.root_id::text, r.cancel_requested from suimon.runs r
where r.id = %(run)s and r.status = 'running' and r.worker_id = %(worker)s and r.claim_no = %(claim_no)s
for no key update;

-- The wait begins once; whoever claims the run again finds when it began. in_s is null without an instant: greatest()
-- alone would make a 0 of it, and the run would be woken for nothing, again and again.
-- name: open_step
insert into suimon.steps as s (run_id, vertex, status, attempt, claim_no, due_at)
values (%(run)s, %(vertex)s, 'open', 1, %(claim_no)s,
        coalesce(%(until)s::timestamptz, clock_timestamp() + make_interval(secs => %(after_s)s)))
on conflict (run_id, vertex) do update set vertex = excluded.vertex
returning s.due_at is not null and s.due_at <= clock_timestamp() as due,
          case when s.due_at is not null then greatest(extract(epoch from s.due_at - clock_timestamp()), 0) end::float8 as in_s;

-- name: signal_of
select s.data::text, p.sha256 from suimon.signals s
left join suimon.payloads p on s.data is null and p.run_id = s.run_id and p.name = 'signal:' || s.name
where s.run_id = %(run)s and s.name = %(name)s;

-- Fan-outs whose merge this run has used, and that a retry has opened again meanwhile.
-- name: opened_again
select f.id from suimon.fanouts f where f.id = any (%(merged)s::bigint[]) and f.state = 'open';

-- Nobody edits them until the run is parked. (A use of them waits as well: it is a moment.)
-- name: share_quotas
select q.name from suimon.quotas q where q.name = any (%(quotas)s::text[]) order by q.name for share;

-- running → waiting on everything that was just found to be not over; looked at again here, under the locks of the
-- fan-outs and of the run, because any of it may have ended since. No row: something has, go on.
-- name: park
update suimon.runs r
set status = 'waiting', reason = %(reason)s, worker_id = null, attempt = 0, interruptions = 0, since = clock_timestamp(),
    wake_at = least(clock_timestamp() + make_interval(secs => %(in_s)s::float8),
                    (select min(f.settled_at) from suimon.fanouts f where f.id = any (%(fanouts)s::bigint[]) and f.state = 'settled')
                    + make_interval(secs => %(grace_s)s))
where r.id = %(run)s and r.status = 'running' and r.worker_id = %(worker)s and r.claim_no = %(claim_no)s
  and not exists (select from suimon.fanouts f
                  where f.id = any (%(fanouts)s::bigint[]) and f.state = 'settled'
                    and (f.stragglers = 'finish' or suimon.is_complete(f)
                         or f.settled_at + make_interval(secs => %(grace_s)s) <= clock_timestamp()))
  and not exists (select from suimon.signals s where s.run_id = r.id and s.name = any (%(signals)s::text[]))
  and not exists (select from suimon.approvals a
                  where a.run_id = r.id and a.vertex = any (%(approvals)s::text[]) and a.decision is not null)
  and not exists (select from unnest(%(quotas)s::text[]) as u(name)
                  where coalesce(suimon.quota_left(array[u.name], clock_timestamp()), 1) > 0)
returning extract(epoch from r.wake_at - clock_timestamp())::float8 as in_s;

-- A task asked to be called again later, or waits for its turn at a destination: no failure, and no try is spent.
-- name: park_tries
with d as materialized (
  select * from unnest(%(ids)s::uuid[], %(claims)s::int[], %(delays)s::double precision[], %(reasons)s::text[])
    as d(id, claim_no, delay_s, reason)
),
held as materialized (
  select r.id from suimon.runs r
  where r.id = any (%(ids)s::uuid[]) and r.status between 'running' and 'running' and r.worker_id + 0 = %(worker)s
  order by r.id for no key update
)
update suimon.runs r
set status = 'waiting', reason = d.reason, worker_id = null, attempt = greatest(r.attempt - 1, 0), since = clock_timestamp(),
    wake_at = clock_timestamp() + make_interval(secs => d.delay_s)
from d
where (select count(*) from held) >= 0 and r.id = d.id and r.status between 'running' and 'running'
  and r.worker_id + 0 = %(worker)s and r.claim_no = d.claim_no and not r.cancel_requested
returning r.id::text;

-- name: lock_run
select r.id::text, r.status::text, r.reason, r.pipeline from suimon.runs r where r.id = %(run)s for no key update;

-- name: keep_signal
insert into suimon.signals (run_id, name, data, sent_by) values (%(run)s, %(name)s, %(data)s::jsonb, %(by)s)
on conflict do nothing
returning sent_at;

-- A run may wait for several things: whatever comes wakes it, and it looks at all of them again.
-- name: wake_waiter
update suimon.runs r
set status = 'queued', reason = null, wake_at = null, since = clock_timestamp(), rank = suimon.head_of(r.pool, r.priority)
where r.id = %(run)s and r.status = 'waiting' and r.reason not in ('retry', 'cancelling') and not r.cancel_requested
returning r.pool;
