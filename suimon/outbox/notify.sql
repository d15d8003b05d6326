-- Who is told, what is told, and the search for facts that nobody writes a notice for on the hot path.

-- name: add
insert into suimon.channels (name, kind, target, secret, kinds)
values (%(name)s, %(kind)s, %(target)s, %(secret)s, %(kinds)s)
on conflict (name) do nothing returning name;

-- name: count
select count(*) from suimon.channels;

-- name: listed
select c.name, c.kind, c.target, c.secret, c.kinds, c.enabled, c.note, c.created_at,
       (select count(*) from suimon.notices n where n.channel = c.name and n.state = 'waiting') as waiting,
       (select count(*) from suimon.notices n where n.channel = c.name and n.state = 'dead') as dead
from suimon.channels c where %(name)s::text is null or c.name = %(name)s order by c.name;

-- Enabled again it hears of what happens from now on; what waits for it is sent at once.
-- name: enable
update suimon.channels c set enabled = true, note = null, since = clock_timestamp() where c.name = %(name)s and not c.enabled
returning c.name;

-- name: disable
update suimon.channels c set enabled = false, note = %(note)s where c.name = %(name)s and c.enabled returning c.name;

-- name: remove
with gone as (delete from suimon.channels c where c.name = %(name)s returning c.name),
notices as (delete from suimon.notices n using gone where n.channel = gone.name)
select name from gone;

-- name: due_now
update suimon.notices n set next_at = clock_timestamp() where n.channel = %(name)s and n.state = 'waiting' and n.tries > 0;

-- name: test
insert into suimon.notices (id, channel, kind, fact, subject, payload)
values (%(id)s::uuid, %(name)s, 'test', 'test:' || %(id)s::text, 'a test of the channel ' || %(name)s,
        jsonb_build_object('channel', %(name)s::text, 'text', 'If you can read this, notices arrive.'));

-- name: again
update suimon.notices n set state = 'waiting', ended_at = null, tries = 0, next_at = clock_timestamp(), why = null
where n.id = %(id)s and n.state in ('dead', 'sent') returning n.channel;

-- name: log
select n.id::text, n.channel, n.kind, n.subject, n.state, n.tries, n.why, n.created_at, n.ended_at,
       case when n.state = 'waiting' then n.next_at end as next_at, n.payload
from suimon.notices n
where (%(channel)s::text is null or n.channel = %(channel)s) and (%(state)s::text is null or n.state = %(state)s)
  and (%(id)s::uuid is null or n.id = %(id)s::uuid) and (%(before)s::uuid is null or n.id < %(before)s::uuid)
order by n.id desc limit least(%(n)s::int, 1000);

-- Counted up to 1,000.
-- name: count_due
select count(*) from (
  select from suimon.channels c join suimon.notices n on n.channel = c.name
  where c.enabled and n.state = 'waiting' and n.next_at <= clock_timestamp() limit 1000) due;

-- name: tell_keepers
select pg_notify('suimon_doors', 'notices');

-- Failed runs. Nothing is written for them where runs end; they are looked for. A transaction may set finished_at and be
-- committed much later, so the mark moves only to an instant before which none is open: every one that ends a run is
-- the engine's own (their connections are named), and who has no transaction id yet has set nothing (two seconds are
-- left to those just setting it). Behind the mark five minutes are looked at again, for a clock that is set back.
-- Who is told stands in notice_told: nobody is missed, and nobody told twice.
-- name: lock_mark
select m.at::text from suimon.notice_marks m where m.kind = 'run.failed' for update skip locked;

-- name: horizon
select least(clock_timestamp() - interval '2 seconds', (
  select min(a.xact_start) from pg_stat_activity a
  where a.datname = current_database() and a.application_name like 'suimon:%%' and a.backend_xid is not null
    and a.pid <> pg_backend_pid())) as at;

-- name: wanted_since
select min(c.since) from suimon.channels c
where c.enabled and exists (select from unnest(c.kinds) as k(pattern) where suimon.event_fits(k.pattern, 'run.failed'));

-- name: failed
select r.id::text, r.claim_no, r.finished_at, r.pipeline, r.status::text, r.error
from suimon.runs r
where r.parent_id is null and r.status in ('failed', 'timed_out')
  and r.finished_at > greatest(least(%(mark)s::timestamptz, %(horizon)s::timestamptz) - interval '5 minutes', %(since)s::timestamptz)
  and not exists (select from suimon.notice_told t where t.run_id = r.id and t.claim_no = r.claim_no)
order by r.finished_at limit %(n)s;

-- name: keep_told
insert into suimon.notice_told (run_id, claim_no, finished_at)
select * from unnest(%(ids)s::uuid[], %(claims)s::int[], %(ats)s::timestamptz[]) on conflict do nothing;

-- name: move_mark
with moved as (update suimon.notice_marks m set at = %(horizon)s where m.kind = 'run.failed')
delete from suimon.notice_told t where t.ctid = any (array(
  select x.ctid from suimon.notice_told x where x.finished_at < %(horizon)s::timestamptz - interval '1 day' limit 10000));

-- name: notice
select suimon.notice(%(kind)s, %(fact)s, %(at)s, %(subject)s, %(payload)s::jsonb) as written;

-- Pools in which admitted runs wait although no live worker is there: a walk from pool to pool along runs_ready.
-- name: stranded_pools
with recursive walk as (
  (select r.pool from suimon.runs r where r.status = 'queued' and r.admitted order by r.pool limit 1)
  union all
  select (select r.pool from suimon.runs r where r.status = 'queued' and r.admitted and r.pool > walk.pool order by r.pool limit 1)
  from walk where walk.pool is not null
)
select walk.pool from walk
where walk.pool is not null
  and not exists (select from suimon.workers w where w.pool = walk.pool and not w.dead and not w.draining)
  and not exists (select from suimon.pauses p where p.what = 'pool:' || walk.pool)
limit 1000;

-- name: raise_alarms
insert into suimon.alarms (what) select 'pool:' || u.pool from unnest(%(pools)s::text[]) as u(pool) order by 1 on conflict do nothing;

-- name: clear_alarms
delete from suimon.alarms a where a.what like 'pool:%%' and not a.what = any (array(
  select 'pool:' || u.pool from unnest(%(pools)s::text[]) as u(pool)));

-- name: tell_alarms
with due as materialized (
  select a.what, a.since from suimon.alarms a
  where a.told_at is null and a.since <= clock_timestamp() - make_interval(secs => %(after_s)s) order by a.what for update skip locked
),
told as (update suimon.alarms a set told_at = clock_timestamp() from due where a.what = due.what)
select d.what, d.since, clock_timestamp() as now from due d;
