"""A wait without an instant has no timer: the run is parked until somebody ends it."""

from __future__ import annotations

from support.lab import Lab

from suimon.db.connect import Connection
from suimon.run import approvals, wait, wake
from suimon.run.spawn import Holder


def test_a_signal_without_a_timeout_sets_no_timer(conn: Connection) -> None:
    """It was woken at once, again and again, while PostgreSQL's greatest(null, 0) was 0."""
    lab = Lab(conn)
    lab.pipeline("p")
    worker = lab.worker()
    row = lab.claim_run(worker, lab.submit("p"))
    holder = Holder(row.id, row.claim_no, worker)
    assert wait.wait_for(conn, holder, "w", signal="s") == wait.Waited(over=False, in_s=None)
    assert wait.park(conn, holder, [wait.On(signal="s")], grace_s=10) == (True, None)
    assert wake.wake_due(conn) == 0
    assert lab.status(row.id) == "waiting"


def test_an_approval_that_never_expires_sets_no_timer(conn: Connection) -> None:
    lab = Lab(conn)
    lab.pipeline("p")
    worker = lab.worker()
    row = lab.claim_run(worker, lab.submit("p"))
    found = approvals.ask(
        conn, Holder(row.id, row.claim_no, worker), "a", pipeline="p", show=b"{}", required=True,
        title=None, role=None, quorum=1, expires_s=None,
    )  # fmt: skip
    assert found is None
