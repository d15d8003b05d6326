"""Going on without a failed run: what happened stays as it is, and what waits for it goes on."""

from __future__ import annotations

from typing import Any

import pytest
from support.lab import SPAWN_GRAPH, Lab, Parent

from suimon.errors import Conflict, RunNotFound
from suimon.run import retry, skip, spawn, step
from suimon.run.finish import Ended
from suimon.run.merge import finish_parent
from suimon.run.spawn import Policy
from suimon.worker import batch as batches

NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def worker(lab: Lab) -> int:
    lab.pipeline("parents", SPAWN_GRAPH)
    return lab.worker()


def _records(lab: Lab) -> list[tuple[Any, ...]]:
    return lab.sql(
        "select actor, target, detail from suimon.audit where action = 'skip' order by id"
    )


def _end_parent(lab: Lab, worker: int, parent: Parent, status: str) -> None:
    row = lab.claim_run(worker, parent.id)
    made = lab.batch(worker, [])
    text = "{}" if status == "succeeded" else ""
    made.steps.append(step.Step(row.id, row.claim_no, "outcome", status, 1, text, ""))
    batches.execute(lab.conn, made)
    holder = spawn.Holder(row.id, row.claim_no, worker)
    output, error = ("1", "") if status == "succeeded" else ("", '{"message": "merge"}')
    ended = Ended(row.id, row.claim_no, status, output, error, 0, row.fanout_id, row.lane)
    assert finish_parent(lab.conn, holder, ended, {"vertices": SPAWN_GRAPH}, grace_s=10).done


def _failed(
    lab: Lab, worker: int, bad: int, policy: Policy | None = None
) -> tuple[Parent, list[str]]:
    """A fan-out of five with so many failed children, and its failed parent."""
    parent = lab.fan_out(worker, "parents", 5, policy=policy or Policy())
    rows = sorted(lab.claim(worker, 5), key=lambda row: row.id)
    lab.end(worker, rows[:bad], "failed")
    lab.end(worker, rows[bad:])
    _end_parent(lab, worker, parent, "failed")
    return parent, [row.id for row in rows[:bad]]


def test_a_failed_run_lets_go_the_lane_that_it_keeps_closed(lab: Lab, worker: int) -> None:
    """The next one is admitted; the run stays failed; skipping again is a conflict."""
    lab.pipeline("p", concurrency=1, onFailure="hold")
    run = lab.submit("p")
    lab.end(worker, lab.claim_run(worker, run), "failed")
    behind = lab.submit("p")
    assert not lab.one("select admitted from suimon.runs where id = %s", behind)
    assert skip.skip(lab.conn, run, actor="ada", why="by hand").lane == "pipeline:p"
    assert lab.one("select admitted from suimon.runs where id = %s", behind)
    assert lab.status(run) == "failed"
    assert _records(lab) == [("ada", run, {"why": "by hand", "lane": "pipeline:p"})]
    with pytest.raises(Conflict, match="nothing waits for run"):
        skip.skip(lab.conn, run, actor="ada")
    with pytest.raises(RunNotFound):
        skip.skip(lab.conn, NOBODY, actor="ada")


def test_a_merge_runs_again_without_the_only_failed_child(lab: Lab, worker: int) -> None:
    """The child stays failed and counted; the parent goes on and succeeds."""
    parent, (child,) = _failed(lab, worker, 1)
    assert lab.status(parent.id) == "failed"
    done = skip.skip(lab.conn, child, actor="ada", why="known to be broken")
    assert (done.vertex, done.merges_again, done.bad) == ("kids", True, 0)
    assert (lab.status(child), lab.status(parent.id)) == ("failed", "queued")
    assert lab.fanout(parent)["verdict"] == "succeeded"
    assert lab.tally(parent) == lab.recount(parent) == (4, 1, 0, 0)
    _end_parent(lab, worker, parent, "succeeded")
    assert lab.status(parent.id) == "succeeded"
    assert [(who, run) for who, run, _ in _records(lab)] == [("ada", child)]
    with pytest.raises(Conflict, match="nothing waits"):
        skip.skip(lab.conn, child, actor="ada")


def test_the_merge_waits_until_no_bad_end_is_left_that_counts(lab: Lab, worker: int) -> None:
    parent, children = _failed(lab, worker, 3)
    left = [skip.skip(lab.conn, child, actor="ada") for child in children]
    assert [(one.merges_again, one.bad) for one in left] == [(False, 2), (False, 1), (True, 0)]
    assert lab.status(parent.id) == "queued"
    assert lab.fanout(parent)["settles"] == 2


def test_a_child_in_a_tolerated_state_raises_what_is_allowed(lab: Lab, worker: int) -> None:
    policy = Policy(tolerate=("failed",), max_failures=1)
    parent, children = _failed(lab, worker, 3, policy)
    first = skip.skip(lab.conn, children[0], actor="ada")
    assert (first.merges_again, first.bad) == (False, 1)
    assert skip.skip(lab.conn, children[1], actor="ada").merges_again
    assert (lab.fanout(parent)["allowed"], lab.fanout(parent)["skipped"]) == (3, 0)
    with pytest.raises(Conflict, match="nothing waits"):
        skip.skip(lab.conn, children[2], actor="ada")


@pytest.mark.parametrize("tolerate", [(), ("failed",)])
def test_a_retry_takes_the_word_back(lab: Lab, worker: int, tolerate: tuple[str, ...]) -> None:
    """It counts again, and if it fails again it must be skipped again."""
    policy = Policy(tolerate=tolerate, max_failures=0 if tolerate else None)
    parent, (child,) = _failed(lab, worker, 1, policy)
    skip.skip(lab.conn, child, actor="ada")
    _end_parent(lab, worker, parent, "succeeded")
    plan = retry.plan(lab.conn, [parent.id], failed_children=True)
    assert retry.apply(lab.conn, plan, actor="ada") == 1
    assert (lab.fanout(parent)["allowed"], lab.fanout(parent)["skipped"]) == (0, 0)
    lab.end(worker, lab.claim_run(worker, child), "failed")
    assert lab.fanout(parent)["verdict"] == "failed"
    assert skip.skip(lab.conn, child, actor="ada").merges_again
    assert lab.wrong_tallies() == []


def test_two_levels_down_both_merges_run_again(lab: Lab, worker: int) -> None:
    root = lab.fan_out(worker, "parents", 1, to="parents")
    inner = lab.parent(worker, "parents", row=lab.claim(worker, 1)[0])
    lab.chunk(inner, 0, 2)
    lab.seal(inner, 2)
    lab.spawned(inner)
    assert lab.park(inner)
    rows = sorted(lab.claim(worker, 2), key=lambda row: row.id)
    lab.end(worker, rows[0], "failed")
    lab.end(worker, rows[1])
    _end_parent(lab, worker, inner, "failed")
    _end_parent(lab, worker, root, "failed")
    assert skip.skip(lab.conn, rows[0].id, actor="ada").merges_again
    assert (lab.status(inner.id), lab.status(root.id)) == ("queued", "queued")
    _end_parent(lab, worker, inner, "succeeded")
    _end_parent(lab, worker, root, "succeeded")
    assert lab.status(root.id) == "succeeded"
    assert lab.wrong_tallies() == []


def test_a_word_that_a_crash_cut_off_is_finished_by_the_next(lab: Lab, worker: int) -> None:
    """Marked, but its merge was not opened yet."""
    parent, (child,) = _failed(lab, worker, 1)
    lab.sql("update suimon.runs set reason = 'skipped' where id = %s", child)
    lab.sql("update suimon.fanouts set skipped = 1 where id = %s", parent.fanout.id)
    assert skip.skip(lab.conn, child, actor="ada").merges_again
    assert lab.fanout(parent)["skipped"] == 1
    assert lab.status(parent.id) == "queued"


def test_a_list_that_has_not_ended_is_no_basis(lab: Lab, worker: int) -> None:
    """How many may fail is not known before the seal."""
    parent = lab.parent(worker, "parents")
    lab.chunk(parent, 0, 2)
    row = lab.claim(worker, 1)[0]
    lab.end(worker, row, "failed")
    with pytest.raises(Conflict, match="has not ended"):
        skip.skip(lab.conn, row.id, actor="ada")
