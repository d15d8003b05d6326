"""Destinations with real workers: the far side counts, and what it counts is what was allowed.

The server is a process of its own that notes each call's beginning, end and caller. Workers and
slots are killed and frozen meanwhile. The figures of the full size are the bench's.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.counting_server import Call, CountingServer, most_at_once, worst_window
from support.engine import Engine

from suimon.run import destinations, why

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.long]

OPEN = {"SUIMON_ALLOW_ADDRESSES": "127.0.0.1"}

CODE = """
from suimon import Destination, Fatal

far = Destination("far", base_url="{url}", timeout="5s", {limits})
PID = {{"X-Pid": str(os.getpid())}}

@task
async def call(n, ctx):
    answer = await ctx.http("far").get("/" + str(n), headers=PID)
    return answer.raise_for_status().status_code

@task(destination=far)
def turn(n, ctx):
    return ctx.http("far").get("/" + str(n), headers=PID).status_code

@task
def other(n):
    return n

calls = Pipeline("calls", concurrency=None)
calls.merge("all", calls.spawn("each", call, calls.input.items))
turns = Pipeline("turns", concurrency=None)
turns.merge("all", turns.spawn("each", turn, turns.input.items))
others = Pipeline("others", concurrency=None)
others.merge("all", others.spawn("each", other, others.input.items))
"""


def set_up(
    engine: Engine, far: CountingServer, limits: str, *, workers: int, **options: Any
) -> Any:
    engine.module("m", CODE.format(url=far.url, limits=limits))
    engine.deploy()
    made = {"slots": 2, "async_per_slot": 8, "environment": OPEN, **options}
    return [engine.worker(**made) for _ in range(workers)]


def items(engine: Engine, pipeline: str, n: int) -> str:
    return engine.submit(pipeline, {"items": list(range(n))})


def leases(engine: Engine) -> int:
    return int(
        engine.one("select count(*) from suimon.leases where expires_at > clock_timestamp()")
    )


def all_free(engine: Engine) -> None:
    engine.until(lambda: leases(engine) == 0, "all places free", 30)


def on_the_wire(frozen: dict[int, list[tuple[float, float]]]) -> Callable[[Call], bool]:
    """Calls that count: all but those that were on the wire when their process froze."""

    def counts(call: Call) -> bool:
        spans = frozen.get(call.pid, [])
        return not any(call.began <= at and call.ended >= at for at, _ in spans)

    return counts


def freeze(pid: int, frozen: dict[int, list[tuple[float, float]]], seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    at = time.monotonic()
    time.sleep(seconds)  # so long it is frozen: that is the test
    frozen.setdefault(pid, []).append((at, time.monotonic()))
    os.kill(pid, signal.SIGCONT)


def test_no_more_is_called_than_allowed_whoever_dies_or_freezes(engine: Engine) -> None:
    rate, burst, at_once, n = 120.0, 30, 8, 1800
    with CountingServer(takes=0.03) as far:
        limits = f'rate="{rate:g}/s", burst={burst}, concurrency={at_once}'
        workers = set_up(engine, far, limits, workers=3)
        run = items(engine, "calls", n)
        frozen: dict[int, list[tuple[float, float]]] = {}
        engine.until(lambda: far.count() > 100, "calls are made")
        freeze(workers[0].slots()[0], frozen, 0.8)
        os.kill(workers[1].slots()[0], signal.SIGKILL)
        engine.until(lambda: far.count() > 500, "more calls are made")
        workers[2].kill9()
        engine.worker(slots=2, async_per_slot=8, environment=OPEN)
        engine.until(lambda: far.count() > 800, "more calls are made")
        freeze(workers[0].pid, frozen, 2.0)  # its guardian ends its slots; it comes back
        engine.until(lambda: far.count() > 1200, "more calls are made")
        freeze(workers[1].slots()[1], frozen, 1.5)
        engine.wait(run, patience=120)
        calls = far.calls()
        assert len({c.path for c in calls if c.status == 200}) == n
        most, _ = most_at_once(calls, on_the_wire(frozen))
        assert most <= at_once
        assert worst_window(calls, rate) <= burst + 6 * 1.0
        all_free(engine)


def test_who_was_frozen_with_all_its_slots_calls_nothing_on_waking(engine: Engine) -> None:
    """By then it is buried, and its places are others'."""
    with CountingServer(takes=0.05) as far:
        workers = set_up(engine, far, "concurrency=4", workers=2)
        run = items(engine, "calls", 700)
        engine.until(lambda: far.count() > 40, "calls are made")
        slots = workers[0].slots()
        frozen: dict[int, list[tuple[float, float]]] = {}
        pids = workers[0].freeze(tree=True)
        at = time.monotonic()
        name = workers[0].name
        dead = "select bool_or(dead) from suimon.workers where name = %s"
        engine.until(lambda: engine.one(dead, name), "it is buried")
        before = far.count()
        engine.until(lambda: far.count() > before + 60, "the other one calls")
        for pid in slots:
            frozen[pid] = [(at, time.monotonic())]
        workers[0].thaw(pids)
        engine.wait(run, patience=60)
        calls = far.calls()
        assert most_at_once(calls, on_the_wire(frozen))[0] <= 4
        assert not [c for c in calls if c.pid in frozen and c.began > frozen[c.pid][0][1]]
        all_free(engine)


def test_a_task_with_a_destination_keeps_its_place_for_its_whole_try(engine: Engine) -> None:
    with CountingServer(takes=0.05) as far:
        set_up(engine, far, "concurrency=3", workers=2, slots=3)
        engine.wait(items(engine, "turns", 120), patience=60)
        calls = far.calls()
        assert len(calls) == 120
        assert most_at_once(calls)[0] <= 3
        all_free(engine)
    assert engine.sql(
        "select attempt, count(*) from suimon.runs where vertex = 'each' group by 1"
    ) == [(1, 120)]


def test_retry_after_is_kept_by_all_and_costs_no_try(engine: Engine) -> None:
    pause = 2.0
    with CountingServer(takes=0.01, refuses=10, retry_after=pause) as far:
        set_up(engine, far, 'rate="200/s", concurrency=6', workers=3)
        run = items(engine, "calls", 40)
        engine.wait(run, patience=90)
        calls = far.calls()
        refused = [c for c in calls if c.status == 429]
        assert len(refused) >= 4
        for one in refused:
            # what was under way when the answer came may still arrive
            early = [c for c in calls if one.ended + 0.3 < c.began < one.ended + pause - 0.05]
            assert not early
        assert len([c for c in calls if c.status == 200]) == 40
        rows = engine.sql(
            "select attempt, count(*) from suimon.runs where vertex = 'each' group by 1"
        )
        assert rows == [(1, 40)]
        assert not engine.sql("select 1 from suimon.attempts")


def test_two_fan_outs_share_a_destination_fairly(engine: Engine) -> None:
    with CountingServer(takes=0.01) as far:
        set_up(engine, far, 'rate="60/s", concurrency=6', workers=2)
        destinations.hold(engine.conn, "far", seconds=None, actor="mia")
        runs = [items(engine, "turns", 240) for _ in range(2)]
        parked = "select count(*) from suimon.runs where reason = 'held:far'"
        engine.until(lambda: engine.one(parked) == 480, "both of them stand there")
        destinations.release(engine.conn, "far", actor="mia")
        done = "select count(*) from suimon.runs where parent_id = %s and status = 'succeeded'"
        engine.until(lambda: any(engine.run(r).over for r in runs), "the first one ended", 60)
        counts = sorted(engine.one(done, r) for r in runs)
        assert counts[0] >= 0.9 * counts[1]
        for run in runs:
            engine.wait(run, patience=60)


def test_a_held_destination_keeps_no_slot_from_other_work(engine: Engine) -> None:
    with CountingServer() as far:
        set_up(engine, far, 'rate="100/s"', workers=1)
        destinations.hold(engine.conn, "far", seconds=None, actor="mia", why="they migrate")
        held = [items(engine, "turns", 100), items(engine, "calls", 100)]
        parked = "select count(*) from suimon.runs where reason = 'held:far'"
        engine.until(lambda: engine.one(parked) == 200, "all of them parked")
        engine.wait(items(engine, "others", 200))
        assert far.count() == 0
        child = engine.one("select id::text from suimon.runs where reason = 'held:far' limit 1")
        said = why.why(engine.conn, child)
        assert "held until it is released by mia (they migrate)" in said["text"]
        destinations.release(engine.conn, "far", actor="mia")
        for run in held:
            engine.wait(run, patience=60)
        assert far.count() == 200


def test_limits_are_changed_live_in_both_directions(engine: Engine) -> None:
    with CountingServer(takes=0.05) as far:
        set_up(engine, far, "concurrency=1", workers=2)
        run = items(engine, "calls", 600)
        engine.until(lambda: far.count() > 10, "one after the other")
        destinations.change(engine.conn, "far", {"concurrency": 12}, actor="mia")
        engine.until(lambda: most_at_once(far.calls())[0] > 6, "more at once")
        destinations.change(engine.conn, "far", {"concurrency": 2}, actor="mia")
        engine.until(lambda: leases(engine) <= 2, "places were given back")
        since = time.monotonic()
        before = far.count()
        engine.until(lambda: far.count() > before + 20, "two at once")
        assert most_at_once([c for c in far.calls() if c.began > since])[0] <= 2
        destinations.change(engine.conn, "far", {"concurrency": None}, actor="mia")
        engine.wait(run, patience=60)
        all_free(engine)


@pytest.mark.parametrize("how", ["cancel", "timeout", "slot", "worker"])
def test_each_way_to_end_frees_the_place(engine: Engine, how: str) -> None:
    engine.module(
        "m",
        """
        from suimon import Destination
        far = Destination("far", concurrency=1, timeout="2s")

        @task(destination=far, timeout="3s" if len("HOW") == 7 else "60s")
        def stuck(n, ctx):
            note("began", os.getpid())
            await_mark("go")

        @task(destination=far)
        def next_one(n):
            return n

        first = Pipeline("first", concurrency=None)
        first.run("stuck", stuck, first.input.n)
        second = Pipeline("second", concurrency=None)
        second.run("next", next_one, second.input.n)
        """.replace("HOW", how),
    )
    engine.deploy()
    worker = engine.worker(slots=2)
    first = engine.submit("first", {"n": 1})
    (pid,) = engine.noted("began")[0]
    second = engine.submit("second", {"n": 2})
    engine.until(lambda: engine.run(second).reason == "limit:far", "the second one parked")
    match how:
        case "cancel":
            engine.cancel(first)
        case "slot":
            os.kill(int(pid), signal.SIGKILL)
        case "worker":
            worker.kill9()
            engine.worker(slots=2)
    if how in ("slot", "worker"):
        engine.project.mark("go")
    engine.wait(second, patience=40)
    engine.until(lambda: engine.run(first).over, "the first one ended", 40)
    all_free(engine)
