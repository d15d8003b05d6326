"""C15, C16: a slot given back after kill -9; a destination that says 429 with Retry-After."""

from __future__ import annotations

import pytest
from support.counting_server import CountingServer, most_at_once
from support.engine import Engine
from support.worker_process import WorkerProcess

from suimon.run import destinations

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

HOLDS = """
from suimon import Destination

d = Destination("d", concurrency=2, timeout="3s")

@task(destination=d)
def hold(n, ctx):
    note("begin", n, os.getpid(), time.monotonic())
    time.sleep(1.5)
    note("end", n, os.getpid(), time.monotonic())

p = Pipeline("p", concurrency=None)
p.merge("all", p.spawn("each", hold, p.input.items))
"""


def test_c15_a_killed_holder_gives_its_place_back(engine: Engine) -> None:
    """Ten runs that hold a destination of two places; three times a holder is killed."""
    engine.module("m", HOLDS)
    engine.deploy()
    workers: list[WorkerProcess] = [engine.worker(slots=2) for _ in range(3)]
    run = engine.submit("p", {"items": list(range(10))})
    for begun in (2, 4, 6):
        lines = engine.noted("begin", begun)
        shown = destinations.show(engine.conn, "d")
        assert len(shown["holders"]) <= 2
        holder = engine.until(lambda: _holder(engine, workers), "a worker that holds a place")
        pids = holder.slots()
        holder.kill9()
        workers.remove(holder)
        workers.append(engine.worker(slots=2))
        assert lines
        assert pids
    engine.wait(run, patience=120)
    begins = [(float(at), 1, pid) for _, pid, at in engine.project.lines("begin")]
    ends = {(n, pid): float(at) for n, pid, at in engine.project.lines("end")}
    # who was killed held its place until then: what is checked are those that ended
    spans = [
        (float(at), ends[n, pid])
        for n, pid, at in engine.project.lines("begin")
        if (n, pid) in ends
    ]
    assert len(begins) >= 10
    edges = sorted([(a, 1) for a, _ in spans] + [(b, -1) for _, b in spans])
    now = most = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    assert most <= 2
    engine.until(lambda: not destinations.show(engine.conn, "d")["holders"], "nobody holds it", 30)


def _holder(engine: Engine, workers: list[WorkerProcess]) -> WorkerProcess | None:
    """A worker that the list of holders names; the list is as fresh as a heartbeat."""
    named = {one["worker"] for one in destinations.show(engine.conn, "d")["holders"]}
    return next((worker for worker in workers if worker.name in named), None)


CALLS = """
from suimon import Destination

d = Destination("d", base_url="{url}", timeout="5s", concurrency=6)

@task
def call(n, ctx):
    return ctx.http("d").get("/" + str(n)).status_code

p = Pipeline("p", concurrency=None)
p.merge("all", p.spawn("each", call, p.input.items))
"""


def test_c16_after_a_429_nobody_calls_until_its_time(engine: Engine) -> None:
    """Five calls, then a ban for everybody that each further call makes longer."""
    ban = 4.0
    with CountingServer(takes=0.02, ban_after=5, retry_after=ban, ban_grows=2.0) as far:
        engine.module("m", CALLS.format(url=far.url))
        engine.deploy()
        opened = {"SUIMON_ALLOW_ADDRESSES": "127.0.0.1"}
        for _ in range(2):
            engine.worker(slots=2, environment=opened)
        run = engine.submit("p", {"items": list(range(50))})
        parked = "select count(*) from suimon.runs where reason = 'held:d'"
        engine.until(lambda: engine.one(parked), "runs that wait for the end of the ban")
        engine.wait(run, patience=90)
        calls = far.calls()
        refused = [call for call in calls if call.status == 429]
        assert 1 <= len(refused) <= 4  # one, and what the other slots had under way
        first = refused[0]
        assert not [c for c in calls if first.ended + 0.3 < c.began < first.ended + ban - 0.05]
        assert len({c.path for c in calls if c.status == 200}) == 50
        assert len(calls) - len(refused) == 50
        assert most_at_once(calls)[0] <= 6
    tries = engine.sql("select attempt, count(*) from suimon.runs where vertex = 'each' group by 1")
    assert tries == [(1, 50)]
    assert not engine.sql("select 1 from suimon.attempts")
