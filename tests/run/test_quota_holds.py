"""Reservations: a whole fan-out before its first child; each end of it gives back the rest."""

from __future__ import annotations

from typing import Any

import pytest
from support.lab import Lab
from support.quotas import counter, quota, used
from support.sessions import Sessions

from suimon.duties import prune
from suimon.errors import QuotaExceeded
from suimon.run import cancel, merge, quotas, rescue, retry, step
from suimon.worker import batch as batches

# ------------------------------------------------------------------------------- fan-outs


def test_ten_thousand_children_against_five_thousand_are_none_at_all(lab: Lab) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=5_000)
    with pytest.raises(QuotaExceeded) as caught:
        lab.chunk(parent, 0, 1000, total=10_000)
    # (its parent counted when the quota was made)
    assert (caught.value.asked, caught.value.left, caught.value.limit) == (10_000, 4_999, 5_000)
    assert lab.one("select count(*) from suimon.runs where parent_id is not null") == 0
    assert lab.sql("select * from suimon.quota_holds") == []
    assert used(lab.conn) == (1, 0)


def test_of_two_fan_outs_of_three_thousand_racing_for_five_one_is_admitted(
    lab: Lab, sessions: Sessions
) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    first, second = lab.parent(worker, "p"), lab.parent(worker, "p")
    quota(lab.conn, per_day=5_002)
    a, b = sessions("a", "b")
    with a.transaction():
        Lab(a.conn).chunk(first, 0, 1000, total=3_000)
        job = b.start(lambda conn: Lab(conn).chunk(second, 0, 1000, total=3_000))
        b.until_blocked()  # it counts when the first has committed
    with pytest.raises(QuotaExceeded) as caught:
        job.done_in()
    assert (caught.value.asked, caught.value.left) == (3_000, 2_000)
    assert used(lab.conn) == (3_002, 2_000)
    for place in (1_000, 2_000):
        lab.chunk(first, place, 1_000)
    assert used(lab.conn) == (3_002, 0)
    assert lab.one("select count(*) from suimon.runs where fanout_id = %s", second.fanout.id) == 0


def test_the_chunks_of_a_reserved_fan_out_wait_for_nobody(lab: Lab, sessions: Sessions) -> None:
    """Only its first chunk meets the others that are counted."""
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=100)
    lab.chunk(parent, 0, 10, total=20)
    (other,) = sessions("other")
    with other.transaction():
        other.conn.execute("select suimon.submit('p')")  # holds the quota's row
        assert lab.chunk(parent, 10, 10) == (10, False)
    assert used(lab.conn) == (22, 0)


def test_a_list_without_a_length_is_counted_chunk_by_chunk_and_keeps_what_exists(lab: Lab) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=26)
    lab.chunk(parent, 0, 10)
    lab.chunk(parent, 10, 10)
    with pytest.raises(QuotaExceeded) as caught:
        lab.chunk(parent, 20, 10)
    assert (caught.value.position, caught.value.asked, caught.value.left) == (20, 10, 5)
    assert "up to position 20" in (caught.value.detail or "")
    assert lab.one("select count(*) from suimon.runs where parent_id is not null") == 20
    # read again, what exists costs nothing
    lab.chunk(parent, 0, 10)
    lab.chunk(parent, 10, 10)
    lab.chunk(parent, 20, 5)
    assert used(lab.conn) == (26, 0)


def test_a_list_that_has_become_longer_counts_the_rest_as_it_comes(lab: Lab) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=100)
    lab.chunk(parent, 0, 10, total=20)
    lab.chunk(parent, 10, 10)
    lab.chunk(parent, 20, 7)
    assert used(lab.conn) == (28, 0)
    lab.seal(parent, 27)
    assert used(lab.conn) == (28, 0)


def test_a_quota_that_is_made_while_a_fan_out_is_read_counts_its_later_chunks(lab: Lab) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    lab.chunk(parent, 0, 10, total=30)
    quota(lab.conn, per_day=25)
    assert used(lab.conn) == (11, 0)
    lab.chunk(parent, 10, 10)
    with pytest.raises(QuotaExceeded):
        lab.chunk(parent, 20, 10)
    assert used(lab.conn) == (21, 0)


# --------------------------------------------------------------- what was held is given back


@pytest.fixture
def holder(lab: Lab) -> tuple[int, Any]:
    """A worker and its spawner: 4 of 10 children are made, 6 are reserved; 1 + 10 are counted."""
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=20)
    lab.chunk(parent, 0, 4, total=10)
    assert used(lab.conn) == (11, 6)
    return worker, parent


def freed(lab: Lab) -> None:
    """The reservation is gone: the counter is what was created."""
    assert counter(lab) == lab.one("select count(*) from suimon.runs")
    assert lab.sql("select * from suimon.quota_holds") == []


def test_the_seal_of_a_shorter_list_gives_back_the_rest(lab: Lab, holder: tuple[int, Any]) -> None:
    lab.seal(holder[1], 4)
    freed(lab)


def test_a_fan_out_that_was_left_early_gives_back_the_rest(
    lab: Lab, holder: tuple[int, Any]
) -> None:
    merge.seal_short(lab.conn, holder[1].holder, holder[1].fanout)
    quotas.sweep(lab.conn)
    freed(lab)


def test_a_spawner_whose_step_failed_gives_back_the_rest_and_reserves_anew_when_retried(
    lab: Lab, holder: tuple[int, Any]
) -> None:
    worker, parent = holder
    fail_step(lab, worker, parent)
    quotas.sweep(lab.conn)
    freed(lab)
    lab.end(worker, parent.row, "failed")
    plan = retry.plan(lab.conn, [parent.id], failed_children=False)
    retry.apply(lab.conn, plan, actor="mia", why="")
    again = lab.parent(worker, "p", row=lab.claim_run(worker, parent.id))
    assert again.fanout.id == parent.fanout.id
    lab.chunk(again, 0, 4, total=10)
    assert used(lab.conn) == (11, 6)


def fail_step(lab: Lab, worker: int, parent: Any) -> None:
    row = parent.row
    made = lab.batch(worker, [])
    made.steps = [step.Step(row.id, row.claim_no, "kids", "failed", 1, "", '{"message": "no"}')]
    batches.execute(lab.conn, made)


def test_a_cancel_gives_back_the_rest(lab: Lab, holder: tuple[int, Any]) -> None:
    cancel.request(lab.conn, [holder[1].id])
    merge.stop_parent(lab.conn, holder[1].holder)
    quotas.sweep(lab.conn)
    freed(lab)


@pytest.mark.parametrize("status", ["failed", "timed_out", "cancelled"])
def test_a_parent_that_ends_gives_back_the_rest(
    lab: Lab, holder: tuple[int, Any], status: str
) -> None:
    lab.end(holder[0], holder[1].row, status)
    assert lab.status(holder[1].id) == status
    quotas.sweep(lab.conn)
    freed(lab)


def test_a_rescued_spawner_keeps_what_it_has_reserved(lab: Lab, holder: tuple[int, Any]) -> None:
    worker, parent = holder
    lab.kill(worker)
    rescue.rescue(lab.conn)
    assert lab.status(parent.id) == "queued"
    assert used(lab.conn) == (11, 6)
    other = lab.worker()
    again = lab.parent(other, "p", row=lab.claim_run(other, parent.id))
    lab.chunk(again, 0, 10, total=10)
    lab.seal(again, 10)
    assert used(lab.conn) == (11, 0)
    freed(lab)


def test_a_poisoned_spawner_gives_back_the_rest(lab: Lab, holder: tuple[int, Any]) -> None:
    worker, parent = holder
    lab.sql("update suimon.runs set max_interruptions = 0 where id = %s", parent.id)
    lab.kill(worker)
    rescue.rescue(lab.conn)
    assert lab.status(parent.id) == "failed"
    quotas.sweep(lab.conn)
    freed(lab)


def test_a_crash_between_reservation_and_start_leaves_nothing(lab: Lab, sessions: Sessions) -> None:
    """The reservation and the first children are one transaction."""
    lab.pipeline("p")
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=20)
    (dying,) = sessions("dying")
    dying.hold(after=quotas.SQL.chunk)
    job = dying.start(lambda conn: Lab(conn).chunk(parent, 0, 4, total=10))
    dying.until_held()
    lab.sql("select pg_terminate_backend(%s)", dying.pid)
    dying.release()
    with pytest.raises(Exception, match=r"terminat|connection|closed"):
        job.done_in()
    assert used(lab.conn) == (1, 0)
    lab.chunk(parent, 0, 4, total=10)
    assert used(lab.conn) == (11, 6)


def test_who_is_about_to_be_refused_takes_what_nobody_holds_any_more(
    lab: Lab, holder: tuple[int, Any]
) -> None:
    lab.submit_many("p", 9)
    with pytest.raises(QuotaExceeded):
        lab.submit("p")
    lab.end(holder[0], holder[1].row, "failed")
    lab.submit_many("p", 6)  # nobody has swept
    assert counter(lab) == 20
    with pytest.raises(QuotaExceeded):
        lab.submit("p")


def test_pruned_fan_outs_give_back_the_rest_before_they_go(lab: Lab) -> None:
    lab.pipeline("p", keep={"count": 1})
    worker = lab.worker()
    parent = lab.parent(worker, "p")
    quota(lab.conn, per_day=20)
    lab.chunk(parent, 0, 4, total=10)
    cancel.request(lab.conn, [parent.id])
    assert not merge.stop_parent(lab.conn, parent.holder)  # its children are stopped already
    lab.end(worker, parent.row, "cancelled")
    lab.end(worker, lab.claim_run(worker, lab.submit("p")))
    assert prune.prune(lab.conn).roots == 1
    assert used(lab.conn) == (6, 0)


def test_a_reservation_is_given_back_to_the_day_and_the_month_it_was_taken_from(
    lab: Lab, holder: tuple[int, Any]
) -> None:
    """The next day has begun in the same month: its own count stays, the month's goes down."""
    lab.sql("update suimon.quotas set day = day + 1, day_used = 3, per_month = 1000")
    lab.sql("update suimon.quota_holds set month = (select month from suimon.quotas)")
    lab.seal(holder[1], 4)
    assert lab.sql("select day_used, month_used from suimon.quotas") == [(3, 5)]


def test_a_reservation_of_another_month_is_not_given_back_to_this_one(
    lab: Lab, holder: tuple[int, Any]
) -> None:
    lab.sql("update suimon.quota_holds set day = day - 40, month = month - 31")
    lab.seal(holder[1], 4)
    assert lab.sql("select day_used, month_used from suimon.quotas") == [(11, 11)]
