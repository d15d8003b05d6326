-- What a worker asks of a destination: its round (suimon.take_calls in schema.sql), and the word of the far side.

-- name: round
select (t.d).name, (t.d).version, (t.d).per_second, (t.d).burst, (t.d).concurrency, (t.d).base_url, (t.d).auth,
       (t.d).timeout_ms, t.kept, t.places, t.n, t.first_s, t.step_s, t.lease_s, t.held_s, t.give_back, t.part, t.parked, t.pools
from suimon.take_calls(%(worker)s, %(name)s, %(calls)s, %(places)s, %(wants)s, %(waiting)s, %(back)s, %(used)s,
                       %(runs)s::uuid[]) t;

-- The far side asked for a pause. A person's hold is not shortened by it.
-- name: hold
update suimon.destinations d
set held_until = clock_timestamp() + make_interval(secs => %(seconds)s), held_why = %(why)s, held_by = null
where d.name = %(name)s and (d.held_until is null or d.held_until < clock_timestamp() + make_interval(secs => %(seconds)s))
returning d.name;

-- name: tell
select pg_notify('suimon_limits', %(name)s);

-- Destinations that somebody waits for, at most 1,000.
-- name: parked
select d.name from suimon.destinations d
where exists (select from suimon.runs r where split_part(r.reason, ':', 2) = d.name and r.status = 'waiting'
              and (r.reason like 'limit:%%' or r.reason like 'held:%%'))
order by d.name limit 1000;

-- A worker that leaves gives back what it does not use any more.
-- name: give_back
delete from suimon.leases l where l.worker_id = %(worker)s and l.token = any (%(tokens)s);
