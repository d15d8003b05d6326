"""Order where asked, fairness to all, and no slot for those that wait."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.engine import Engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

SUBMITTER = Path(__file__).parents[1] / "support" / "submit_main.py"

SERIAL = """
@pipeline
def serial(n=0):
    note("serial", "begin", n)
    if n < 0:
        await_mark("go")
    note("serial", "end", n)

@pipeline(concurrency=None)
def beside(n=0):
    note("beside", n)
"""


def test_200_runs_of_8_submitters_run_one_at_a_time_in_order(engine: Engine) -> None:
    """The lane is held by a first run until all are submitted; another pipeline goes on."""
    engine.module("m", SERIAL)
    engine.deploy()
    for _ in range(4):
        engine.worker(slots=2, heartbeat_s=5.0)
    first = engine.submit("serial", {"n": -1})
    engine.noted("serial")
    others = engine.submit_many("beside", [{"n": n} for n in range(20)])
    submitters = [
        subprocess.Popen([sys.executable, str(SUBMITTER)], stdin=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    for number, one in enumerate(submitters):
        assert one.stdin is not None
        inputs = [{"n": number * 25 + place} for place in range(25)]
        one.stdin.write(json.dumps({"url": engine.url, "pipeline": "serial", "inputs": inputs}))
        one.stdin.close()
    assert [one.wait(60) for one in submitters] == [0] * 8
    engine.wait_all(others)
    assert engine.run(first).status == "running", "the others were not to wait for the lane"
    engine.project.mark("go")
    done = "select count(*) from suimon.runs where pipeline = 'serial' and status = 'succeeded'"
    engine.until(lambda: engine.one(done) == 201, "all runs of the lane done")
    rows = engine.sql(
        "select (input->>'n')::int from suimon.runs where pipeline = 'serial' order by lane_rank"
    )
    wanted = [step for (n,) in rows for step in (["begin", str(n)], ["end", str(n)])]
    assert engine.project.lines("serial") == wanted
    assert engine.one("select max(attempt) from suimon.runs") == 1


NESTED = """
@task
def leaf(n, outer=0):
    return n

@task
def total(outcome: MergeResult):
    return sum(c.value for c in outcome.succeeded)

@task
def fifty(n):
    return list(range(50))

@task
def twenty(n):
    return [1] * 20

inner = Pipeline("inner", concurrency=None)
i_items = inner.run("items", twenty, inner.input.n)
i_children = inner.spawn("leaves", leaf, i_items)
inner.run("sum", total, inner.merge("merged", i_children))

@task
def as_input(n):
    return {"n": n}

@task
def inputs(numbers):
    return [{"n": n} for n in numbers]

middle = Pipeline("middle", concurrency=None)
m_items = middle.run("items", fifty, middle.input.n)
m_inputs = middle.run("inputs", inputs, m_items)
m_children = middle.spawn("inners", inner, m_inputs)
middle.run("sum", total, middle.merge("merged", m_children))

outer = Pipeline("outer")
o_inputs = outer.run("inputs", inputs, [0, 1, 2])
o_children = outer.spawn("middles", middle, o_inputs)
outer.run("sum", total, outer.merge("merged", o_children))
"""


def test_a_nested_fan_out_ends_with_one_slot_in_the_whole_system(engine: Engine) -> None:
    """3 x 50 x 20: a parent that waits holds no slot."""
    engine.module("m", NESTED)
    engine.deploy()
    engine.worker(slots=1, heartbeat_s=5.0)
    run = engine.wait(engine.submit("outer"), patience=100)
    assert run.output == 3 * 50 * 20
    assert engine.one("select count(*) from suimon.runs where vertex = 'leaves'") == 3000
    assert engine.sql("select distinct settles from suimon.fanouts") == [(1,)]


FLOOD = """
@task
def numbers(n):
    return list(range(n))

@task
def child(n):
    if n >= 3000:
        note("blocked", n)
        await_mark("go")
    note("order", "child")
    return n

@pipeline(concurrency=None)
def small():
    note("order", "small")

flood = Pipeline("flood")
items = flood.run("items", numbers, flood.input.n)
flood.merge("merged", flood.spawn("children", child, items))
"""


@pytest.mark.parametrize("children", [20_000, 100_000])
def test_a_small_run_passes_a_flood_of_children(engine: Engine, children: int) -> None:
    """With all children queued, a new single run starts after at most what the workers hold."""
    engine.module("m", FLOOD)
    engine.deploy()
    worker = engine.worker(slots=1, heartbeat_s=5.0)  # one, so that the order is exact
    engine.submit("flood", {"n": children})
    expected = "select coalesce(max(expected), 0) from suimon.fanouts"
    engine.until(lambda: engine.one(expected) == children, "all children queued")
    engine.noted("blocked")
    running = "select count(*) from suimon.runs where status = 'running'"
    engine.until(lambda: engine.one(running) == 1, "what stood behind is given back")
    small = engine.submit("small")
    # the blocked one, and what was in the worker's hands until it found that out
    held = engine.one(
        "select count(*) from suimon.runs where vertex = 'children' and claim_no > 0"
        " and status <> 'succeeded'"
    )
    assert held < children / 4
    before = len(engine.project.lines("order"))
    engine.project.mark("go")
    engine.wait(small)
    order = [line[0] for line in engine.project.lines("order")]
    assert order.index("small") - before <= held, "it waited behind the queue"
    worker.kill9()
