-- Contents that nobody refers to and nobody has touched for an hour: intents whose writer died, objects whose last
-- reference has gone. Oldest first; whoever is about to refer to one holds its row, and it is passed over.
-- name: unused
select c.sha256, c.place from suimon.contents c
where c.refs = 0 and c.touched_at < clock_timestamp() - make_interval(secs => %(rest_s)s)
order by c.touched_at limit %(n)s for update skip locked;

-- name: drop
delete from suimon.contents c where c.sha256 = any (%(sha256)s::bytea[]) and c.refs = 0;

-- name: later
update suimon.contents c set touched_at = clock_timestamp() where c.sha256 = any (%(sha256)s::bytea[]);
