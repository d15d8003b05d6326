"""C01, C02, C03: a worker that dies, one that is slow, one that is frozen."""

from __future__ import annotations

import pytest
from support.engine import Engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

STEPS = """
@task
def a():
    note("a", os.getpid())
    return 1

@task
def b(n):
    note("b", os.getpid())
    await_mark("go")
    return n + 1

@task
def c(n):
    note("c", os.getpid())
    return n + 1

p = Pipeline("steps")
p.run("c", c, p.run("b", b, p.run("a", a)))
"""


@pytest.fixture
def steps(engine: Engine) -> Engine:
    engine.module("m", STEPS)
    engine.deploy()
    return engine


def holder(engine: Engine, run: str) -> str:
    return engine.until(lambda: engine.run(run).worker, "somebody holds the run")


def check_c01(engine: Engine, run_id: str, name: str) -> None:
    """A was not repeated, B ran twice, C once; two attempts, the first with how, when and who."""
    run = engine.wait(run_id)
    counts = [len(engine.project.lines(step)) for step in ("a", "b", "c")]
    assert counts == [1, 2, 1]
    assert run.output == 3
    assert run.interruptions == 0, "counted for the step that ended, not for the whole run"
    assert engine.attempts(run_id)[0][1:3] == ("interrupted", name)
    assert len(engine.attempts(run_id)) == 1
    began, ended = engine.sql("select began_at, ended_at from suimon.attempts")[0]
    assert began < ended


def test_c01_worker_killed_in_the_middle_of_a_run(steps: Engine) -> None:
    """**Set up** two workers, a pipeline A, B, C; B waits. **Do** kill the worker that holds it.
    **Must** be taken over once by the other; A not again, B again, C once; two attempts, the first
    interrupted, with time and name; succeeded.
    """
    workers = {worker.name: worker for worker in (steps.worker(slots=1), steps.worker(slots=1))}
    run = steps.submit("steps")
    steps.noted("b")
    name = holder(steps, run)
    workers[name].kill9()
    steps.noted("b", 2)
    assert holder(steps, run) != name
    steps.project.mark("go")
    check_c01(steps, run, name)


def test_c01_both_workers_killed_and_one_started_later(steps: Engine) -> None:
    """The same with both killed and one started when nobody is left: the same result."""
    workers = [steps.worker(slots=1), steps.worker(slots=1)]
    run = steps.submit("steps")
    steps.noted("b")
    name = holder(steps, run)
    for worker in workers:
        worker.kill9()
    steps.none_left()
    steps.worker(slots=1)
    steps.noted("b", 2)
    steps.project.mark("go")
    check_c01(steps, run, name)


LONG = """
@pipeline
def long(seconds=0.0):
    note("long", os.getpid(), time.time())
    time.sleep(seconds)
    return "once"
"""


def test_c02_a_run_longer_than_the_lease_of_a_healthy_worker(engine: Engine) -> None:
    """**Set up** the shortest heartbeat, three workers. **Do** one step of 8 times the time after
    which a silent worker is dead. **Must** be exactly one start, no second attempt, one end.
    """
    engine.module("m", LONG)
    engine.deploy()
    for _ in range(3):
        engine.worker(slots=1, heartbeat_s=0.25)
    run = engine.wait(engine.submit("long", {"seconds": 0.25 * 3 * 8}))
    assert run.output == "once"
    assert run.attempt == run.claim_no == 1
    assert len(engine.project.lines("long")) == 1
    assert not engine.attempts(run.id)
    assert engine.one("select count(*) from suimon.workers where dead") == 0


FROZEN = """
@pipeline
def attempted(ctx):
    note("tries", ctx.attempt, os.getpid())
    ctx.log.info("try " + str(ctx.attempt))
    if ctx.attempt == 1:
        await_mark("late")
    ctx.log.info("end of try " + str(ctx.attempt))
    return ctx.attempt

@pipeline
def plain(n=0):
    return n
"""


@pytest.mark.parametrize("tree", [True, False], ids=["with its children", "alone"])
def test_c03_a_frozen_worker_wakes_up_after_it_lost_its_run(engine: Engine, tree: bool) -> None:
    """**Set up** two workers; a step whose result holds its attempt. **Do** freeze worker 1 (with
    its children: a suspended machine; alone: the guardian still sees) until worker 2 has finished,
    then let it go on. **Must** refuse whatever it still says; result and state are attempt 2's;
    worker 1 ends its slots, says so once, and takes new work.
    """
    engine.module("m", FROZEN)
    engine.deploy()
    first = engine.worker(slots=1)
    run_id = engine.submit("attempted")
    old_slot = int(engine.noted("tries")[0][1])
    old_id = engine.worker_id(first)
    second = engine.worker(slots=1)
    stopped = first.freeze(tree=tree)
    run = engine.wait(run_id)
    assert run.output == 2
    assert engine.attempts(run_id)[0][:3] == (1, "interrupted", first.name)
    if not tree:
        engine.until(lambda: old_slot not in first.slots(), "the guardian ended the slot")
    engine.project.mark("late")
    first.thaw(stopped)
    engine.until(lambda: engine.worker_id(first) not in (None, old_id), "it started over")
    assert engine.run(run_id) == run, "the late worker changed the run"
    assert "end of try 1" not in engine.log_of(run_id)
    assert engine.sql("select dead, beat from suimon.workers where id = %s", old_id)[0][0]
    engine.until(lambda: old_slot not in first.slots(), "the slot of attempt 1 is gone")
    assert first.log.count("starting over as a new worker") == 1
    second.term()
    second.wait()
    again = engine.wait(engine.submit("plain", {"n": 7}))
    assert again.output == 7, "worker 1 takes new work"
