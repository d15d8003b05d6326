-- Artifacts that may be seen: their last part was written by the very try that ended its step, or its run, well.

-- name: visible
select a.vertex, a.name, a.claim_no, count(*)::int as parts, sum(c.size)::bigint as size, max(a.at) as at
from suimon.artifacts a
join suimon.contents c on c.sha256 = a.sha256
join suimon.runs r on r.id = a.run_id
left join suimon.steps s on s.run_id = a.run_id and s.vertex = a.vertex
where a.run_id = %(run)s and (%(name)s::text is null or a.name = %(name)s) and (%(vertex)s::text is null or a.vertex = %(vertex)s)
  and case when s.run_id is null then r.status = 'succeeded' and r.claim_no = a.claim_no
           else s.status = 'succeeded' and s.claim_no = a.claim_no end
group by a.vertex, a.name, a.claim_no order by a.vertex, a.name limit 1000;

-- name: part
select a.sha256 from suimon.artifacts a
where a.run_id = %(run)s and a.vertex = %(vertex)s and a.name = %(name)s and a.part = %(part)s and a.claim_no = %(claim_no)s;
