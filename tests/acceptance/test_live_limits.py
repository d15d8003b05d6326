"""Every limit, changed live, takes effect at once, in both directions, while runs are at work.

Every duty is far away: no sweep helps, what happens at once happens by notification. Pools and
their caps have a file of their own (``test_pool_caps``), concurrency of destinations is in
``test_destinations``.
"""

from __future__ import annotations

import time

import pytest
from support.counting_server import CountingServer
from support.engine import Engine

from suimon.run import destinations, limits

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

CODE = """
from suimon import Destination, Limit

d = Destination("far", base_url="{url}", rate="1/m", burst=2)

@pipeline(concurrency=1)
def serial(n):
    await_mark("go-" + str(n))

@task
def hold(n):
    await_mark("go-" + str(n))

k = Pipeline("keyed", concurrency=Limit(1, per="customer"))
k.run("held", hold, k.input.n)

p = Pipeline("p", concurrency=None)
p.merge("all", p.spawn("each", hold, p.input.items, concurrency=1))

@task(destination=d)
def call(n, ctx):
    return ctx.http("far").get("/" + str(n)).status_code

c = Pipeline("c", concurrency=None)
c.merge("all", c.spawn("each", call, c.input.items))
"""


def _start(engine: Engine, url: str = "http://127.0.0.1:9") -> None:
    engine.module("m", CODE.replace("{url}", url))
    engine.deploy()
    engine.sql("update suimon.duties set next_at = clock_timestamp() + interval '1 day'")
    opened = {"SUIMON_ALLOW_ADDRESSES": "127.0.0.1"}
    for _ in range(2):
        engine.worker(slots=3, heartbeat_s=5.0, environment=opened)


def _busy(engine: Engine, count: int, where: str = "true") -> None:
    statement = f"select count(*) from suimon.runs where status = 'running' and {where}"
    engine.until(lambda: engine.one(statement) == count, f"{count} at work")
    idle = "select count(*) from suimon.workers where idle"
    if count < 6:
        engine.until(lambda: engine.one(idle) or engine.one(statement) != count, "settled")
    assert engine.one(statement) == count


def test_a_lane_takes_more_at_once_and_then_fewer(engine: Engine) -> None:
    """From one to four, then down to two: nobody loses its place, and the third end lets one in."""
    _start(engine)
    runs = engine.submit_many("serial", [{"n": n} for n in range(8)])
    _busy(engine, 1)
    limits.change(engine.conn, "serial", {"concurrency": 4}, actor="ann")
    _busy(engine, 4)
    limits.change(engine.conn, "serial", {"concurrency": 2}, actor="ann")
    _busy(engine, 4)
    engine.project.mark("go-0")
    engine.project.mark("go-1")
    _busy(engine, 2)
    engine.project.mark("go-2")
    engine.until(lambda: engine.run(runs[4]).status == "running", "the next one is in")
    _busy(engine, 2)
    limits.change(engine.conn, "serial", {"concurrency": None}, actor="ann")
    _busy(engine, 5)
    for n in range(8):
        engine.project.mark(f"go-{n}")
    engine.wait_all(runs)


def test_the_lane_of_each_key_takes_more_at_once_and_then_fewer(engine: Engine) -> None:
    """Two customers with four runs each: one each, then two each, then one each again."""
    _start(engine)
    inputs = [{"n": n, "customer": "ab"[n % 2]} for n in range(8)]
    runs = engine.submit_many("keyed", inputs)
    _busy(engine, 2)
    limits.change(engine.conn, "keyed", {"concurrency": 2}, actor="ann")
    _busy(engine, 4)
    for key in "ab":
        _busy(engine, 2, f"input->>'customer' = '{key}'")
    limits.change(engine.conn, "keyed", {"concurrency": 1}, actor="ann")
    for n in (0, 1):
        engine.project.mark(f"go-{n}")
    _busy(engine, 2)
    for n in range(8):
        engine.project.mark(f"go-{n}")
    engine.wait_all(runs)


def test_a_running_spawn_takes_more_at_once_and_then_fewer(engine: Engine) -> None:
    """Its children one by one, then four, then two, then any number."""
    _start(engine)
    run = engine.submit("p", {"items": list(range(10))})
    kids = "vertex = 'each'"
    _busy(engine, 1, kids)
    assert limits.change_spawn(engine.conn, run, "each", 4, actor="ann") == 1
    _busy(engine, 4, kids)
    limits.change_spawn(engine.conn, run, "each", 2, actor="ann")
    for n in (0, 1):
        engine.project.mark(f"go-{n}")
    _busy(engine, 2, kids)
    limits.change_spawn(engine.conn, run, "each", None, actor="ann")
    _busy(engine, 6, kids)
    for n in range(10):
        engine.project.mark(f"go-{n}")
    engine.wait(run)
    records = engine.sql(
        "select detail->>'to' from suimon.audit where target = %s order by id", run
    )
    assert records == [("4",), ("2",), (None,)]


def test_a_raised_rate_wakes_those_that_were_parked_and_a_lowered_one_is_kept(
    engine: Engine,
) -> None:
    """One call a minute parks nearly all of them; at 200 a second all go; then at five a second."""
    with CountingServer(takes=0.005) as far:
        _start(engine, far.url)
        run = engine.submit("c", {"items": list(range(400))})
        parked = "select count(*) from suimon.runs where reason = 'limit:far'"
        engine.until(lambda: engine.one(parked) > 300, "nearly all of them parked")
        destinations.change(engine.conn, "far", {"rate": "100/s"}, actor="ann")
        engine.until(lambda: far.count() > 100, "a hundred calls", 30)
        destinations.change(engine.conn, "far", {"rate": "5/s", "burst": 5}, actor="ann")
        engine.until(lambda: engine.one(_RATE) == "5/s", "the rate is in force")
        began = time.monotonic() + 1.0  # what was granted before may still be called
        engine.until(lambda: time.monotonic() > began + 4.0, "four seconds have gone by", 30)
        calls = [c for c in far.calls() if began < c.began < began + 4.0]
        assert len(calls) <= 4 * 5 + 5 + 6
        destinations.change(engine.conn, "far", {"rate": None}, actor="ann")
        engine.wait(run, patience=60)
        assert far.count() == 400


_RATE = "select rate from suimon.destinations where name = 'far'"
