"""SIGTERM: finish what runs, release what has not begun, uncounted. Twice, or too long: leave now.

A worker that leaves takes its guardian, its slots and all below them along.
"""

from __future__ import annotations

import os
import signal

import pytest
from support.engine import Engine
from support.worker_process import WorkerProcess

from suimon.db.embedded import EmbeddedServer

pytestmark = pytest.mark.acceptance

CODE = """
@pipeline(concurrency=None)
def held(n=0):
    note("begun", n, os.getpid())
    await_mark("go")
    note("done", n)
    return n

@pipeline(concurrency=None)
def stubborn():
    note("begun", "stubborn", os.getpid())
    subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000"], start_new_session=True)
    while True:
        try:
            time.sleep(1000)
        except Cancelled:
            pass
"""


@pytest.fixture
def deployed(engine: Engine) -> Engine:
    engine.module("m", CODE)
    engine.deploy()
    return engine


def begin(engine: Engine, runs: int = 6, **options: object) -> tuple[WorkerProcess, list[str]]:
    """A worker with two slots, both busy; the other runs stand in the queue or in its hands."""
    worker = engine.worker(slots=2, **options)
    made = engine.submit_many("held", [{"n": n} for n in range(runs)])
    engine.noted("begun", 2)
    return worker, made


def untouched(engine: Engine, runs: list[str]) -> None:
    """These stand in the queue as if nobody had ever claimed them."""
    rows = engine.sql(
        "select status::text, attempt, interruptions, worker_id from suimon.runs"
        " where id = any(%s::uuid[])",
        runs,
    )
    assert rows == [("queued", 0, 0, None)] * len(runs)
    assert not engine.sql("select * from suimon.attempts")


def test_a_drain_finishes_what_runs_and_releases_the_rest_uncounted(deployed: Engine) -> None:
    worker, runs = begin(deployed)
    worker.term()
    deployed.until(
        lambda: deployed.one("select draining from suimon.workers"), "the worker says it drains"
    )
    deployed.until(
        lambda: deployed.one("select count(*) from suimon.runs where status = 'queued'") == 4,
        "four runs released",
    )
    untouched(deployed, runs[2:])
    assert worker.running
    deployed.project.mark("go")
    assert worker.wait() == 0
    assert [deployed.run(run).status for run in runs[:2]] == ["succeeded", "succeeded"]
    untouched(deployed, runs[2:])
    assert len(deployed.project.lines("begun")) == 2
    deployed.none_left()
    deployed.worker(slots=2)
    deployed.wait_all(runs)


def test_a_draining_worker_still_hears_a_cancel(deployed: Engine) -> None:
    worker, runs = begin(deployed, 2)
    worker.term()
    deployed.until(
        lambda: deployed.one("select draining from suimon.workers"), "the worker says it drains"
    )
    deployed.cancel(*runs)
    assert [deployed.wait(run, None).status for run in runs] == ["cancelled", "cancelled"]
    assert worker.wait() == 0


@pytest.mark.parametrize("how", ["second signal", "drain timeout"])
def test_leaving_at_once_releases_what_runs_uncounted(deployed: Engine, how: str) -> None:
    worker, runs = begin(deployed, 5, drain_timeout_s=0.3 if how == "drain timeout" else None)
    worker.term()
    if how == "second signal":
        deployed.until(
            lambda: deployed.one("select draining from suimon.workers"), "it says it drains"
        )
        worker.term()
    assert worker.wait() == 0
    untouched(deployed, runs)
    deployed.none_left()
    deployed.project.mark("go")
    deployed.worker(slots=2)
    deployed.wait_all(runs)


def test_leaving_at_once_ends_what_a_task_has_hidden(deployed: Engine) -> None:
    worker = deployed.worker(slots=1, drain_timeout_s=0.2)
    run = deployed.submit("stubborn")
    deployed.noted("begun")
    worker.term()
    assert worker.wait() == 0
    deployed.none_left()
    assert deployed.run(run).status == "queued"
    deployed.cancel(run)


def test_an_idle_worker_leaves_at_once(deployed: Engine) -> None:
    worker = deployed.worker(slots=2)
    worker.term()
    assert worker.wait(10) == 0
    assert deployed.one("select count(*) from suimon.workers where not dead") == 0
    deployed.none_left()


@pytest.mark.parametrize("holding", [False, True])
def test_a_worker_leaves_although_its_database_has_gone(
    own_engine: Engine, own_server: EmbeddedServer, *, holding: bool
) -> None:
    """Told once when it holds nothing, twice when it does; what it held is taken back by others."""
    own_engine.module("m", CODE)
    own_engine.deploy()
    worker = own_engine.worker(slots=2)
    runs = own_engine.submit_many("held", [{"n": n} for n in range(2)]) if holding else []
    own_engine.noted("begun", len(runs))
    own_engine.until(lambda: holding or own_engine.slots_idle(), "the worker has settled")
    assert own_server.pid
    os.kill(own_server.pid, signal.SIGQUIT)
    own_engine.until(lambda: "trying again" in worker.log, "it misses its database")
    worker.term()
    if holding:
        own_engine.until(lambda: "draining" in worker.log, "it waits for what runs")
        worker.term()
    assert worker.wait() == 0
    own_engine.none_left()
    own_server.ensure_running()
    own_engine.project.mark("go")
    own_engine.worker(slots=2)
    own_engine.wait_all(runs)
