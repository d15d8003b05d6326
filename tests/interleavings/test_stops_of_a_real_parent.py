"""Cancels that meet a real worker at the awkward moments of a parent's life.

Between its steps a run stands in no slot and in no queue of the worker, only in a request to the
database: a cancel that comes then must not be lost, nor end the run in another state.
"""

from __future__ import annotations

import pytest
from support.engine import Engine
from support.engine_fixtures import engine

__all__ = ["engine"]
pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

CODE = """
@task
def items(n: int):
    for i in range(n):
        if i == 1500:
            note("half", i)
            await_mark("go on")
        yield {"i": i}

@task
def child(item):
    await_mark("children")
    return item["i"]

@task
def report(outcome, ctx):
    return outcome.counts["total"]

p = Pipeline("parents", concurrency="unlimited")
kids = p.spawn("kids", child, p.run("items", items, p.input.n))
p.run("report", report, p.merge("outcome", kids))
"""


@pytest.fixture
def deployed(engine: Engine) -> Engine:
    """Parents whose list stops half-way, and whose children wait for a mark."""
    engine.module("m", CODE)
    engine.deploy()
    return engine


def test_a_parent_cancelled_while_it_spawns_ends_cancelled(deployed: Engine) -> None:
    """Its next chunk is refused; it ends as what it was asked for, and not as a failure."""
    deployed.worker(slots=1)
    run = deployed.submit("parents", {"n": 3000})
    deployed.noted("half")
    deployed.cancel(run)
    deployed.project.mark("go on")
    deployed.wait(run, "cancelled")
    states = dict(
        deployed.sql(
            "select status::text, count(*) from suimon.runs where parent_id = %s group by 1", run
        )
    )
    assert set(states) == {"cancelled"}


def test_a_parent_cancelled_while_it_waits_ends_cancelled(deployed: Engine) -> None:
    """With one child at work, which listens or is ended."""
    deployed.project.mark("go on")
    deployed.worker(slots=1, cancel_grace_s=0.5)
    run = deployed.submit("parents", {"n": 5})
    reason = "select reason from suimon.runs where id = %s"
    deployed.until(lambda: deployed.one(reason, run) == "children", "it waits for its children")
    deployed.cancel(run)
    deployed.wait(run, "cancelled")


@pytest.mark.parametrize("delay", range(6))
def test_a_cancel_at_any_moment_ends_the_run_and_all_below_it(deployed: Engine, delay: int) -> None:
    """Placed by how many children have ended; whatever the moment, nothing stays behind."""
    deployed.project.mark("go on")
    deployed.project.mark("children")
    deployed.worker(slots=2)
    run = deployed.submit("parents", {"n": 400})
    ended = "select count(*) from suimon.runs where parent_id = %s and finished_at is not null"
    deployed.until(lambda: deployed.one(ended, run) >= delay * 80, f"{delay * 80} children ended")
    deployed.cancel(run)
    assert deployed.wait(run, None).status in ("cancelled", "succeeded")
    live = "select count(*) from suimon.runs where status in ('queued', 'running', 'waiting')"
    deployed.until(lambda: deployed.one(live) == 0, "nothing alive")
    assert (
        deployed.sql(
            "select id from suimon.fanouts where state = 'open' or not suimon.is_complete(fanouts)"
        )
        == []
    )
