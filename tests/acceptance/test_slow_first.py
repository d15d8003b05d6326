"""A run that takes much longer than its kind: what stands behind it goes elsewhere."""

from __future__ import annotations

import pytest
from support.engine import Engine

pytestmark = pytest.mark.acceptance

CODE = """
@pipeline(concurrency=None)
def quick(n=0):
    if n < 0:
        note("blocked", n)
        await_mark("go")
    return n
"""


def test_what_a_slow_first_run_leaves_unstarted_is_released_to_other_workers(
    engine: Engine,
) -> None:
    """Runs of microseconds are claimed by the hundred; then one of them blocks. With no slot free
    here the rest goes back uncounted, stays in the queue, and another worker takes it.
    """
    engine.module("m", CODE)
    engine.deploy()
    first = engine.worker(slots=2, heartbeat_s=2.0)
    engine.wait_all(engine.submit_many("quick", [{"n": n} for n in range(500)]))
    blockers = engine.submit_many("quick", [{"n": -1}, {"n": -2}])
    engine.noted("blocked", 2)
    behind = engine.submit_many("quick", [{"n": n} for n in range(500)])
    running = "select count(*) from suimon.runs where status = 'running'"
    stands = "select count(*) from suimon.runs where status = 'queued' and attempt = 0"
    engine.until(lambda: engine.one(running) == 2 and engine.one(stands) == 500, "released")
    engine.worker(slots=1, heartbeat_s=2.0)
    engine.wait_all(behind)
    assert [engine.run(run).status for run in blockers] == ["running"] * 2
    assert engine.one("select max(attempt) from suimon.runs") == 1
    assert first.running
    engine.project.mark("go")
    engine.wait_all(blockers)


def test_a_waiting_worker_is_woken_for_what_another_released(engine: Engine) -> None:
    """The same with the second worker idle from the beginning: nobody submits once more."""
    engine.module("m", CODE)
    engine.deploy()
    engine.worker(slots=1, heartbeat_s=2.0)
    engine.wait_all(engine.submit_many("quick", [{"n": n} for n in range(500)]))
    blocker = engine.submit("quick", {"n": -1})
    engine.noted("blocked")
    engine.worker(slots=1, heartbeat_s=2.0)
    behind = engine.submit_many("quick", [{"n": n} for n in range(500)])
    engine.wait_all(behind)
    assert engine.run(blocker).status == "running"
    engine.project.mark("go")
    engine.wait(blocker)
