-- Stored secrets: what lies here is ciphertext, bound to its name, version and key.

-- Everybody's key: the one that new values are encrypted with.
-- name: current_key
select k.id, k.fingerprint from suimon.secret_keys k where k.current;

-- name: keys_in_use
select distinct s.key_id from suimon.secrets s;

-- The first key of a database. Two first ones at once: the unique index lets one in.
-- name: first_key
insert into suimon.secret_keys (id, fingerprint, current) values (%(id)s, %(fingerprint)s, true)
on conflict do nothing;

-- Two writers, or a writer and a rotation, one after the other: a value must not be encrypted with a key that goes.
-- name: lock
select pg_advisory_xact_lock(hashtext('suimon.secrets'));

-- name: one
select s.name, s.version, s.key_id, s.nonce, s.body from suimon.secrets s where s.name = any(%(names)s::text[]);

-- A value that is set anew is the next version.
-- name: next_version
select coalesce((select s.version from suimon.secrets s where s.name = %(name)s), 0) + 1;

-- name: put
insert into suimon.secrets as s (name, version, key_id, nonce, body, set_by, set_at)
values (%(name)s, %(version)s, %(key_id)s, %(nonce)s, %(body)s, %(set_by)s, clock_timestamp())
on conflict (name) do update
set version = excluded.version, key_id = excluded.key_id, nonce = excluded.nonce, body = excluded.body, set_by = excluded.set_by,
    set_at = excluded.set_at;

-- name: remove
delete from suimon.secrets where name = %(name)s returning version;

-- By name, a page at a time.
-- name: listed
select s.name, s.version, s.key_id, s.set_by, s.set_at from suimon.secrets s
where s.name > %(after)s order by s.name limit %(n)s;

-- name: names
select s.name from suimon.secrets s order by s.name limit %(n)s;

-- name: drop_current
update suimon.secret_keys set current = false where current and id <> %(id)s;

-- name: make_current
insert into suimon.secret_keys as k (id, fingerprint, current) values (%(id)s, %(fingerprint)s, true)
on conflict (id) do update set current = true where not k.current;

-- What is still under another key, a bounded batch; a row that somebody sets anew meanwhile is not needed.
-- name: under_other_keys
select s.name, s.version, s.key_id, s.nonce, s.body from suimon.secrets s
where s.key_id <> %(id)s order by s.name limit %(n)s for update;

-- name: put_again
update suimon.secrets s set key_id = %(key_id)s, nonce = %(nonce)s, body = %(body)s
where s.name = %(name)s and s.version = %(version)s and s.key_id = %(old_id)s;

-- name: left_over
select count(*) from suimon.secrets s where s.key_id <> %(id)s;

-- name: forget_keys
delete from suimon.secret_keys k where not k.current and not exists (select from suimon.secrets s where s.key_id = k.id);

-- The graphs that new runs get.
-- name: graphs
select p.name, g.body::text from suimon.pipelines p join suimon.graphs g on g.id = p.graph_id
where p.name > %(after)s order by p.name limit %(n)s;

-- Live values of destinations, and where people are told.
-- name: outside_of_graphs
select d.auth, 'destination ' || d.name || ', auth' from suimon.destinations d where d.auth is not null
union all
select c.secret, 'channel ' || c.name || ', secret' from suimon.channels c where c.secret is not null
order by 2;
