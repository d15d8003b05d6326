"""A cap over several workers: kept exactly, through kill -9, and whoever can begin a run does so.

Every duty is far away (no sweep helps): what happens at once happens by notification.
"""

from __future__ import annotations

import pytest
from support.engine import Engine

from suimon.run import moving, pools

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

CODE = """
@task
def hold(n):
    note("begin", n, os.getpid(), time.monotonic())
    time.sleep(0.15)
    note("end", n, os.getpid(), time.monotonic())

p = Pipeline("p", concurrency=None)
p.merge("all", p.spawn("each", hold, p.input.items))

@pipeline(concurrency=None)
def until_told(n=0):
    note("told", n)
    await_mark("go")

@pipeline(concurrency=None)
def waits(n=0, *, ctx):
    note("waits", n)
    if ctx.attempt == 1:
        raise ValueError("once")
"""


def _no_sweep(engine: Engine) -> None:
    """The duties that could hide a lost wake-up come tomorrow; rescue is asked for by a burial."""
    engine.sql("update suimon.duties set next_at = clock_timestamp() + interval '1 day'")


def _most(lines: list[list[str]], ends: list[list[str]], killed: set[str]) -> int:
    """How many executed at once; who was killed in between had ended by then."""
    done = {(n, pid): float(at) for n, pid, at in ends}
    spans = [
        (float(at), done[n, pid]) for n, pid, at in lines if (n, pid) in done or pid not in killed
    ]
    edges = sorted([(a, 1) for a, _ in spans] + [(b, -1) for _, b in spans])
    now = most = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most


def test_the_cap_holds_through_kills_and_all_end(engine: Engine) -> None:
    """Three of eight slots, sixty children, two workers killed on the way: never four at once."""
    engine.module("m", CODE)
    engine.deploy()
    _no_sweep(engine)
    workers = [engine.worker(slots=4) for _ in range(2)]
    pools.set_cap(engine.conn, "default", 3, actor="ann")
    run = engine.submit("p", {"items": list(range(60))})
    killed: set[str] = set()
    for begun in (12, 30):
        engine.noted("begin", begun)
        assert engine.one("select suimon.held_in('default')") <= 3
        victim = workers.pop(0)
        killed |= {str(pid) for pid in victim.slots()}
        victim.kill9()
        workers.append(engine.worker(slots=4))
    engine.wait(run, patience=120)
    begins, ends = engine.project.lines("begin"), engine.project.lines("end")
    assert _most(begins, ends, killed) == 3
    assert {n for n, _, _ in ends} == {str(n) for n in range(60)}
    children = engine.sql("select status::text, count(*) from suimon.runs group by 1")
    assert children == [("succeeded", 61)]


def _busy(engine: Engine, count: int) -> None:
    engine.until(
        lambda: engine.one("select count(*) from suimon.runs where status = 'running'") == count,
        f"{count} runs at work",
    )


def test_a_raised_or_removed_cap_is_used_at_once(engine: Engine) -> None:
    """One, then three, then as many as there are slots, over two workers."""
    engine.module("m", CODE)
    engine.deploy()
    _no_sweep(engine)
    for _ in range(2):
        engine.worker(slots=3, heartbeat_s=5.0)
    pools.set_cap(engine.conn, "default", 1, actor="ann")
    runs = engine.submit_many("until_told", [{"n": n} for n in range(8)])
    _busy(engine, 1)
    engine.until(lambda: _silent(engine), "the others are silent")
    _busy(engine, 1)
    pools.set_cap(engine.conn, "default", 3, actor="ann")
    _busy(engine, 3)
    engine.until(lambda: _silent(engine), "the others are silent again")
    pools.set_cap(engine.conn, "default", None, actor="ann")
    _busy(engine, 6)
    engine.project.mark("go")
    engine.wait_all(runs)


def _silent(engine: Engine) -> bool:
    """Somebody has said that it is idle: a worker that the cap keeps from its room."""
    return bool(engine.one("select count(*) from suimon.workers where idle and not dead"))


def test_whoever_makes_room_wakes_who_can_use_it(engine: Engine) -> None:
    """The worker that holds the only place is drained: when its run ends, the other begins one.
    The same when a run parks for its next try, and when its worker is killed.
    """
    engine.module("m", CODE)
    engine.deploy()
    _no_sweep(engine)
    first = engine.worker(slots=1)
    pools.set_cap(engine.conn, "default", 1, actor="ann")
    held = engine.submit("until_told", {"n": 1})
    engine.noted("told", 1)
    engine.worker(slots=1)
    queued = engine.submit("until_told", {"n": 2})
    engine.until(lambda: _silent(engine), "the second is silent: the cap is full")
    first.term()
    engine.project.mark("go")
    engine.wait(held)
    engine.wait(queued)
    failing = engine.submit_many("waits", [{"n": n} for n in range(3)])
    for run in failing:
        engine.wait(run, None)


def test_a_killed_holder_makes_room_for_the_other_worker(engine: Engine) -> None:
    """Its burial takes its run back, and the idle one begins the next in order."""
    engine.module("m", CODE)
    engine.deploy()
    _no_sweep(engine)
    first = engine.worker(slots=1)
    pools.set_cap(engine.conn, "default", 1, actor="ann")
    runs = [engine.submit("until_told", {"n": 1})]
    engine.noted("told", 1)
    engine.worker(slots=1)
    runs.append(engine.submit("until_told", {"n": 2}))
    engine.until(lambda: _silent(engine), "the second is silent: the cap is full")
    first.kill9()
    engine.noted("told", 2)
    engine.project.mark("go")
    engine.wait_all(runs)


def test_a_pipeline_moves_to_another_pool_while_it_waits(engine: Engine) -> None:
    """One runs on where it began, the others are executed by the other pool's worker."""
    engine.module("m", CODE)
    engine.deploy()
    _no_sweep(engine)
    here = engine.worker(slots=1, heartbeat_s=5.0)
    there = engine.worker(slots=1, pool="gpu", heartbeat_s=5.0)
    runs = engine.submit_many("until_told", [{"n": n} for n in range(5)])
    engine.noted("told", 1)
    found = moving.set_pool(engine.conn, "until_told", "gpu", actor="ann")
    assert found["moved"] == 5
    engine.noted("told", 2)
    engine.project.mark("go")
    engine.wait_all(runs)
    who = dict(engine.sql("select name, id from suimon.workers"))
    assert {here.name, there.name} == set(who)
    assert engine.one("select count(distinct pool) from suimon.runs") == 1
