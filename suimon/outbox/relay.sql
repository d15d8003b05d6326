-- Sending notices: claimed with a lease, so that one whose relay was killed is sent by another one (at least once).

-- The oldest due one of each enabled channel: a receiver that does not answer holds up nobody else.
-- name: claim
with due as materialized (
  select n.id from suimon.channels c
  cross join lateral (
    select x.id, x.next_at from suimon.notices x
    where x.channel = c.name and x.state = 'waiting' and x.next_at <= clock_timestamp()
    order by x.next_at, x.id limit 1 for update skip locked) n
  where c.enabled order by n.next_at limit %(n)s
)
update suimon.notices n
set tries = n.tries + 1, next_at = clock_timestamp() + make_interval(secs => %(lease_s)s)
from due join suimon.channels c on true
where n.id = due.id and c.name = n.channel
returning n.id::text, n.channel, c.kind as channel_kind, c.target, c.secret, n.kind, n.subject, n.payload, n.tries, n.created_at;

-- Under the try's number: an answer that came after the lease changes nothing that another try has done.
-- name: settle
update suimon.notices n
set state = %(state)s, why = %(why)s, ended_at = case when %(state)s <> 'waiting' then clock_timestamp() end,
    next_at = clock_timestamp() + make_interval(secs => %(delay_s)s)
where n.id = %(id)s and n.state = 'waiting' and n.tries = %(tries)s
returning n.id;

-- name: disable
update suimon.channels c set enabled = false, note = %(why)s where c.name = %(channel)s and c.enabled;

-- (no row where nothing waits: greatest would make a zero of it)
-- name: next_in
select greatest(extract(epoch from min(n.next_at) - clock_timestamp()), 0)::float8 as in_s
from suimon.channels c
cross join lateral (
  select x.next_at from suimon.notices x where x.channel = c.name and x.state = 'waiting' order by x.next_at limit 1) n
where c.enabled
having min(n.next_at) is not null;
