-- A question to people and the answer to it.

-- name: ask
insert into suimon.approvals as a (run_id, vertex, pipeline, title, role, show, quorum, expires_at, decision, decided_by, decided_at)
values (%(run)s, %(vertex)s, %(pipeline)s, %(title)s, %(role)s, %(show)s::jsonb, %(quorum)s,
        clock_timestamp() + make_interval(secs => %(expires_s)s::float8),
        case when not %(required)s then 'not_required' end, case when not %(required)s then 'rule' end,
        case when not %(required)s then clock_timestamp() end)
on conflict (run_id, vertex) do update set vertex = excluded.vertex
returning a.decision, a.decided_by, a.decided_at, a.comment,
          case when a.expires_at is not null then greatest(extract(epoch from a.expires_at - clock_timestamp()), 0) end::float8 as in_s;

-- Expired and nobody decided: that is a decision too, made once.
-- name: expire
update suimon.approvals a
set decision = 'expired', decided_by = 'clock', decided_at = clock_timestamp()
where a.run_id = %(run)s and a.vertex = %(vertex)s and a.decision is null and a.expires_at <= clock_timestamp()
returning a.decision, a.decided_by, a.decided_at, a.comment;

-- name: lock_approval
select a.decision, a.decided_by, a.decided_at, a.quorum, a.votes, a.role, coalesce(a.expires_at <= clock_timestamp(), false) as expired
from suimon.approvals a where a.run_id = %(run)s and a.vertex = %(vertex)s for no key update;

-- One vote of one person; the one that completes the quorum, or a rejection, decides.
-- name: vote
update suimon.approvals a
set votes = case when %(approve)s then a.votes || jsonb_build_object(
              'by', %(by)s::text, 'at', clock_timestamp(), 'comment', %(comment)s::text) else a.votes end,
    decision = case when not %(approve)s then 'rejected' when jsonb_array_length(a.votes) + 1 >= a.quorum then 'approved' end,
    decided_by = case when not %(approve)s or jsonb_array_length(a.votes) + 1 >= a.quorum then %(by)s::text end,
    decided_at = case when not %(approve)s or jsonb_array_length(a.votes) + 1 >= a.quorum then clock_timestamp() end,
    comment = case when not %(approve)s or jsonb_array_length(a.votes) + 1 >= a.quorum then %(comment)s::text end
where a.run_id = %(run)s and a.vertex = %(vertex)s and a.decision is null
returning a.decision, a.decided_by, a.decided_at, jsonb_array_length(a.votes) as votes;

-- name: listed
select a.run_id::text, a.vertex, a.pipeline, a.title, a.role, a.show, a.quorum, a.votes, a.decision, a.decided_by, a.decided_at,
       a.comment, a.asked_at, a.expires_at
from suimon.approvals a
where (%(all)s or a.decision is null) and (%(run)s::uuid is null or a.run_id = %(run)s)
order by a.asked_at limit 500;
