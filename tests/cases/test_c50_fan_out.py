"""C50, C52, C54, C56: nothing and one, retries before the merge, duplicates, tolerance."""

from __future__ import annotations

import pytest
from support.engine import Engine

from suimon.errors import InputRefused

pytestmark = pytest.mark.acceptance

CODE = """
@task
def child(n):
    note("child", n)
    return n

@task
def listed(outcome: MergeResult):
    note("merged")
    return [[c.position, c.key, c.value] for c in outcome.succeeded]

p = Pipeline("plain", concurrency=None)
p.run("last", listed, p.merge("merged", p.spawn("each", child, p.input.things)))

@task
def empty(kind):
    return {"list": [], "null": None, "text": "abc"}[kind]

q = Pipeline("by-task", concurrency=None)
q.run("last", listed, q.merge("merged", q.spawn("each", child, q.run("made", empty, q.input.kind))))

@task
def keyed_child(item):
    return item["id"]

k = Pipeline("keyed", concurrency=None)
k.run("last", listed, k.merge("merged", k.spawn("each", keyed_child, k.input.things, key="id")))

@task
def failing(n):
    note("failing", n)
    if not os.path.exists(path("mend")):
        raise ValueError("not yet: " + n)
    return n

d = Pipeline("duplicates", concurrency=None)
d_merged = d.merge("merged", d.spawn("each", failing, d.input.things), tolerate=["FAILED"])
d.run("last", listed, d_merged)

@task(retries=2, backoff="1500ms")
def flaky(n, ctx):
    note("flaky", n, ctx.attempt)
    if n in (3, 7) and ctx.attempt == 1:
        raise RuntimeError("only the first time")
    return n

r = Pipeline("retried", concurrency=None)
r.run("last", listed, r.merge("merged", r.spawn("each", flaky, r.input.things)))

@task
def some_fail(n):
    if n in (4, 11):
        raise ValueError("item " + str(n) + " is bad")
    return None if n == 9 else n

@task
def apart(outcome: MergeResult):
    return {
        "counts": dict(outcome.counts),
        "values": {c.key: c.value for c in outcome.succeeded},
        "failed": [[c.key, c.position, c.state, c.error.message] for c in outcome.failed],
    }

@task
def bad_item(item):
    return some_fail(item["id"])

t = Pipeline("tolerant", concurrency=None)
t_each = t.spawn("each", bad_item, t.input.things, key="id")
t.run("last", apart, t.merge("merged", t_each, tolerate=["FAILED"], max_failures=2))
"""


@pytest.fixture
def deployed(engine: Engine) -> Engine:
    engine.module("m", CODE)
    engine.deploy()
    return engine


def test_c50_fan_out_over_nothing_and_over_one(deployed: Engine) -> None:
    """**Do** start with [], [1], null and a missing key. **Must**: [] has no child, the merge runs
    once with an empty list, succeeded; [1] has one child and the merge gets a list of one; null
    fails the fan-out step clearly; a missing key is refused at the door.
    """
    deployed.worker(slots=1)
    nothing = deployed.wait(deployed.submit("plain", {"things": []}))
    assert nothing.output == []
    assert deployed.children(nothing.id) == []
    assert len(deployed.project.lines("merged")) == 1
    one = deployed.wait(deployed.submit("plain", {"things": [1]}))
    assert one.output == [[0, None, 1]]
    assert len(deployed.children(one.id)) == 1
    assert deployed.wait(deployed.submit("by-task", {"kind": "list"})).output == []
    null = deployed.wait(deployed.submit("plain", {"things": None}), "failed")
    assert "list" in null.error["message"]
    for kind in ("null", "text"):
        bad = deployed.wait(deployed.submit("by-task", {"kind": kind}), "failed")
        assert "list" in bad.error["message"], bad.error
    with pytest.raises(InputRefused, match="things"):
        deployed.submit("plain", {})


def test_c52_merge_while_a_child_waits_for_its_retry(deployed: Engine) -> None:
    """**Set up** 10 children, 3 attempts, a pause between them; children 3 and 7 fail first.
    **Do** kill the worker during the pause. **Must** merge once, after all 10 have ended, with 10
    results in item order.
    """
    first = deployed.worker(slots=2)
    run = deployed.submit("retried", {"things": list(range(10))})
    retrying = "select count(*) from suimon.runs where status = 'waiting' and reason = 'retry'"
    deployed.until(lambda: deployed.one(retrying) == 2, "two children wait for their retry")
    ended = "select count(*) from suimon.runs where vertex = 'each' and status = 'succeeded'"
    deployed.until(lambda: deployed.one(ended) == 8, "the others have ended")
    first.kill9()
    assert deployed.project.lines("merged") == []
    deployed.worker(slots=2)
    done = deployed.wait(run)
    assert done.output == [[n, None, n] for n in range(10)]
    assert len(deployed.project.lines("merged")) == 1
    tries = deployed.project.lines("flaky")
    assert sorted(n for n, attempt in tries if attempt == "2") == ["3", "7"]
    assert len(tries) == 12


def test_c54_the_same_item_twice_in_the_list(deployed: Engine) -> None:
    """**Do** a list [a, b, a, c, c, c] without and with an item key; retry the second a alone.
    **Must**: without a key six children told apart by position; with a key a refusal that lists
    the duplicates.
    """
    deployed.worker(slots=1)
    letters = ["a", "b", "a", "c", "c", "c"]
    run = deployed.wait(deployed.submit("duplicates", {"things": letters}))
    children = deployed.children(run.id)
    assert [row[0] for row in children] == [0, 1, 2, 3, 4, 5]
    assert run.output == []
    deployed.project.mark("mend")
    deployed.retry(children[2][3])
    deployed.until(
        lambda: deployed.run(run.id).over and deployed.run(run.id).output, "merged again"
    )
    assert deployed.run(run.id).output == [[2, None, "a"]]
    assert len(deployed.project.lines("failing")) == 7
    keyed = deployed.submit("keyed", {"things": [{"id": letter} for letter in letters]})
    refused = deployed.wait(keyed, "failed")
    assert refused.error["type"] == "DuplicateKeys"
    told = str(refused.error)
    assert "2 keys" in told or "a" in told
    assert all(f'"{key}"' in told or f"'{key}'" in told or key in told for key in ("a", "c"))


def test_c56_failed_child_under_a_tolerance(deployed: Engine) -> None:
    """**Set up** 20 children, 2 failures tolerated; 4 and 11 fail for good, 9 returns null.
    **Must** give the merge 18 results with keys and a list of 2 failures with reasons; 9's null is
    a result; the run says succeeded, with 2 failures.
    """
    deployed.worker(slots=2)
    run = deployed.wait(deployed.submit("tolerant", {"things": [{"id": n} for n in range(20)]}))
    assert run.output["counts"] == {
        "total": 20, "succeeded": 18, "failed": 2, "timed_out": 0, "cancelled": 0,
    }  # fmt: skip
    assert run.output["failed"] == [
        ["4", 4, "failed", "item 4 is bad"],
        ["11", 11, "failed", "item 11 is bad"],
    ]
    values = run.output["values"]
    assert len(values) == 18
    assert values["9"] is None
    assert values["10"] == 10
    merged = deployed.one(
        "select output from suimon.steps where run_id = %s and vertex = 'merged'", run.id
    )
    assert merged["counts"]["failed"] == 2
