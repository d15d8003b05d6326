"""A pause is lifted in the moment in which a worker obeys it: no run may be left behind."""

from __future__ import annotations

import pytest
from support.lab import Lab
from support.sessions import Sessions

from suimon.db.connect import Connection
from suimon.run import claim, lane, pause
from suimon.worker import batch as batches
from suimon.worker.batch import Batch


@pytest.fixture(params=["unlimited", 1])
def met(lab: Lab, request: pytest.FixtureRequest) -> tuple[Lab, Batch]:
    """A run of a paused pipeline in a worker's hands, and the batch that gives it back."""
    lab.pipeline("p", concurrency=request.param)
    lab.submit("p")
    pause.pause(lab.conn, "pipeline:p", "me")
    worker = lab.worker()
    (row,) = lab.claim(worker)
    made = lab.batch(worker, [])
    made.held_back = [(row.id, row.claim_no, f"paused:{row.paused}")]
    made.lanes = {row.lane} if row.lane is not None else set()
    return lab, made


def resume(conn: Connection) -> object:
    return pause.resume(conn, "pipeline:p", "me")


def claimable(lab: Lab) -> int:
    return len(lab.claim(lab.worker(), 10))


def test_a_resume_waits_for_the_worker_that_obeys(
    met: tuple[Lab, Batch], sessions: Sessions
) -> None:
    """Held back and not yet committed: the resume would not see the row, and nobody would later."""
    lab, made = met
    worker, operator = sessions("worker", "operator")
    with worker.transaction():
        batches.execute(worker.conn, made)
        job = operator.start(resume)
        operator.until_blocked()
    job.done_in()
    assert claimable(lab) == 1


def test_a_worker_that_waited_for_a_resume_leaves_the_run_in_the_queue(
    met: tuple[Lab, Batch], sessions: Sessions
) -> None:
    """Its statement began while the pause was there; what it saw is looked at again."""
    lab, made = met
    operator, worker = sessions("operator", "worker")
    operator.hold(after=pause.SQL.resume)
    resumed = operator.start(resume)
    operator.until_held()
    job = worker.start(lambda conn: batches.execute(conn, made))
    worker.until_blocked()
    operator.release()
    resumed.done_in()
    job.done_in()
    assert claimable(lab) == 1


def test_an_admission_that_saw_the_pause_does_not_outlast_it(lab: Lab, sessions: Sessions) -> None:
    """The resume's own admission waits for the lane and looks again."""
    lab.pipeline("p", concurrency=1)
    pause.pause(lab.conn, "pipeline:p", "me")
    lab.submit("p")
    worker, operator = sessions("worker", "operator")
    with worker.transaction():
        lane.lock(worker.conn, ["pipeline:p"])
        assert lane.admitted(lane.send_admit(worker.conn, ["pipeline:p"])) == set()
        job = operator.start(resume)
        operator.until_blocked()
    job.done_in()
    assert claimable(lab) == 1


def test_a_count_of_failures_that_met_a_resume_counts_again(lab: Lab, sessions: Sessions) -> None:
    """Both at the same moment: the operator's word is the later one, whoever looked first."""
    lab.pipeline("p", triggers=[{"type": "EVENT", "event": "x"}], pauseAfter=1)
    worker = lab.worker()
    lab.end(worker, lab.claim_run(worker, lab.submit("p")), "failed")
    operator, duty = sessions("operator", "duty")
    operator.hold(after=pause.SQL.forgive)
    resumed = operator.start(resume)
    operator.until_held()
    job = duty.start(lambda conn: pause.check(conn, "p"))
    duty.until_blocked()
    operator.release()
    resumed.done_in()
    assert job.done_in() == 0
    assert pause.listed(lab.conn) == []


def test_two_duties_write_one_pause(lab: Lab, sessions: Sessions) -> None:
    lab.pipeline("p", triggers=[{"type": "EVENT", "event": "x"}], pauseAfter=1)
    worker = lab.worker()
    lab.end(worker, lab.claim_run(worker, lab.submit("p")), "failed")
    one, two = sessions("one", "two")
    one.hold(after=pause.SQL.pause_by_itself)
    first = one.start(lambda conn: pause.check(conn, "p"))
    one.until_held()
    second = two.start(lambda conn: pause.check(conn, "p"))
    two.until_blocked()
    one.release()
    assert (first.done_in(), second.done_in()) == (1, 0)
    assert len(pause.listed(lab.conn)) == 1


def test_a_claim_in_a_transaction_of_its_own_sees_the_pause_with_its_commit(
    lab: Lab, sessions: Sessions
) -> None:
    lab.pipeline("p")
    lab.submit("p")
    worker = lab.worker()
    (operator,) = sessions("operator")
    with operator.transaction():
        pause.pause(operator.conn, "pool:default", "me")
        (row,) = lab.claim(worker)
        claim.release(lab.conn, worker, [(row.id, row.claim_no)])
    assert lab.claim(worker) == []
