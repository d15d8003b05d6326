"""C55, C58: fail-fast and a cancel also reach children that wait for a destination's turn."""

from __future__ import annotations

import pytest
from support.engine import Engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.long]

CODE = """
from suimon import Destination

slow = Destination("slow", rate="1/s", burst=1)

@task(destination=slow)
def call(n, ctx):
    if n == 0:
        raise Fatal("the first one fails")
    note("called", n)

strict = Pipeline("strict", concurrency=None)
strict.merge("all", strict.spawn("each", call, strict.input.items), fail_fast=True)
plain = Pipeline("plain", concurrency=None)
plain.merge("all", plain.spawn("each", call, plain.input.items))
"""
PARKED = "select count(*) from suimon.runs where reason = 'limit:slow'"


def start(engine: Engine) -> None:
    engine.module("m", CODE)
    engine.deploy()
    engine.worker(slots=2)


def test_c55_children_that_wait_for_a_rate_limit_are_cancelled_too(engine: Engine) -> None:
    start(engine)
    run = engine.submit("strict", {"items": list(range(1, 80))})
    engine.until(lambda: engine.one(PARKED) >= 20, "children that wait for their turn")
    late = engine.submit("strict", {"items": [0, *range(1, 40)]})
    engine.cancel(run)
    engine.wait(run, "cancelled")
    # the failing one comes in its turn; the last of its fan-out would be called 40 s later
    engine.wait(late, "failed", patience=90)
    states = dict(
        engine.sql(
            "select status::text, count(*) from suimon.runs where parent_id = %s group by 1", late
        )
    )
    assert states["failed"] == 1
    assert states["cancelled"] >= 1
    assert states["cancelled"] + states.get("succeeded", 0) == 39
    assert engine.one(PARKED) == 0


def test_c58_cancel_reaches_children_that_wait_for_a_rate_limit(engine: Engine) -> None:
    start(engine)
    run = engine.submit("plain", {"items": list(range(1, 200))})
    engine.until(lambda: engine.one(PARKED) >= 100, "children that wait for their turn")
    engine.cancel(run)
    engine.wait(run, "cancelled")
    assert engine.one(PARKED) == 0
    called = len(engine.project.lines("called"))
    other = engine.submit("plain", {"items": [1]})
    engine.wait(other)
    assert len(engine.project.lines("called")) <= called + 2
    left = "select count(*) from suimon.leases where expires_at > clock_timestamp()"
    engine.until(lambda: engine.one(left) == 0, "no places held", 30)
