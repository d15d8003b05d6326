-- Log text as it is read: by try, and followed live. Nothing here writes.

-- One look of somebody who follows: how the run stands, and the next page of its text, in one snapshot.
-- name: look
select r.status::text, l.claim_no, l.seq, l.stream, l.at, l.body
from suimon.runs r
left join lateral (
  select l.claim_no, l.seq, l.stream, l.at, l.body from suimon.logs l
  where l.run_id = r.id and (l.claim_no, l.seq) > (%(after_claim)s, %(after_seq)s)
    and (%(claims)s::int[] is null or l.claim_no = any (%(claims)s::int[]))
    and (%(stream)s::text is null or l.stream = %(stream)s)
  order by l.claim_no, l.seq limit %(n)s) l on true
where r.id = %(id)s
order by l.claim_no, l.seq;

-- The claims that left text, each with its try where one is recorded: a claim that did not end its step has an
-- attempt, the last one is the run's own row.
-- name: tries
select c.claim_no, coalesce(a.attempt, case when c.claim_no = r.claim_no then greatest(r.attempt, 1) end) as attempt,
       coalesce(a.how, case when c.claim_no = r.claim_no then r.status::text end) as how,
       coalesce(a.worker_name, w.name) as worker, nullif(a.vertex, '') as vertex
from (select l.claim_no from suimon.logs l where l.run_id = %(id)s group by l.claim_no order by l.claim_no desc limit 1000) c
join suimon.runs r on r.id = %(id)s
left join lateral (select * from suimon.attempts a where a.run_id = r.id and a.claim_no = c.claim_no
                   order by a.vertex limit 1) a on true
left join suimon.workers w on w.id = r.worker_id and c.claim_no = r.claim_no
order by c.claim_no;
