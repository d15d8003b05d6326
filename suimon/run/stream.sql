-- What a merge reads of its children, a page at a time and in item order, from the range of the primary key.

-- A fan-out of this run, or of the parent whose child this run is: its base, or no row.
-- name: visible
select f.base::text from suimon.fanouts f
where f.id = %(fanout)s
  and (f.parent_id = %(run)s or f.parent_id = (select o.parent_id from suimon.fanouts o where o.id = %(own_fanout)s));

-- name: first_failures
select r.position, r.item_key, r.status::text, r.error::text, r.id::text
from suimon.runs r
where r.fanout_id = %(fanout)s and r.status in ('failed', 'timed_out', 'cancelled')
order by r.position limit 20;

-- A page of a merge's stream, in item order, from the range of the primary key; at most 1,000 rows.
-- name: succeeded_page
select r.position, r.item_key, r.status::text, r.output::text as value, null as error, r.id::text, p.sha256, c.size
from suimon.runs r
left join suimon.payloads p on r.output is null and p.run_id = r.id and p.name = 'output'
left join suimon.contents c on c.sha256 = p.sha256
where r.id > suimon.child_id(%(base)s, %(after)s) and r.id <= suimon.child_id(%(base)s, 2147483647) and r.status = 'succeeded'
order by r.id limit %(n)s;

-- name: succeeded_first_page
select r.position, r.item_key, r.status::text, r.output::text as value, null as error, r.id::text, p.sha256, c.size
from suimon.runs r
left join suimon.payloads p on r.output is null and p.run_id = r.id and p.name = 'output'
left join suimon.contents c on c.sha256 = p.sha256
where r.id >= suimon.child_id(%(base)s, 0) and r.id <= suimon.child_id(%(base)s, 2147483647) and r.status = 'succeeded'
order by r.id limit %(n)s;

-- name: failed_page
select r.position, r.item_key, r.status::text, null as value, r.error::text, r.id::text
from suimon.runs r
where r.fanout_id = %(fanout)s and r.status in ('failed', 'timed_out', 'cancelled') and r.position > %(after)s
order by r.position limit %(n)s;
