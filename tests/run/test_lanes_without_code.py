"""A lane and a function that no worker has: a half-done run keeps its place, a fresh one steps
aside.
"""

from __future__ import annotations

import pytest
from support.lab import Lab

from suimon.run import cancel, claim, lane, rescue, step, wake, why
from suimon.run.claim import Claimed
from suimon.worker import batch as batches
from suimon.worker import intake

REASON = "no_code:m:f"
LANE = "pipeline:one"


@pytest.fixture
def worker(lab: Lab) -> int:
    lab.pipeline("one", concurrency=1)
    lab.pipeline("two", concurrency=2)
    return lab.worker()


def hold_back(lab: Lab, worker: int, row: Claimed) -> list[str]:
    """What a worker does whose code lacks it, with its next claim in the same transaction."""
    made = lab.batch(worker, [])
    made.held_back = [(row.id, row.claim_no, REASON)]
    made.begun = [row.id] if row.begun else []
    made.lanes = {row.lane} if row.lane is not None else set()
    batches.execute(lab.conn, made)
    return [one.id for one in lab.claim(worker, 10)]


def take_back(lab: Lab, worker: int) -> list[str]:
    """What a worker does that has it."""
    rows = intake.take_back(lab.conn, worker=worker, pool="default", reasons=[REASON], n=10)
    return [row.id for row in rows]


def begin(lab: Lab, worker: int, how: str) -> Claimed:
    """The next run has begun, and is claimed anew."""
    (row,) = lab.claim(worker)
    made = lab.batch(worker, [])
    if how == "step":
        made.steps = [step.Step(row.id, row.claim_no, "a", "succeeded", 1, "1", "")]
    elif how == "later":
        made.later = [(row.id, row.claim_no, 0.0, "timer")]
    batches.execute(lab.conn, made)
    if how == "later":
        assert wake.wake_due(lab.conn) == 1
    elif how == "failed":
        lab.again(worker, row)
        assert wake.wake_due(lab.conn) == 1
    elif how == "died":
        lab.kill(worker)
        rescue.rescue(lab.conn)
    elif how == "step":
        claim.release(lab.conn, worker, [(row.id, row.claim_no)])
    (again,) = lab.claim(lab.worker())
    assert again.id == row.id
    assert again.begun
    return again


def holder(lab: Lab, row: Claimed) -> int:
    found = lab.one("select worker_id from suimon.runs where id = %s", row.id)
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("how", ["step", "later", "failed", "died"])
def test_a_run_that_has_begun_is_not_overtaken(lab: Lab, worker: int, how: str) -> None:
    """Neither when it is held back, nor by whoever comes later, nor by the sweep; and with its
    code it goes on, first.
    """
    first, second = lab.submit("one"), lab.submit("one")
    row = begin(lab, worker, how)
    assert row.id == first
    assert hold_back(lab, holder(lab, row), row) == []
    third = lab.submit("one")
    lane.sweep(lab.conn)
    assert lab.claim(lab.worker(), 10) == []
    assert lab.one("select suimon.reason_of(r) from suimon.runs r where id = %s", first) == REASON
    assert first in str(why.why(lab.conn, second)), "who waits is told for whom"
    other = lab.worker()
    assert take_back(lab, other) == [first]
    seen = []
    rows = lab.sql("select claim_no from suimon.runs where id = %s", first)
    ended = lab.ended(row)
    ended.claim_no = rows[0][0]
    batches.execute(lab.conn, lab.batch(other, [ended]))
    while rows := lab.claim(other, 10):
        seen += [one.id for one in rows]
        lab.end(other, rows)
    assert seen == [second, third]


def test_a_run_that_was_given_back_after_it_had_begun_keeps_its_place(
    lab: Lab, worker: int
) -> None:
    """A task that asked to be called later, claimed by a worker that leaves, met by a newer one."""
    first, _ = lab.submit("one"), lab.submit("one")
    row = begin(lab, worker, "later")
    made = lab.batch(holder(lab, row), [])
    made.released, made.begun = [(row.id, row.claim_no)], [row.id]
    batches.execute(lab.conn, made)
    other = lab.worker()
    (row,) = lab.claim(other)
    assert (row.id, row.begun) == (first, True)
    assert hold_back(lab, other, row) == []


def test_a_run_that_has_not_begun_steps_aside_and_comes_back_to_its_place(
    lab: Lab, worker: int
) -> None:
    """Those whose code is there go on; with its code it stands before all younger ones again."""
    first, second, third = (lab.submit("one") for _ in range(3))
    (row,) = lab.claim(worker)
    assert hold_back(lab, worker, row) == [second]
    assert take_back(lab, worker) == [], "the lane is taken"
    lab.sql("update suimon.workers set dead = true where id = %s", worker)
    rescue.rescue(lab.conn)
    other = lab.worker()
    (row,) = lab.claim(other)
    assert row.id == second
    assert [one.id for one in lab.end(other, row, want=10).claimed] == [first]
    assert third


def test_who_had_begun_goes_on_before_an_older_one_that_had_not(lab: Lab, worker: int) -> None:
    """Both are held back, and one worker has the code of both: it is one at a time, still."""
    first, second = lab.submit("one"), lab.submit("one")
    (row,) = lab.claim(worker)
    assert hold_back(lab, worker, row) == [second]
    claims = lab.one("select claim_no from suimon.runs where id = %s", second)
    claim.release(lab.conn, worker, [(second, claims)])
    row = begin(lab, worker, "failed")
    assert hold_back(lab, holder(lab, row), row) == []
    assert take_back(lab, lab.worker()) == [second]
    assert lab.statuses() == {"running": 1, "queued": 1}
    assert first


def test_a_limit_above_one_counts_the_held_ones(lab: Lab, worker: int) -> None:
    """Two places, one of them kept: one at a time passes through the other."""
    first, *others = (lab.submit("two") for _ in range(4))
    row, beside = lab.claim(worker, 10)
    lab.again(worker, row)
    assert wake.wake_due(lab.conn) == 1
    (row,) = lab.claim(worker, 10)
    assert row.id == first
    assert hold_back(lab, worker, row) == []
    seen = [beside.id]
    rows = lab.end(worker, beside, want=10).claimed
    while rows:
        assert len(rows) == 1
        seen += [one.id for one in rows]
        rows = lab.end(worker, rows, want=10).claimed
    assert seen == others
    assert take_back(lab, worker) == [first]


def test_a_held_run_that_is_cancelled_lets_the_next_one_in(lab: Lab, worker: int) -> None:
    """The way out when its code never comes back."""
    first, second = lab.submit("one"), lab.submit("one")
    row = begin(lab, worker, "failed")
    assert hold_back(lab, holder(lab, row), row) == []
    cancel.request(lab.conn, [first])
    assert [one.id for one in lab.claim(lab.worker(), 10)] == [second]


def test_the_database_refuses_a_second_one_beside_a_held_one(lab: Lab, worker: int) -> None:
    """The unique index of a lane of one covers the place that is kept."""
    lab.submit("one"), lab.submit("one")
    row = begin(lab, worker, "failed")
    hold_back(lab, holder(lab, row), row)
    with pytest.raises(Exception, match="runs_lane_one"):
        lab.sql("update suimon.runs set admitted = true, lane_limit = 1 where not admitted")
