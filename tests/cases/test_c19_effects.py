"""C19, C20: a crash between the effect and its record; a key whose run has ended."""

from __future__ import annotations

from collections import Counter

import pytest
from support.engine import Engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.long]

TRIES = 12

EFFECT = """
@task
def pay(n, ctx):
    # the service, which counts calls for each key, has answered; then the lights go out
    note("service", ctx.idempotency_key, ctx.run_id, ctx.attempt)
    if ctx.attempt == 1:
        note("kill", os.getpid())
        await_mark("never", 1000)
    return ctx.idempotency_key

@task
def book(key, ctx):
    note("booked", ctx.idempotency_key, key)
    return [key, ctx.idempotency_key]

p = Pipeline("refund", concurrency=None)
p.run("book", book, p.run("pay", pay, p.input.n))

@task
def items():
    return [0, 1, 2]

@task
def item(n, ctx):
    return ctx.idempotency_key

@task
def keys(outcome: MergeResult, ctx):
    return [c.value for c in outcome.succeeded]

f = Pipeline("many")
f.run("keys", keys, f.merge("merged", f.spawn("each", item, f.run("items", items))))
"""


def test_c19_crash_between_the_effect_and_its_record(engine: Engine) -> None:
    """**Do** kill the worker right after the service has answered, many times, each followed by
    recovery. **Must** offer the same key in all attempts of a step of a run, others for other
    steps, runs and items; the service counts one key per run.
    """
    engine.module("m", EFFECT)
    engine.deploy()
    engine.worker(slots=1)
    for number in range(TRIES):
        engine.worker(slots=1)
        run = engine.submit("refund", {"n": number})
        engine.noted("kill", number + 1)
        name = engine.run(run).worker
        holder = next(worker for worker in engine.workers if worker.name == name)
        holder.kill9()
        engine.wait(run)
    service = engine.project.lines("service")
    assert len(service) == 2 * TRIES
    by_run = {run: {key for key, other, _ in service if other == run} for _, run, _ in service}
    assert len(by_run) == TRIES
    assert all(len(keys) == 1 for keys in by_run.values())
    assert set(Counter(key for key, _, _ in service).values()) == {2}
    booked = engine.project.lines("booked")
    assert len({key for line in booked for key in line}) == 2 * TRIES, "step keys differ"
    of_items = engine.wait(engine.submit("many")).output
    assert len(set(of_items)) == 3


FLAG = """
@pipeline(concurrency=None)
def flagged(value=0):
    note("flagged", value)
    if not os.path.exists(path("flag")):
        raise RuntimeError("the flag is not there")
    if os.path.exists(path("wait")):
        await_mark("go")
    return value
"""


def test_c20_idempotency_key_of_a_run_that_ended(engine: Engine) -> None:
    """**Do** start with key K; it fails; start with K again; retry the run and start with K while
    it runs; start with K after success. **Must** name the one run and its state each time, and
    say whether the input was the same; the supported way to run again is a retry.
    """
    engine.module("m", FLAG)
    engine.deploy()
    engine.worker(slots=1)
    first = engine.ask("flagged", {"value": 1}, key="K")
    assert (first.duplicate, first.status) == (False, "queued")
    engine.wait(first.id, "failed")
    again = engine.ask("flagged", {"value": 1}, key="K")
    assert (again.id, again.duplicate, again.same_input, again.status) == (
        first.id, True, True, "failed",
    )  # fmt: skip
    other = engine.ask("flagged", {"value": 2}, key="K")
    assert (other.id, other.duplicate, other.same_input) == (first.id, True, False)
    engine.project.mark("flag")
    engine.project.mark("wait")
    engine.retry(first.id)
    engine.noted("flagged", 2)
    running = engine.ask("flagged", {"value": 1}, key="K")
    assert (running.id, running.duplicate, running.status) == (first.id, True, "running")
    engine.project.mark("go")
    engine.wait(first.id)
    done = engine.ask("flagged", {"value": 1}, key="K")
    assert (done.id, done.duplicate, done.status) == (first.id, True, "succeeded")
    new = engine.ask("flagged", {"value": 1}, key="L")
    assert not new.duplicate
    engine.wait(new.id)
    assert len(engine.project.lines("flagged")) == 3
