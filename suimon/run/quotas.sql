-- Quotas: what they have left, who was refused, and how people change them. The arithmetic is in schema.sql
-- (suimon.quota_*), because runs are born in SQL too.

-- The refusal of so many more runs of a pipeline with these labels, or null; and seconds until it renews.
-- name: refusal
select f.refused, extract(epoch from (f.refused ->> 'renews_at')::timestamptz - clock_timestamp())::float8 as renews_in_s
from (select suimon.quotas_of(p.name, suimon.labels_of(p.labels, %(labels)s::text[])) as names
      from suimon.pipelines p where p.name = %(pipeline)s) q
cross join lateral (select suimon.quota_refusal(
  q.names, array_fill(%(n)s::bigint, array[cardinality(q.names)]), clock_timestamp()) as refused) f
where f.refused is not null;

-- name: left
select suimon.quota_left(suimon.quotas_of(p.name, suimon.labels_of(p.labels, %(labels)s::text[])), clock_timestamp())
from suimon.pipelines p where p.name = %(pipeline)s and exists (select from suimon.quotas);

-- name: any
select exists (select from suimon.quotas);

-- name: count_fanout
select cardinality(suimon.quotas_of(%(pipeline)s, (select r.labels from suimon.runs r where r.id = %(root)s))) > 0
from (select where exists (select from suimon.quotas)) q;

-- In a chunk's transaction, before it is stored.
-- name: chunk
select q.refused, extract(epoch from (q.refused ->> 'renews_at')::timestamptz - clock_timestamp())::float8 as renews_in_s
from suimon.quota_chunk(%(root)s, %(fanout)s, %(pipeline)s, %(first)s, %(n)s, %(total)s) as q(refused);

-- name: free
select suimon.quota_free(%(names)s::text[], %(fanout)s);

-- name: wake
select suimon.quota_wake(%(name)s::text) as pool;

-- name: listed
select q.name, q.per_day, q.per_month, s.day_used, s.month_used,
       ((s.day + 1)::timestamp at time zone 'UTC') as day_renews_at,
       ((s.month + interval '1 month') at time zone 'UTC') as month_renews_at,
       (select coalesce(sum(greatest(h.from_position + h.n - greatest(h.from_position, suimon.made_of(f.base)), 0)), 0)::bigint
        from suimon.quota_holds h join suimon.fanouts f on f.id = h.fanout_id where h.quota = q.name) as reserved,
       (select count(*)::int from (select from suimon.runs r
        where r.status = 'waiting' and coalesce(r.reason, '') <> '' and r.reason = 'quota:' || q.name limit 10001) w) as waiting,
       q.version, q.edited_by, q.edited_at
from suimon.quotas q cross join lateral suimon.quota_at(q, clock_timestamp()) s
where %(name)s::text is null or q.name = %(name)s
order by q.name limit 1000;

-- Without their reservations and who waits: for monitors, asked often.
-- name: used
select q.name, p.period, p.used, p.bound from suimon.quotas q
cross join lateral suimon.quota_periods(q, clock_timestamp()) p order by q.name, p.period limit 200;

-- name: names
select q.name from suimon.quotas q order by q.name limit 1000;

-- name: lock
select q.per_day, q.per_month, q.version from suimon.quotas q where q.name = %(name)s for no key update;

-- name: make
insert into suimon.quotas (name, per_day, per_month, day, month, edited_by)
select %(name)s, %(per_day)s, %(per_month)s, (n.now at time zone 'UTC')::date, date_trunc('month', n.now at time zone 'UTC')::date,
       %(by)s
from (select clock_timestamp() as now) n
on conflict do nothing returning name;

-- What the database still holds of this day and month; at most 10,000,000 runs are looked at. (Ids sort by time, those
-- of children by the time of their fan-out: children that were born this month below an older one are not counted.)
-- name: count_made
update suimon.quotas q set (day_used, month_used) = (
  select count(*) filter (where m.created_at >= q.day::timestamp at time zone 'UTC'), count(*)
  from (
    select r.created_at from suimon.runs r
    left join suimon.runs root on q.name like 'label:%%' and root.id = r.root_id
    where r.id >= suimon.first_id(q.month::timestamp at time zone 'UTC')
      and r.created_at >= q.month::timestamp at time zone 'UTC'
      and case when q.name = 'all' then true
               when q.name like 'pipeline:%%' then r.pipeline = substr(q.name, 10)
               else substr(q.name, 7) = any (root.labels) end
    limit 10000000) m)
where q.name = %(name)s;

-- name: change
update suimon.quotas q
set per_day = %(per_day)s, per_month = %(per_month)s, version = q.version + 1, edited_by = %(by)s, edited_at = clock_timestamp()
where q.name = %(name)s;

-- name: remove
with held as (delete from suimon.quota_holds h where h.quota = %(name)s)
delete from suimon.quotas q where q.name = %(name)s;
