"""ctx.emit with real workers: told when the step has ended well, once, whatever happens."""

from __future__ import annotations

import os
import signal

import pytest
from support.engine import Engine

pytestmark = pytest.mark.acceptance

CODE = """
from suimon import Event

@pipeline(concurrency=None, retries=3, backoff="10ms")
def tells(n: int, how: str, ctx):
    for i in range(n):
        ctx.emit("order.paid", {"i": i, "run": ctx.run_id, "attempt": ctx.attempt})
    if how == "fails once" and ctx.attempt == 1:
        raise ValueError("not yet")
    if how == "waits":
        note("begun", os.getpid())
        await_mark("go")
    if how == "too many":
        ctx.emit("order.paid", "x" * 2_000_000)
    return n

@pipeline(concurrency=None, retries=0)
async def tells_async(n: int, ctx):
    await asyncio.sleep(0)
    for i in range(n):
        ctx.emit("order.sent", {"i": i, "run": ctx.run_id})

@task
def first(n, ctx):
    ctx.emit("order.first", {"n": n})
    return n

@task
def items(n, ctx):
    ctx.emit("order.list", {"n": n})
    for i in range(n):
        yield i

@task
def one(item, ctx):
    ctx.emit("order.item", {"item": item})

@task
def last(outcome, ctx):
    ctx.emit("order.last", {"n": outcome.counts.total})

p = Pipeline("steps", concurrency=None)
n = p.run("first", first, p.input.n)
kids = p.spawn("kids", one, p.run("items", items, n))
p.run("last", last, p.merge("outcome", kids))

@pipeline(concurrency=None, on=Event("order.*"))
def hears(type: str, payload: dict, event_id: str, occurred_at: str):
    note("heard", type, json.dumps(payload, sort_keys=True))
"""


@pytest.fixture
def doors(engine: Engine) -> Engine:
    engine.module("events", CODE)
    engine.deploy()
    return engine


def heard(engine: Engine, n: int) -> list[str]:
    """The events that were heard when all is quiet; `n` of them are expected."""
    quiet = (
        "select not exists (select from suimon.deliveries where state = 'waiting')"
        " and not exists (select from suimon.runs where finished_at is null)"
    )
    engine.until(lambda: engine.one(quiet), "all is quiet")
    lines = [" ".join(line) for line in engine.project.lines("heard")]
    assert len(lines) == n, f"{lines}\n{engine.story()}"
    return sorted(lines)


def test_events_start_runs_and_a_try_that_failed_told_nothing(doors: Engine) -> None:
    doors.worker(slots=2)
    run = doors.submit("tells", {"n": 3, "how": "fails once"})
    doors.wait(run)
    lines = heard(doors, 3)
    assert all('"attempt": 2' in line for line in lines)
    assert doors.one("select count(*) from suimon.events where run_id = %s", run) == 3
    other = doors.submit("tells_async", {"n": 2})
    doors.wait(other)
    heard(doors, 5)


def test_every_step_tells_with_its_record(doors: Engine) -> None:
    doors.worker(slots=2)
    doors.wait(doors.submit("steps", {"n": 3}))
    lines = heard(doors, 6)
    kinds = [line.split()[0] for line in lines]
    assert kinds == ["order.first", *["order.item"] * 3, "order.last", "order.list"]


def test_a_step_that_tells_too_much_fails_and_tells_nothing(doors: Engine) -> None:
    doors.worker(slots=1)
    run = doors.wait(doors.submit("tells", {"n": 1, "how": "too many"}), "failed")
    assert run.error["code"] == "SUI-4002"
    run = doors.wait(doors.submit("tells", {"n": 1001, "how": ""}), "failed")
    assert "at most 1,000 events" in run.error["message"]
    heard(doors, 0)


def test_a_slot_that_dies_has_told_nothing_and_the_next_try_tells_once(doors: Engine) -> None:
    doors.worker(slots=1)
    run = doors.submit("tells", {"n": 2, "how": "waits"})
    ((pid,),) = doors.noted("begun")
    os.kill(int(pid), signal.SIGKILL)
    doors.noted("begun", 2)
    assert doors.one("select count(*) from suimon.events") == 0
    (doors.project.here / "go").touch()
    doors.wait(run)
    heard(doors, 2)


def test_a_worker_that_dies_has_told_nothing_and_the_next_one_tells_once(doors: Engine) -> None:
    first = doors.worker(slots=1)
    run = doors.submit("tells", {"n": 2, "how": "waits"})
    doors.noted("begun")
    first.kill9()
    doors.worker(slots=1)
    doors.noted("begun", 2)
    (doors.project.here / "go").touch()
    doors.wait(run)
    heard(doors, 2)
    assert doors.one("select count(*) from suimon.events") == 2
