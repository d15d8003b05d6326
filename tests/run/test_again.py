"""Retry of one step: it and all after it are forgotten and run again; the rest is not."""

from __future__ import annotations

from typing import Any

import pytest
from support.lab import SPAWN_GRAPH, TASK_GRAPH, Lab, Parent

from suimon.errors import Conflict, InputRefused
from suimon.run import again, audit, pages, read, retry
from suimon.run.spawn import Policy

CHAIN: dict[str, Any] = {
    name: {"type": "TASK", "config": {"task": "m:f"}, **({"after": [before]} if before else {})}
    for name, before in (("a", None), ("b", "a"), ("c", "b"), ("beside", "a"))
}


def steps(lab: Lab, run: str) -> dict[str, str]:
    return dict(lab.sql("select vertex, status from suimon.steps where run_id = %s", run))


def chain(lab: Lab, status: str = "succeeded") -> str:
    """A run of CHAIN that has ended, with its steps."""
    lab.pipeline("chain", CHAIN)
    worker = lab.worker()
    run = lab.submit("chain")
    row = lab.claim_run(worker, run)
    for name in CHAIN:
        bad = name == "b" and status == "failed"
        if not (status == "failed" and name == "c"):
            lab.sql("insert into suimon.steps (run_id, vertex, status, attempt, claim_no)"
                    " values (%s, %s, %s, 1, 1)",
                    run, name, "failed" if bad else "succeeded")  # fmt: skip
    lab.end(worker, row, status)
    return run


def do(lab: Lab, run: str, vertex: str) -> again.StepPlan:
    plan = again.plan(lab.conn, run, vertex)
    again.apply(lab.conn, plan, actor="ada", why="again")
    return plan


@pytest.mark.parametrize("status", ["succeeded", "failed"])
def test_a_step_and_all_after_it(lab: Lab, status: str) -> None:
    """Also of a run that has succeeded; what lies beside the step stays."""
    run = chain(lab, status)
    plan = again.plan(lab.conn, run, "b")
    assert plan.steps == ("b", "c")
    assert set(steps(lab, run)) >= {"a", "b", "beside"}, "a plan changes nothing"
    again.apply(lab.conn, plan, actor="ada", why="again")
    assert steps(lab, run) == {"a": "succeeded", "beside": "succeeded"}
    assert lab.status(run) == "queued"
    record = audit.listed(lab.conn, target=run)[0]
    assert (record["action"], record["actor"], record["detail"]["steps"]) == (
        "retry_step",
        "ada",
        ["b", "c"],
    )
    assert lab.one("select how from suimon.attempts where run_id = %s", run) == (
        "retried" if status == "succeeded" else "failed"
    )


def test_what_the_steps_left_behind_is_forgotten(lab: Lab) -> None:
    """Checkpoints and decisions of these steps, not of others; the record keeps the decisions."""
    run = chain(lab)
    for vertex in ("a", "b"):
        lab.sql("insert into suimon.checkpoints (run_id, vertex, name, value, claim_no)"
                " values (%s, %s, 'n', '1', 1)", run, vertex)  # fmt: skip
        lab.sql("insert into suimon.approvals"
                " (run_id, vertex, pipeline, decision, decided_by, decided_at)"
                " values (%s, %s, 'chain', 'approved', 'bob', now())", run, vertex)  # fmt: skip
    do(lab, run, "b")
    for table in ("checkpoints", "approvals"):
        assert lab.sql(f"select vertex from suimon.{table}") == [("a",)]
    (decision,) = audit.listed(lab.conn, target=run)[0]["detail"]["decisions"]
    assert (decision["vertex"], decision["decision"], decision["by"]) == ("b", "approved", "bob")


def test_a_run_with_one_step(lab: Lab) -> None:
    """Its own row is its step; it may have succeeded."""
    lab.pipeline("p", TASK_GRAPH)
    worker = lab.worker()
    run = lab.submit("p")
    lab.end(worker, lab.claim_run(worker, run))
    do(lab, run, "t")
    assert lab.status(run) == "queued"
    assert lab.claim(worker)[0].id == run


def test_what_is_refused(lab: Lab) -> None:
    """A run that has not ended; a vertex that does not exist; a child of one task."""
    lab.pipeline("p", TASK_GRAPH)
    with pytest.raises(Conflict, match="when its run has ended"):
        again.plan(lab.conn, lab.submit("p"), "t")
    with pytest.raises(InputRefused) as caught:
        again.plan(lab.conn, chain(lab), "besides")
    assert 'did you mean "beside"' in caught.value.render()


def parent_with_list(lab: Lab, verdict: str = "succeeded", policy: Policy | None = None) -> Parent:
    lab.pipeline("trees", SPAWN_GRAPH)
    worker = lab.worker()
    parent = lab.fan_out(worker, "trees", 3, policy=policy)
    rows = lab.claim(worker, 3)
    lab.end(worker, rows[:1], verdict)
    lab.end(worker, rows[1:])
    lab.end(worker, lab.claim_run(worker, parent.id), verdict)
    return parent


def test_a_spawner_reads_its_list_anew(lab: Lab) -> None:
    """The new fan-out has children of its own; the old one is put aside: looked at by its ids,
    counted by nobody, and none of its children is retried.
    """
    parent = parent_with_list(lab, "failed")
    plan = do(lab, parent.id, "kids")
    assert plan.steps == ("kids", "outcome", "report")
    assert plan.lists == ("kids",)
    assert lab.fanout(parent)["generation"] == -1
    worker = lab.worker()
    row = lab.claim_run(worker, parent.id)
    second = lab.parent(worker, "trees", row=row)
    assert second.fanout.id != parent.fanout.id
    assert second.fanout.expected is None, "not the sealed one"
    lab.chunk(second, 0, 2)
    lab.seal(second, 2)
    lab.spawned(second)
    assert lab.park(second)
    shown = read.run(lab.conn, parent.id)
    assert [one.counts.expected for one in shown.fanouts] == [2]
    assert pages.fanout_of(lab.conn, parent.id, "kids").id == second.fanout.id
    with pytest.raises(Conflict, match="of an earlier list"):
        retry.plan(lab.conn, [parent.child_id(0)])
    lab.end(worker, lab.claim(worker, 2))
    lab.end(worker, lab.claim_run(worker, parent.id))
    assert lab.status(parent.id) == "succeeded"
    assert not lab.wrong_tallies()


def test_a_spawner_twice(lab: Lab) -> None:
    """Each list that was put aside keeps a number of its own."""
    parent = parent_with_list(lab)
    do(lab, parent.id, "kids")
    worker = lab.worker()
    second = lab.parent(worker, "trees", row=lab.claim_run(worker, parent.id))
    lab.seal(second, 0)
    lab.spawned(second)
    lab.end(worker, second.row)
    do(lab, parent.id, "kids")
    found = lab.sql(
        "select generation from suimon.fanouts where parent_id = %s order by id", parent.id
    )
    assert found == [(-1,), (-2,)]


def test_a_merge_alone_keeps_its_children(lab: Lab) -> None:
    parent = parent_with_list(lab)
    plan = do(lab, parent.id, "outcome")
    assert (plan.steps, plan.lists) == (("outcome", "report"), ())
    assert lab.fanout(parent)["generation"] == 1
    assert lab.fanout(parent)["state"] == "settled"


def test_a_list_that_was_cut_short_is_gone_on_with(lab: Lab) -> None:
    """A new one would leave its children behind: refused, whole."""
    lab.pipeline("trees", SPAWN_GRAPH)
    worker = lab.worker()
    parent = lab.parent(worker, "trees")
    lab.chunk(parent, 0, 2)
    lab.end(worker, parent.row, "failed")
    with pytest.raises(Conflict, match="was cut short"):
        do(lab, parent.id, "kids")
    assert lab.status(parent.id) == "failed"


def test_children_that_have_not_ended(lab: Lab) -> None:
    """A merge that gave up early leaves stragglers: refused until they have stopped."""
    lab.pipeline("trees", SPAWN_GRAPH)
    worker = lab.worker()
    policy = Policy(fail_fast=True, stragglers="finish")
    parent = lab.fan_out(worker, "trees", 3, policy=policy)
    lab.end(worker, lab.claim(worker), "failed")
    lab.end(worker, lab.claim_run(worker, parent.id), "failed")
    with pytest.raises(Conflict, match="have not ended"):
        do(lab, parent.id, "kids")
    assert lab.status(parent.id) == "failed"


def test_merges_above_run_again(lab: Lab) -> None:
    """A step of a child pipeline: its parent opens again, up to the root, as in every retry."""
    lab.pipeline("trees", SPAWN_GRAPH)
    lab.pipeline("chain", CHAIN)
    worker = lab.worker()
    top = lab.parent(worker, "trees", to="chain")
    lab.chunk(top, 0, 1)
    lab.seal(top, 1)
    lab.spawned(top)
    assert lab.park(top)
    child = top.child_id(0)
    row = lab.claim(worker)[0]
    for name in CHAIN:
        lab.sql("insert into suimon.steps (run_id, vertex, status, attempt, claim_no)"
                " values (%s, %s, 'succeeded', 1, 1)", child, name)  # fmt: skip
    lab.end(worker, row)
    lab.sql("insert into suimon.steps (run_id, vertex, status, attempt, claim_no)"
            " values (%s, 'outcome', 'succeeded', 1, 1)", top.id)  # fmt: skip
    lab.end(worker, lab.claim_run(worker, top.id))
    assert lab.status(top.id) == "succeeded"
    plan = do(lab, child, "c")
    assert [one.id for one in plan.above.parents] == [top.id]
    assert (lab.status(child), lab.status(top.id)) == ("queued", "queued")
    assert steps(lab, top.id) == {"kids": "succeeded"}
    assert lab.tally(top) == (0, 0, 0, 0)
    assert lab.fanout(top)["state"] == "open"
