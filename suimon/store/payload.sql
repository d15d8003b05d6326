-- Contents: what is too large for a row. How they are counted and kept is in schema.sql; read from here alone.

-- name: object_url
select s.object_url from suimon.store s;

-- The intent to put objects, in a transaction of its own: whoever dies after it leaves a row by which the duty finds the
-- object. Who finds a reference has nothing to put; who finds none puts it (again), as the row says.
-- name: intend
insert into suimon.contents as c (sha256, size, stored, codec, place)
select k.sha256, k.size, k.stored, k.codec, k.place
from unnest(%(sha256)s::bytea[], %(sizes)s::bigint[], %(stored)s::bigint[], %(codecs)s::text[], %(places)s::text[])
     as k(sha256, size, stored, codec, place) order by k.sha256
on conflict (sha256) do update set touched_at = clock_timestamp()
returning c.sha256, c.codec, case when c.refs = 0 and c.body is null then c.place end as put_to;

-- (%b: as bytes; in the text form of arrays each would be escaped twice)
-- name: keep
select suimon.keep_contents(%(sha256)s::bytea[], %(sizes)s::bigint[], %(codecs)s::text[], %(bodies)b::bytea[]);

-- name: drop_unused
delete from suimon.contents c where c.sha256 = any (%(sha256)s::bytea[]) and c.refs = 0 and c.place is null;

-- name: refer
insert into suimon.payloads (run_id, name, sha256)
select * from unnest(%(run_ids)s::uuid[], %(names)s::text[], %(contents)s::bytea[])
on conflict (run_id, name) do update set sha256 = excluded.sha256;

-- name: read
select c.sha256, c.codec, c.place, c.body, c.size from suimon.contents c where c.sha256 = any (%(sha256)s::bytea[]);
