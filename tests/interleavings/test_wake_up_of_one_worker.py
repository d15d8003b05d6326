"""Finding 2 with a real worker, alone: nobody else's wake-up can cover a lost one.

A submit looks whether somebody is idle and stays open for some milliseconds after that, while the
worker goes idle. Each run must have ended long before the second after which anything would look
again by itself.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from support import engine as engines
from support.engine import Engine
from support.engine_fixtures import engine

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
"""


def _latency(engine: Engine, rng: random.Random) -> float:
    """Seconds from the commit of one submit to the end of its run, or more than that is late."""
    conn = engine.conn
    with conn.transaction():
        run = submit.submit(conn, "p", [Request(b'{"n":1}')])[0].id
        time.sleep(rng.random() * 0.006)  # a caller's own work after its submit
    began = time.monotonic()
    while time.monotonic() - began < LATE_SECONDS:
        if engine.run(run).over:
            return time.monotonic() - began
        time.sleep(0.0005)
    return LATE_SECONDS


def _start(engine: Engine) -> random.Random:
    engine.module("m", CODE)
    engine.deploy()
    engine.worker(slots=1, duties=False, sweep_s=600.0, heartbeat_s=1.0)
    engine.wait(engine.submit("p", {"n": 0}))
    return random.Random(2)


def test_02_none_of_150_submits_waits_for_a_timeout(engine: Engine) -> None:
    """However the idle flag and the commit fall together."""
    rng = _start(engine)
    found = sorted(_latency(engine, rng) for _ in range(SUBMITS))
    late = sum(seconds >= LATE_SECONDS for seconds in found)
    print(f"median {found[75] * 1000:.1f} ms, p99 {found[148] * 1000:.1f} ms, max {found[-1] * 1000:.1f} ms")
    assert late == 0, found[-late:]


def test_02_without_the_proof_some_do(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same worker that takes its idle flag for seen: this test would notice."""
    naive = Path(engines.__file__).with_name("worker_main_naive.py")
    monkeypatch.setattr(engines, "MAIN", naive)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(naive.parents[1]), os.environ.get("PYTHONPATH", "")]))
    rng = _start(engine)
    assert any(_latency(engine, rng) >= LATE_SECONDS for _ in range(SUBMITS))
