"""Findings 1, 5 and 11: who may be claimed behind a lane, and who holds the lane."""

from __future__ import annotations

import pytest
from support.lab import Lab
from support.sessions import Sessions

from suimon.core import clock
from suimon.db.connect import Connection, transaction
from suimon.db.statements import Statements
from suimon.run import lane
from suimon.run.claim import Claimed
from suimon.worker import batch as batches

LANE = "pipeline:serial"


@pytest.fixture
def first(lab: Lab) -> tuple[int, Claimed]:
    """A worker that holds the one admitted run of a serial pipeline."""
    lab.pipeline("serial", concurrency=1)
    lab.submit("serial")
    worker = lab.worker()
    return worker, lab.claim(worker)[0]


def _wait_for_the_lane(lab: Lab, sessions: Sessions, finish: object) -> str:
    """Somebody holds the lane; `finish` waits for it; a run is submitted; the lane is let go."""
    holder, finisher = sessions("holder", "finisher")
    with holder.transaction():
        lane.lock(holder.conn, [LANE])
        job = finisher.start(finish)  # type: ignore[arg-type]
        finisher.until_blocked()
        later = lab.submit_only("serial")
    job.done_in()
    return later


def test_01_a_finish_that_waited_for_the_lane_sees_who_came_meanwhile(
    lab: Lab, sessions: Sessions, first: tuple[int, Claimed]
) -> None:
    """The lane is locked in one statement and read in the next: the new run is admitted."""
    worker, row = first
    ends = lab.batch(worker, [lab.ended(row)])
    later = _wait_for_the_lane(lab, sessions, lambda conn: batches.execute(conn, ends))
    assert lab.status(row.id) == "succeeded"
    assert [one.id for one in lab.claim(worker)] == [later]


def test_01_without_the_fix_the_lane_is_stuck(
    lab: Lab, sessions: Sessions, broken: Statements, first: tuple[int, Claimed]
) -> None:
    """As one statement the finish admits nobody, and nobody else ever will."""
    worker, row = first
    params = {"lane": LANE, "id": row.id}
    _wait_for_the_lane(
        lab, sessions, lambda conn: conn.execute(broken.finish_and_admit, params).fetchall()
    )
    assert lab.status(row.id) == "succeeded"
    assert lab.claim(worker) == []
    assert lab.one("select count(*) from suimon.runs where status = 'queued' and not admitted") == 1


def test_01_the_sweep_admits_whose_submitter_died(lab: Lab, first: tuple[int, Claimed]) -> None:
    """Between a submit's commit and its admission: also where the lane has no row yet."""
    worker, row = first
    lab.end(worker, row)
    later = lab.submit_only("serial")
    lab.sql("delete from suimon.lanes")
    assert lab.claim(worker) == []
    assert lane.sweep(lab.conn) == 1
    assert [one.id for one in lab.claim(worker)] == [later]


def test_05_an_open_transaction_with_a_submit_holds_nobody_up(
    lab: Lab, sessions: Sessions, first: tuple[int, Claimed]
) -> None:
    """Submit takes no lock: finish and admission of its lane go on beside it."""
    worker, row = first
    caller, finisher = sessions("caller", "finisher")
    with caller.transaction():
        lab.submit_only("serial", conn=caller.conn)
        ends = lab.batch(worker, [lab.ended(row)])
        began = clock.monotonic()
        finisher.start(lambda conn: batches.execute(conn, ends)).done_in(10)
        assert clock.monotonic() - began < 5
        assert lab.status(row.id) == "succeeded"
    assert lane.admit(lab.conn, [LANE]) == ["default"]


def test_05_without_the_fix_the_worker_stands_still(
    lab: Lab, sessions: Sessions, broken: Statements, first: tuple[int, Claimed]
) -> None:
    """A submit that locks its lane stops every finish that touches it."""
    worker, row = first
    caller, finisher = sessions("caller", "finisher")
    with caller.transaction():
        caller.conn.execute(broken.lock_lane, {"lane": LANE})
        ends = lab.batch(worker, [lab.ended(row)])
        job = finisher.start(lambda conn: batches.execute(conn, ends))
        finisher.until_blocked()
        assert not job.done()
    job.done_in()


def test_05_two_callers_submit_in_opposite_order(lab: Lab, sessions: Sessions) -> None:
    """No deadlock in their own transactions, and all four runs exist."""
    lab.pipeline("a", concurrency=1)
    lab.pipeline("b", concurrency=1)
    one, two = sessions("one", "two")
    with one.transaction(), two.transaction():
        lab.submit_only("a", conn=one.conn)
        lab.submit_only("b", conn=two.conn)
        one.start(lambda conn: lab.submit_only("b", conn=conn)).done_in(5)
        two.start(lambda conn: lab.submit_only("a", conn=conn)).done_in(5)
    assert lab.statuses() == {"queued": 4}


def test_11_the_admitted_successor_goes_with_the_claim_of_the_same_transaction(
    lab: Lab, first: tuple[int, Claimed]
) -> None:
    """Finish, admission and claim are statements of their own."""
    worker, row = first
    later = lab.submit("serial")
    outcome = lab.end(worker, row, want=10)
    assert [one.id for one in outcome.claimed] == [later]


def test_11_without_the_fix_the_successor_is_not_seen(
    lab: Lab, broken: Statements, first: tuple[int, Claimed]
) -> None:
    """In one statement it is admitted and not claimed: the worker would go idle beside it."""
    worker, row = first
    later = lab.submit("serial")
    lab.end(worker, [row])
    lab.sql("update suimon.runs set admitted = false where id = %s", later)
    found = lab.conn.execute(broken.admit_and_claim, {"id": later, "worker": worker}).fetchone()
    assert found == (1, 0)


@pytest.mark.parametrize("limit", [1, 3])
def test_submitters_and_finishers_at_once_never_pass_the_limit(
    lab: Lab, sessions: Sessions, limit: int
) -> None:
    """Two admissions of one lane at the same time: the second counts after the first."""
    lab.pipeline("serial", concurrency=limit)
    for _ in range(limit + 2):
        lab.submit_only("serial")
    one, two = sessions("one", "two")
    one.hold(after=lane.SQL.lock)
    jobs = [one.start(lambda conn: lane.admit(conn, [LANE]))]
    one.until_held()
    jobs.append(two.start(lambda conn: lane.admit(conn, [LANE])))
    two.until_blocked()
    one.release()
    for job in jobs:
        job.done_in()
    assert lab.one("select count(*) from suimon.runs where admitted") == limit


def test_the_lanes_of_two_batches_are_locked_in_one_order(lab: Lab, sessions: Sessions) -> None:
    """Named in opposite order they wait for each other; they do not deadlock."""
    lab.pipeline("a", concurrency=1)
    lab.pipeline("b", concurrency=1)
    names = ["pipeline:a", "pipeline:b"]
    one, two = sessions("one", "two")

    def lock(order: list[str]) -> object:
        def act(conn: Connection) -> None:
            with transaction(conn):
                lane.lock(conn, order)

        return act

    one.hold(after=lane.SQL.lock)
    first = one.start(lock(names))  # type: ignore[arg-type]
    one.until_held()
    second = two.start(lock(names[::-1]))  # type: ignore[arg-type]
    two.until_blocked()
    one.release()
    first.done_in()
    second.done_in()
