-- Instants of the calendar and of rhythms become runs. Who works on a trigger holds its row; another taker goes on to
-- the next one. `now` is null: the database's clock decides (tests give an instant of their own).

-- One trigger with something to do: its next instant has come, or its last one lies in the future, because the clock
-- was set back (a rhythm is noticed at a second, a calendar at an hour: see cron.py). A paused one waits.
-- name: take
select t.id, t.pipeline, t.name, t.kind, t.spec, t.created_at, t.cursor_at, t.era, t.last_run::text,
       coalesce(%(now)s::timestamptz, clock_timestamp()) as now
from suimon.triggers t
where t.retired_at is null and t.next_at is not null and t.kind in ('CRON', 'EVERY')
  and (t.next_at <= coalesce(%(now)s::timestamptz, clock_timestamp())
       or coalesce(t.cursor_at, t.created_at) > coalesce(%(now)s::timestamptz, clock_timestamp())
                        + case t.kind when 'EVERY' then interval '1 second' else interval '1 hour' end)
  and suimon.pause_of(t.id) is null
order by t.next_at, t.id limit 1 for no key update of t skip locked;

-- In how many seconds the first one is due (not above 0: one that somebody else is at), and the first later one.
-- name: next_in
select extract(epoch from min(t.next_at) - n.now)::float8 as first_s,
       extract(epoch from min(t.next_at) filter (where t.next_at > n.now) - n.now)::float8 as later_s
from suimon.triggers t, (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) n
where t.retired_at is null and t.next_at is not null and t.kind in ('CRON', 'EVERY') and suimon.pause_of(t.id) is null
group by n.now;

-- Instants fold into a run that has never begun; a claim that was given back (no code, a pause, a drain) did not begin.
-- No row: it was claimed meanwhile, or has ended. A claim or an admission that passes the row by while it is locked here
-- is made up for after the commit (submit.follow).
-- name: fold
update suimon.runs r
set input = jsonb_set(r.input, '{folded}', to_jsonb((r.input ->> 'folded')::bigint + %(count)s::bigint))
where r.id = %(run)s and r.status = 'queued' and r.started_at is null
  and not exists (select from suimon.attempts a where a.run_id = r.id)
returning r.id::text, r.pool, r.lane, r.lane_rank, r.lane_limit;

-- name: move_on
update suimon.triggers
set next_at = %(next_at)s, cursor_at = coalesce(%(cursor_at)s, cursor_at), era = %(era)s,
    last_run = coalesce(%(last_run)s::uuid, last_run), note = %(note)s
where id = %(id)s;
