"""`async def` tasks share a slot: fifty at once, and what ends one of them leaves the others be."""

from __future__ import annotations

import pytest
from support.engine import Engine

pytestmark = pytest.mark.acceptance

SHARED = 50
CODE = '''
@pipeline(concurrency=None)
async def waits(n=0):
    note("begun", n, os.getpid())
    while not os.path.exists(path("go")):
        await asyncio.sleep(0.01)
    return [n, os.getpid()]

@pipeline(concurrency=None, timeout="400ms")
async def hangs():
    note("hangs", os.getpid())
    await asyncio.sleep(1000)

@pipeline(concurrency=None, timeout="400ms")
async def blocks():
    """Deaf: it never gives the loop back, so its slot has to end."""
    note("blocks", os.getpid())
    time.sleep(1000)

@pipeline(concurrency=None)
async def crashes():
    note("crashes", os.getpid())
    ctypes.string_at(0)
'''


@pytest.fixture
def deployed(engine: Engine) -> Engine:
    engine.module("m", CODE)
    engine.deploy()
    return engine


def test_fifty_async_tasks_run_at_once_in_one_slot(deployed: Engine) -> None:
    deployed.worker(slots=1, async_per_slot=SHARED)
    runs = deployed.submit_many("waits", [{"n": n} for n in range(SHARED + 10)])
    deployed.noted("begun", SHARED)
    assert deployed.one("select count(*) from suimon.runs where status = 'succeeded'") == 0
    assert len(deployed.project.lines("begun")) == SHARED, "more than were allowed"
    deployed.project.mark("go")
    deployed.wait_all(runs)
    assert len({tuple(deployed.run(run).output)[1] for run in runs}) == 1


def test_one_that_times_out_is_cancelled_and_its_neighbours_finish_untouched(
    deployed: Engine,
) -> None:
    worker = deployed.worker(slots=1, async_per_slot=SHARED)
    slots = worker.slots()
    runs = deployed.submit_many("waits", [{"n": n} for n in range(SHARED - 1)])
    hung = deployed.submit("hangs")
    deployed.noted("begun", SHARED - 1)
    run = deployed.wait(hung, "timed_out")
    assert "0.4 s" in run.error["message"] or "timeout" in run.error["message"]
    assert worker.slots() == slots, "the slot was ended for it"
    deployed.project.mark("go")
    deployed.wait_all(runs)
    assert {deployed.run(run).attempt for run in runs} == {1}
    assert len(deployed.project.lines("begun")) == SHARED - 1


@pytest.mark.slow
def test_one_that_cannot_be_cancelled_ends_the_slot_and_its_neighbours_begin_again_uncounted(
    deployed: Engine,
) -> None:
    """It blocks the loop: after the grace its slot is ended, it alone has timed out."""
    deployed.worker(slots=1, async_per_slot=SHARED)
    runs = deployed.submit_many("waits", [{"n": n} for n in range(5)])
    deployed.noted("begun", 5)
    run = deployed.wait(deployed.submit("blocks"), "timed_out")
    assert run.attempt == 1
    deployed.noted("begun", 10)
    deployed.project.mark("go")
    deployed.wait_all(runs)
    rows = deployed.sql(
        "select distinct attempt, interruptions from suimon.runs where pipeline = 'waits'"
    )
    assert rows == [(1, 0)], "innocent neighbours are not counted"


def test_one_that_crashes_the_slot_is_found_among_its_neighbours(deployed: Engine) -> None:
    """All that had begun are tried again, alone after the second time: the one that kills ends
    poisoned, its neighbours well.
    """
    deployed.worker(slots=2, async_per_slot=10)
    runs = deployed.submit_many("waits", [{"n": n} for n in range(5)])
    deployed.noted("begun", 5)
    submitted = deployed.submit("crashes")
    deployed.noted("crashes", 2)
    deployed.project.mark("go")
    bad = deployed.wait(submitted, "failed")
    assert bad.error["type"] == "Poisoned"
    assert len(deployed.project.lines("crashes")) == 4
    deployed.wait_all(runs)
    assert deployed.one("select max(interruptions) from suimon.runs where pipeline = 'waits'") <= 3
