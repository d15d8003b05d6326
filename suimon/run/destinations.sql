-- Destinations as people see and change them: declared by a deploy, edited live, held and released.

-- What was deployed before and has not changed moves nothing, nor does what somebody has edited.
-- name: declare
insert into suimon.destinations as d (name, rate, per_second, burst, concurrency, base_url, auth, timeout_ms, declared)
values (%(name)s, %(rate)s, %(per_second)s, %(burst)s, %(concurrency)s, %(base_url)s, %(auth)s, %(timeout_ms)s, %(declared)s::jsonb)
on conflict (name) do update
set declared = excluded.declared, deployed_at = clock_timestamp(),
    base_url = excluded.base_url, auth = excluded.auth, timeout_ms = excluded.timeout_ms,
    rate = case when d.edited_at is null then excluded.rate else d.rate end,
    per_second = case when d.edited_at is null then excluded.per_second else d.per_second end,
    burst = case when d.edited_at is null then excluded.burst else d.burst end,
    concurrency = case when d.edited_at is null then excluded.concurrency else d.concurrency end,
    version = d.version + 1
where d.declared is distinct from excluded.declared and not (%(only_new)s)
returning d.xmax = 0 as new;

-- name: tell
select pg_notify('suimon_limits', u.name) from unnest(%(names)s::text[]) as u(name);

-- name: listed
select d.name, d.rate, d.burst, d.concurrency, d.base_url, d.auth, d.timeout_ms, d.declared, d.version, d.edited_at,
       coalesce(d.held_until > clock_timestamp(), false) as held,
       case when d.held_until > clock_timestamp() and isfinite(d.held_until) then d.held_until end as held_until,
       case when d.held_until > clock_timestamp() then d.held_why end as held_why,
       case when d.held_until > clock_timestamp() then d.held_by end as held_by,
       (select p.by from suimon.pauses p where p.what = 'destination:' || d.name) as paused_by,
       (select count(*)::int from suimon.leases l
        where l.destination = d.name and l.run_id is not null and l.expires_at > clock_timestamp()) as at_once,
       (select count(*)::int from (select from suimon.runs r
        where split_part(r.reason, ':', 2) = d.name and r.status = 'waiting' and (r.reason like 'limit:%%' or r.reason like 'held:%%')
        limit 10001) w) as parked,
       case when d.per_second is not null then greatest(0, floor(1e-9 + greatest(d.burst / 2, 1)
         - case when d.tat > clock_timestamp() then extract(epoch from least(d.tat, clock_timestamp() + interval '1 day')
             - clock_timestamp()) * d.per_second else 0 end))::int end as calls_now
from suimon.destinations d
where %(name)s::text is null or d.name = %(name)s
order by d.name limit 1000;

-- Who is calling, since when.
-- name: holders
select l.run_id::text, r.pipeline, w.name as worker, l.since, l.expires_at
from suimon.leases l
left join suimon.runs r on r.id = l.run_id
left join suimon.workers w on w.id = l.worker_id
where l.destination = %(name)s and l.run_id is not null and l.expires_at > clock_timestamp()
order by l.since limit 200;

-- name: names
select d.name from suimon.destinations d order by d.name limit 1000;

-- name: lock
select d.rate, d.burst, d.concurrency, d.version from suimon.destinations d where d.name = %(name)s for no key update;

-- name: change
update suimon.destinations d
set rate = %(rate)s, per_second = %(per_second)s, burst = %(burst)s, concurrency = %(concurrency)s, version = d.version + 1,
    edited_at = clock_timestamp(), tat = least(d.tat, clock_timestamp())
where d.name = %(name)s;

-- Without a time: until somebody releases it.
-- name: hold
update suimon.destinations d
set held_until = coalesce(clock_timestamp() + make_interval(secs => %(seconds)s::float8), 'infinity'),
    held_why = %(why)s, held_by = %(by)s
where d.name = %(name)s;

-- name: release
update suimon.destinations d set held_until = null, held_why = null, held_by = null
where d.name = %(name)s and d.held_until > clock_timestamp() returning d.name;
