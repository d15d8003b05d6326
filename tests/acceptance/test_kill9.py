"""kill -9 in the middle of a fan-out of 5,000: every child is done, and told once.

Each child appends `position attempt pid` to a file that the engine does not know. In the end every
position stands in that file; the database says of each at least as many tries as the file has
lines; the lines too many are at most what the killed process had in its hands; and the merge hands
on each position exactly once.
"""

from __future__ import annotations

from collections import Counter

import pytest
from support.engine import Engine
from support.wait import wait_until
from support.worker_process import WorkerProcess

from suimon.db.embedded import EmbeddedServer
from suimon.worker import processes

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

CHILDREN = 5000
CODE = f"""
@task
def numbers():
    return list(range({CHILDREN}))

@task
def child(n, ctx):
    note("lines", n, ctx.attempt, os.getpid())
    time.sleep(0.0003)
    return n

@task
def collect(outcome: MergeResult):
    return [[c.position, c.value] for c in outcome.succeeded]

p = Pipeline("fan")
items = p.run("items", numbers)
children = p.spawn("children", child, items)
p.run("collected", collect, p.merge("merged", children))
"""


def begin(engine: Engine, *, workers: int, **options: object) -> tuple[str, list[WorkerProcess]]:
    engine.module("m", CODE)
    engine.deploy()
    started = [engine.worker(slots=2 // workers, **options) for _ in range(workers)]
    return engine.submit("fan"), started


def reach(engine: Engine, percent: int) -> None:
    """Wait until so many lines are in the file, looking every millisecond."""
    file = engine.project.here / "lines"
    wanted = CHILDREN * percent // 100

    def enough() -> bool:
        # the shortest line has 6 bytes: reading begins only when there may be enough
        if not file.exists() or file.stat().st_size < wanted * 6:
            return False
        return file.read_bytes().count(b"\n") >= wanted

    wait_until(enough, 60, f"{wanted} lines there")


def check(engine: Engine, run_id: str, percent: int, allowed: int) -> None:
    """The promises of this file; `allowed` is how many lines too many there may be."""
    run = engine.wait(run_id)
    assert run.output == [[n, n] for n in range(CHILDREN)]
    lines = Counter(int(line[0]) for line in engine.project.lines("lines"))
    assert sorted(lines) == list(range(CHILDREN)), "a position never ran"
    tries = engine.sql(
        "select r.position, r.attempt, 1 + (select count(*) from suimon.attempts a"
        " where a.run_id = r.id) from suimon.runs r where r.parent_id = %s",
        run_id,
    )
    assert len(tries) == CHILDREN
    for position, attempt, recorded in tries:
        assert attempt == recorded, f"child {position}: a try was not recorded"
        assert 1 <= lines[position] <= attempt, f"child {position}"
    excess = sum(lines.values()) - CHILDREN
    assert excess <= allowed, f"{excess} repetitions at {percent} %; {allowed} were held"
    fanout = engine.sql(
        "select expected, succeeded, failed, timed_out, cancelled, settles from suimon.fanouts"
        " where parent_id = %s",
        run_id,
    )
    assert fanout == [(CHILDREN, CHILDREN, 0, 0, 0, 1)]


@pytest.mark.parametrize("percent", [25, 50, 75])
def test_kill_9_of_a_worker(own_engine: Engine, percent: int) -> None:
    run, (victim, _) = begin(own_engine, workers=2)
    reach(own_engine, percent)
    worker = own_engine.worker_id(victim)
    victim.kill9()
    held = own_engine.one(
        "select count(*) from suimon.runs where status = 'running' and worker_id = %s", worker
    )
    check(own_engine, run, percent, held)


@pytest.mark.parametrize("percent", [25, 50, 75])
def test_kill_9_of_a_slot(own_engine: Engine, percent: int) -> None:
    """A slot had one child in its hands: what stood behind it goes on elsewhere, uncounted."""
    run, (worker,) = begin(own_engine, workers=1)
    victim = worker.slots()[0]
    reach(own_engine, percent)
    processes.kill(victim)
    check(own_engine, run, percent, 1)
    assert own_engine.one("select count(*) from suimon.attempts where worker_id is not null") <= 1


@pytest.mark.parametrize("percent", [25, 50, 75])
def test_kill_9_of_postgresql(own_engine: Engine, own_server: EmbeddedServer, percent: int) -> None:
    """The server had no child in its hands: nothing is done twice, nobody leaves."""
    run, workers = begin(own_engine, workers=2, heartbeat_s=60.0)
    reach(own_engine, percent)
    own_server.kill9()
    own_server.start()
    check(own_engine, run, percent, 0)
    assert all(worker.running for worker in workers)


def test_kill_9_of_the_guardian(own_engine: Engine) -> None:
    """Both slots die with it, each with one child in its hands; the worker starts others."""
    run, (worker,) = begin(own_engine, workers=1)
    reach(own_engine, 50)
    processes.kill(worker.guardian())
    check(own_engine, run, 50, 2)
    assert worker.running
