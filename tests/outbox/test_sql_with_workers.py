"""suimon.submit and suimon.emit with a real worker and no sweep to help: who is idle is told."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from support.engine import Engine

pytestmark = pytest.mark.acceptance

CODE = """
from suimon import Event

@pipeline(concurrency=None)
def free(n: int) -> int:
    return n

@pipeline(concurrency=1)
def limited(n: int) -> int:
    return n

@pipeline(concurrency=None, on=Event("order.*"))
def hears(payload: dict) -> int:
    return payload["n"]
"""
CALLS = {
    "free": "select suimon.submit('free', '{\"n\": 1}')",
    "limited": "select suimon.submit('limited', '{\"n\": 1}')",
    "hears": "select suimon.emit('order.paid', '{\"n\": 1}')",
}
LEVELS = ["read committed", "repeatable read", "serializable"]
ENDED = "select count(*) from suimon.runs where pipeline = %s and status = 'succeeded'"


@pytest.fixture
def idle(engine: Engine) -> Engine:
    """One worker that sleeps, and sweeps only every ten minutes."""
    engine.module("work", CODE)
    engine.deploy()
    engine.worker(slots=1, sweep_s=600)
    asleep = "select count(*) from suimon.workers where idle and not dead"
    engine.until(lambda: engine.one(asleep) == 1, "the worker is idle")
    return engine


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("pipeline", list(CALLS))
def test_the_commit_wakes_whoever_goes_on(idle: Engine, level: str, pipeline: str) -> None:
    with closing(psycopg.connect(idle.url)) as caller:
        caller.execute(f"set transaction isolation level {level}".encode())
        caller.execute("select 1")
        caller.execute(CALLS[pipeline].encode())
        caller.commit()
        idle.until(lambda: idle.one(ENDED, pipeline) == 1, "the run has ended")


def test_twenty_sessions_one_after_the_other_leave_nobody_waiting(idle: Engine) -> None:
    """The worker falls asleep between them, in the middle of their transactions too."""
    for n in range(20):
        pipeline = list(CALLS)[n % 3]
        with closing(psycopg.connect(idle.url)) as caller:
            caller.execute(CALLS[pipeline].encode())
            before = idle.one(ENDED, pipeline)
            caller.commit()
        idle.until(lambda p=pipeline, b=before: idle.one(ENDED, p) == b + 1, f"call {n} has ended")


@pytest.mark.parametrize("pipeline", list(CALLS))
def test_a_worker_that_cannot_listen_finds_what_was_asked(engine: Engine, pipeline: str) -> None:
    """Nobody hears the notification, and no sweep helps: it looks once a second."""
    engine.module("work", CODE)
    engine.deploy()
    engine.worker(slots=1, sweep_s=600, listen_url="postgresql://nobody@127.0.0.1:1/none")
    swept = "select count(*) from suimon.duties where last_at is null"
    engine.until(lambda: engine.one(swept) == 0, "its first sweep is over, the next is far away")
    with closing(psycopg.connect(engine.url, autocommit=True)) as caller:
        caller.execute(CALLS[pipeline].encode())
    engine.until(lambda: engine.one(ENDED, pipeline) == 1, "the run has ended")
