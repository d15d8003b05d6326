"""The MERGE object of the seed text, byte for byte as printed there, merges 100 children.

`tests/data/seed_merge.json` is that object. It stands under an id in a graph written as JSON: up to
5 % failed children are tolerated, and the verdict does not wait for stragglers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engine import Engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

SEED = Path(__file__).parents[1] / "data" / "seed_merge.json"
CODE = """
@task
def numbers():
    return list(range(100))

@task
def child(n, failures=0):
    if n < 2:
        # two stragglers; they stop only when told to, or when the test lets them
        note("straggling", n)
        await_mark("go", 1000)
        note("straggled", n)
    elif n < 2 + failures:
        await_mark("fail")
        raise ValueError("no " + str(n))
    return n

@task(timeout="300ms")
def quick(n):
    if n == 7:
        time.sleep(1000)
    return n
"""
GRAPH = """{{
  "suimon": 1, "pipeline": "{name}",
  "vertices": {{
    "items": {{"type": "TASK", "config": {{"task": "m:numbers"}}}},
    "children": {{"type": "SPAWNER", "inputs": {{"items": {{"$ref": "items"}}{shared}}},
                 "config": {config}}},
    "outcome": {seed}
  }}
}}"""


@pytest.fixture
def deployed(engine: Engine) -> Engine:
    seed = SEED.read_text()
    engine.module("m", CODE)
    shared = ', "shared": {"failures": {"$ref": "input.failures"}}'
    graph = GRAPH.format(name="seed", seed=seed, shared=shared, config='{"task": "m:child"}')
    engine.project.file("seed.json", graph)
    config = '{"task": "m:quick", "timeout": "300ms"}'
    graph = GRAPH.format(name="timed", seed=seed, shared="", config=config)
    engine.project.file("timed.json", graph)
    assert sorted(engine.deploy()) == ["seed", "timed"]
    engine.worker(slots=4)
    return engine


def test_five_failed_of_a_hundred_are_tolerated(deployed: Engine) -> None:
    deployed.project.mark("fail")
    deployed.project.mark("go")
    run = deployed.wait(deployed.submit("seed", {"failures": 5}))
    assert run.output["counts"] == {
        "total": 100, "succeeded": 95, "failed": 5, "timed_out": 0, "cancelled": 0,
    }  # fmt: skip
    assert [f["position"] for f in run.output["first_failures"]] == [2, 3, 4, 5, 6]


def test_six_failed_end_the_merge_before_the_stragglers_end(deployed: Engine) -> None:
    submitted = deployed.submit("seed", {"failures": 6})
    deployed.noted("straggling", 2)
    deployed.project.mark("fail")
    run = deployed.wait(submitted, "failed")
    assert deployed.project.lines("straggled") == []
    assert run.error["type"] == "MergeFailed"
    assert "6 failed" in run.error["message"]
    assert "at most 5" in run.error["message"]
    states = [row[1] for row in deployed.children(run.id)]
    assert states[:8] == ["cancelled"] * 2 + ["failed"] * 6
    assert set(states[8:]) <= {"succeeded", "cancelled"}


def test_one_timed_out_is_not_tolerated(deployed: Engine) -> None:
    run = deployed.wait(deployed.submit("timed"), "failed")
    assert run.error["counts"]["timed_out"] == 1
    assert "1 timed_out of 100" in run.error["message"]
