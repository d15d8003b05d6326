"""What real workers say of themselves, and what `status` makes of it."""

from __future__ import annotations

import pytest
from support.engine import Engine

from suimon.run import health, pause

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

PLAIN = """
@pipeline(concurrency=None)
def quick(n: int) -> int:
    return n

@pipeline(name="held", concurrency=None)
def held() -> None:
    note("began", 1)
    await_mark("go")
"""


def test_starts_and_ends_of_the_last_minute_come_with_the_heartbeat(engine: Engine) -> None:
    engine.module("m", PLAIN)
    engine.deploy()
    engine.worker()
    engine.wait_all(engine.submit_many("quick", [{"n": n} for n in range(30)]))

    def counts() -> tuple[int, int]:
        found = health.overall(engine.conn)["counts"]
        return found["starts_last_minute"], found["ends_last_minute"]

    engine.until(lambda: counts() == (30, 30), "the next beat says so")


def test_a_worker_that_dies_leaves_lost_runs_until_they_are_taken_back(engine: Engine) -> None:
    """Seen before anybody has buried it."""
    engine.module("m", PLAIN)
    engine.deploy()
    worker = engine.worker(slots=1)
    run = engine.submit("held")
    engine.noted("began")
    worker.kill9()
    engine.until(lambda: health.overall(engine.conn)["counts"]["lost"] == 1, "the run is lost")
    engine.worker(slots=1)
    engine.until(lambda: health.overall(engine.conn)["counts"]["lost"] == 0, "it is taken back")
    engine.project.mark("go")
    engine.wait(run)


def test_a_run_that_has_begun_ends_while_its_pipeline_and_pool_are_paused(engine: Engine) -> None:
    engine.module("m", PLAIN)
    engine.deploy()
    engine.worker(slots=1)
    begun = engine.submit("held")
    engine.noted("began")
    pause.pause(engine.conn, "pipeline:held", "me")
    pause.pause(engine.conn, "pool:default", "me")
    waiting = engine.submit("held")
    engine.project.mark("go")
    engine.wait(begun)
    assert engine.run(waiting).status == "queued"
    pause.resume(engine.conn, "pool:default", "me")
    engine.until(
        lambda: engine.one("select not admitted from suimon.runs where id = %s", waiting),
        "a claim has met it and held it back",
    )
    pause.resume(engine.conn, "pipeline:held", "me")
    engine.wait(waiting)
