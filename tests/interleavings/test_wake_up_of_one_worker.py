"""Finding 2 with a real worker, alone: nobody else's wake-up can cover a lost one.

A submit looks whether somebody is idle and stays open for some milliseconds after that, while the
worker goes idle. Each run must have ended long before the second after which anything would look
again by itself.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import engine as engines
from support.engine import Engine
from support.engine_fixtures import engine
from support.wait import wait_until

from suimon.db.connect import connect
from suimon.run import submit
from suimon.run.submit import Request

SUBMITS = 150
LATE_SECONDS = 0.9
__all__ = ["engine"]
pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

CODE = """
@task
def nothing(n: int) -> int:
    return n

p = Pipeline("p", concurrency="unlimited")
p.run("nothing", nothing, p.input.n)

@task
def busy() -> None:
    time.sleep(0.3)

q = Pipeline("q", concurrency="unlimited")
q.run("busy", busy)
"""


def _latency(engine: Engine, hold: Callable[[], object]) -> float:
    """Seconds from the commit of one submit to the end of its run; LATE_SECONDS: it is late."""
    conn = engine.conn
    with conn.transaction():
        run = submit.submit(conn, "p", [Request(b'{"n":1}')])[0].id
        hold()
    began = time.monotonic()
    while time.monotonic() - began < LATE_SECONDS:
        if engine.run(run).over:
            return time.monotonic() - began
        time.sleep(0.0005)
    return LATE_SECONDS


@pytest.fixture
def until_idle(engine: Engine) -> Iterator[Callable[[], object]]:
    """Holds a transaction open until the worker has said that it is idle, the worst moment."""
    flag = "select bool_or(idle) from suimon.workers where not dead"
    with connect(engine.url, name="watcher") as watcher:
        yield lambda: wait_until(lambda: watcher.execute(flag).fetchone() == (True,), 20, "idle")


def _start(engine: Engine) -> None:
    engine.module("m", CODE)
    engine.deploy()
    engine.worker(slots=1, duties=False, sweep_s=600.0, heartbeat_s=1.0)
    engine.wait(engine.submit("p", {"n": 0}))


def test_02_none_of_150_submits_waits_for_a_timeout(engine: Engine) -> None:
    """However the idle flag and the commit fall together."""
    _start(engine)
    rng = random.Random(2)
    # a caller's own work between its submit and its commit
    found = sorted(
        _latency(engine, lambda: time.sleep(rng.random() * 0.006)) for _ in range(SUBMITS)
    )
    late = sum(seconds >= LATE_SECONDS for seconds in found)
    median, p99, last = (found[place] * 1000 for place in (75, 148, -1))
    print(f"median {median:.1f} ms, p99 {p99:.1f} ms, max {last:.1f} ms")
    assert late == 0, found[-late:]


def test_02_nor_does_one_that_commits_when_the_worker_has_gone_idle(
    engine: Engine, until_idle: Callable[[], object]
) -> None:
    """Not idle when the submit looked, notified by nobody: it finds the run all the same."""
    _start(engine)
    assert max(_latency(engine, until_idle) for _ in range(30)) < LATE_SECONDS


def test_02_without_the_proof_some_do(
    engine: Engine, until_idle: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same worker that takes its idle flag for seen: this test would notice."""
    naive = Path(engines.__file__).with_name("worker_main_naive.py")
    monkeypatch.setattr(engines, "MAIN", naive)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(naive.parents[1]), os.environ.get("PYTHONPATH", "")])
    )
    _start(engine)
    busy = "select not bool_or(idle) from suimon.workers where not dead"

    def missed() -> bool:
        """Submitted while the worker is at work, committed when it has just said "idle"."""
        engine.submit("q", {})
        engine.until(lambda: engine.one(busy), "at work")
        return _latency(engine, until_idle) >= LATE_SECONDS

    assert any(missed() for _ in range(10))
