"""A half-done run is held back for want of code while somebody admits in its lane."""

from __future__ import annotations

import pytest
from support.lab import Lab
from support.sessions import Sessions

from suimon.db.connect import Connection
from suimon.run import lane, wake
from suimon.worker import batch as batches
from suimon.worker.batch import Batch

LANE = "pipeline:p"


@pytest.fixture
def met(lab: Lab) -> tuple[Lab, Batch, str]:
    """A second try in the hands of a worker without its function, somebody behind it."""
    lab.pipeline("p", concurrency=1)
    run, _ = lab.submit("p"), lab.submit("p")
    worker = lab.worker()
    lab.again(worker, lab.claim(worker)[0])
    assert wake.wake_due(lab.conn) == 1
    (row,) = lab.claim(worker)
    assert row.id == run
    made = lab.batch(worker, [])
    made.held_back, made.begun, made.lanes = [(run, row.claim_no, "no_code:m:f")], [run], {LANE}
    return lab, made, run


def admit(conn: Connection) -> object:
    return lane.admit(conn, [LANE], late={LANE: 0})


def test_an_admission_that_waited_for_it_lets_nobody_in(
    met: tuple[Lab, Batch, str], sessions: Sessions
) -> None:
    """It counts after the lock: the place is kept."""
    lab, made, _ = met
    worker, other = sessions("worker", "other")
    with worker.transaction():
        batches.execute(worker.conn, made)
        job = other.start(admit)
        other.until_blocked()
    assert job.done_in() == []
    assert lab.claim(lab.worker(), 10) == []


def test_it_waits_for_an_admission_under_way_which_lets_nobody_in(
    met: tuple[Lab, Batch, str], sessions: Sessions
) -> None:
    """The other order: admitted as it still ran."""
    lab, made, run = met
    other, worker = sessions("other", "worker")
    other.hold(after=lane.SQL.lock)
    admitted = other.start(admit)
    other.until_held()
    job = worker.start(lambda conn: batches.execute(conn, made))
    worker.until_blocked()
    other.release()
    assert admitted.done_in() == []
    job.done_in()
    assert lab.claim(lab.worker(), 10) == []
    found = lab.one("select reason from suimon.runs where id = %s", run)
    assert found == "no_code:m:f"
