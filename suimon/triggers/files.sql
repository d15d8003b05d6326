-- What a FILE trigger asks and tells. Keys are the truth about what was taken; the rest saves work.

-- Of these keys, those that have a delivery of this trigger or a run of its pipeline.
-- name: known_keys
select k.key from unnest(%(keys)s::text[]) as k(key)
where exists (select from suimon.idempotency_keys i
              where i.pipeline = %(pipeline)s and i.key_hash = sha256(convert_to(k.key, 'UTF8')))
   or exists (select from suimon.deliveries d
              where d.trigger_id = %(trigger)s and d.key = k.key and d.state in ('waiting', 'delivered', 'dead', 'discarded'));

-- Of these marks, those whose content was taken.
-- name: known_marks
select f.mark from suimon.file_contents f where f.trigger_id = %(trigger)s and f.mark = any (%(marks)s::bytea[]);

-- name: keep_marks
insert into suimon.file_contents (trigger_id, mark, key)
select %(trigger)s, m.mark, m.key from unnest(%(marks)s::bytea[], %(keys)s::text[]) as m(mark, key)
on conflict do nothing;

-- name: note
update suimon.triggers t set note = %(note)s where t.id = %(trigger)s and t.note is distinct from %(note)s;

-- Written before the arrival: a crash in between leaves a row without a delivery, and never a file that is not moved.
-- name: keep_moves
insert into suimon.file_moves as m (trigger_id, key, path, host, size, mtime_ns, inode, version)
select %(trigger)s, f.key, f.path, %(host)s, f.size, f.mtime_ns, f.inode, f.version
from unnest(%(keys)s::text[], %(paths)s::bytea[], %(sizes)s::bigint[], %(mtimes)s::bigint[], %(inodes)s::numeric[],
            %(versions)s::text[]) as f(key, path, size, mtime_ns, inode, version)
on conflict (trigger_id, key, path) do update
set host = excluded.host, size = excluded.size, mtime_ns = excluded.mtime_ns, inode = excluded.inode,
    version = excluded.version;

-- Those whose run has ended in a way that moves its file; a run that was pruned moves nothing any more. Another trigger may
-- have started a run for the same version: the file stays until all of them have ended, and it ended as badly as the
-- worst (of each trigger the latest counts).
-- name: due_moves
select m.key, m.path, m.host, m.size, m.mtime_ns, m.inode::text, s.state
from suimon.file_moves m
join suimon.deliveries d on d.trigger_id = m.trigger_id and d.key = m.key and d.state = 'delivered'
join suimon.runs r on r.id = d.run_id
cross join lateral (
  select coalesce(case when r.status <> 'succeeded' then r.status::text end, (
    select o.state from (
      select distinct on (e.trigger_id) q.status::text as state
      from suimon.deliveries e join suimon.runs q on q.id = e.run_id
      where e.detail ->> 'version' = m.version and e.state = 'delivered' and e.trigger_id <> m.trigger_id
      order by e.trigger_id, e.seq desc) o
    where o.state <> 'succeeded' limit 1), 'succeeded') as state) s
where m.trigger_id = %(trigger)s and r.finished_at is not null and s.state = any (%(states)s::text[])
  and not suimon.file_in_use(m.version)
order by r.finished_at, m.path limit 500;

-- name: open_moves
select exists (select from suimon.file_moves m where m.trigger_id = %(trigger)s) as any;

-- name: moved
delete from suimon.file_moves m using unnest(%(keys)s::text[], %(paths)s::bytea[]) as f(key, path)
where m.trigger_id = %(trigger)s and m.key = f.key and m.path = f.path;

-- What came to nothing within a month: its file is seen by nobody here, or nothing says that it arrived.
-- name: forget_moves
delete from suimon.file_moves m
where m.trigger_id = %(trigger)s and m.arrived_at < clock_timestamp() - interval '30 days'
  and not exists (select from suimon.deliveries d where d.trigger_id = m.trigger_id and d.key = m.key and d.state = 'waiting')
  and not exists (select from suimon.deliveries d join suimon.runs r on r.id = d.run_id
                  where d.trigger_id = m.trigger_id and d.key = m.key and r.finished_at is null)
  and not suimon.file_in_use(m.version);

-- One file, for people: its latest deliveries at this trigger.
-- name: deliveries_of
select d.id::text, d.state, d.duplicate, d.arrived_at, d.run_id::text, d.code, d.why, d.key,
       (select r.status::text from suimon.runs r where r.id = d.run_id) as status
from suimon.deliveries d
where d.trigger_id = %(trigger)s and (d.key = any (%(keys)s::text[]) or d.source = %(source)s)
order by d.id desc limit 10;

-- name: run_of_key
select k.run_id::text, k.created_at, (select r.status::text from suimon.runs r where r.id = k.run_id) as status
from suimon.idempotency_keys k where k.pipeline = %(pipeline)s and k.key_hash = sha256(convert_to(%(key)s, 'UTF8'));

-- name: key_of_mark
select f.key from suimon.file_contents f where f.trigger_id = %(trigger)s and f.mark = %(mark)s;

-- name: pause_of
select suimon.pause_of(%(trigger)s) as pause;

-- name: listed
select t.id, t.pipeline, t.name, t.kind, t.spec, t.note, t.next_at, t.retry_at, t.retired_at, suimon.pause_of(t.id) as pause,
       (select count(*) from (select from suimon.deliveries d where d.trigger_id = t.id and d.state = 'waiting' limit 10000) w)
         as waiting,
       (select d.arrived_at from suimon.deliveries d where d.trigger_id = t.id order by d.id desc limit 1) as last_at
from suimon.triggers t
where (%(pipeline)s::text is null or t.pipeline = %(pipeline)s) and (%(id)s::bigint is null or t.id = %(id)s)
  and (t.retired_at is null or %(all)s or t.id = %(id)s)
order by t.pipeline, t.id limit 1000;

-- name: latest
select d.id::text, d.state, d.duplicate, d.arrived_at, d.source, d.run_id::text, d.code, d.why
from suimon.deliveries d where d.trigger_id = %(id)s order by d.id desc limit 20;

-- name: paths
select distinct t.spec ->> 'path' as path from suimon.triggers t where t.kind = 'FILE' limit 1000;

-- Watchers look at their moves again.
-- name: tell_watchers
select pg_notify('suimon_doors', 'triggers');
