"""An operator's retry: undone is undone all the way up, and the dry run says what will happen."""

from __future__ import annotations

import pytest
from support.lab import SPAWN_GRAPH, Lab, Parent

from suimon.db.connect import Connection
from suimon.duties import sweep
from suimon.errors import Conflict, DuplicateKeys, RunNotFound
from suimon.run import cancel, retry, spawn, step, wait
from suimon.run.claim import Claimed
from suimon.run.finish import Ended
from suimon.run.merge import finish_parent
from suimon.run.spawn import Policy
from suimon.worker import batch as batches

TOLERANT = Policy(tolerate=("failed",))


@pytest.fixture
def worker(lab: Lab) -> int:
    """One worker, a plain pipeline and one that spawns, merges and reports."""
    lab.pipeline("p")
    lab.pipeline("parents", SPAWN_GRAPH)
    return lab.worker()


def _end_parent(lab: Lab, worker: int, parent: Parent, *, status: str = "succeeded") -> None:
    """Claimed after its settle: the merge and what follows are recorded, and the run ends."""
    row = lab.claim_run(worker, parent.id)
    made = lab.batch(worker, [])
    for vertex in ("outcome", "report") if status == "succeeded" else ("outcome",):
        made.steps.append(
            step.Step(
                row.id, row.claim_no, vertex, status, 1, "{}" if status == "succeeded" else "", ""
            )
        )
        batches.execute(lab.conn, made)
        made.steps.clear()
    holder = spawn.Holder(row.id, row.claim_no, worker)
    output, error = ("1", "") if status == "succeeded" else ("", '{"message": "merge"}')
    ended = Ended(row.id, row.claim_no, status, output, error, 0, row.fanout_id, row.lane)
    assert finish_parent(lab.conn, holder, ended, {"vertices": SPAWN_GRAPH}, grace_s=10).done


def _steps(lab: Lab, parent: Parent) -> set[str]:
    return {
        row[0] for row in lab.sql("select vertex from suimon.steps where run_id = %s", parent.id)
    }


def _apply(lab: Lab, *ids: str, failed_children: bool = False) -> tuple[dict[str, object], int]:
    plan = retry.plan(lab.conn, ids, failed_children=failed_children)
    said = plan.to_json()
    return said, retry.apply(lab.conn, plan, actor="test", why="because")


def test_a_failed_run_goes_back_and_keeps_its_history(lab: Lab, worker: int) -> None:
    """Its tries count from one again; the end undone is an attempt, and the audit says who."""
    lab.submit("p")
    row = lab.claim(worker)[0]
    lab.end(worker, row, "failed")
    assert _apply(lab, row.id)[1] == 1
    again = lab.claim(worker)[0]
    assert (again.id, again.attempt, again.claim_no) == (row.id, 1, 2)
    assert lab.sql("select how from suimon.attempts") == [("failed",)]
    assert lab.sql("select actor, action, target, detail ->> 'why' from suimon.audit") == [
        ("test", "retry", row.id, "because")
    ]


def test_what_cannot_be_retried_is_refused_with_a_reason(lab: Lab, worker: int) -> None:
    """One that has not failed, one that does not exist, one without failed children."""
    run = lab.submit("p")
    with pytest.raises(Conflict, match="nothing to retry"):
        retry.plan(lab.conn, [run])
    with pytest.raises(RunNotFound):
        retry.plan(lab.conn, ["00000000-0000-7000-8000-000000000000"])
    with pytest.raises(Conflict, match="no failed children"):
        retry.plan(lab.conn, [run], failed_children=True)


def test_a_parent_that_failed_by_its_children_is_not_retried_alone(lab: Lab, worker: int) -> None:
    """It would only fail again; the hint says how."""
    parent = lab.fan_out(worker, "parents", 2)
    lab.end(worker, lab.claim(worker, 2), "failed")
    _end_parent(lab, worker, parent, status="failed")
    with pytest.raises(Conflict) as caught:
        retry.plan(lab.conn, [parent.id])
    assert "--failed-children" in caught.value.render()


def test_failed_children_of_a_run_that_succeeded_with_them_run_again(lab: Lab, worker: int) -> None:
    """The merge and what follows are forgotten, what stands before them is not."""
    parent = lab.fan_out(worker, "parents", 10, policy=TOLERANT)
    rows = lab.claim(worker, 10)
    lab.end(worker, rows[:4], "failed")
    lab.end(worker, rows[4:])
    _end_parent(lab, worker, parent)
    said, done = _apply(lab, parent.id, failed_children=True)
    assert said["children"] == done == 4
    assert said["merges_again"] == [
        {"run": parent.id, "pipeline": "parents", "steps": ["outcome", "report"]}
    ] or sorted(said["merges_again"][0]["steps"]) == ["outcome", "report"]  # type: ignore[index]
    assert _steps(lab, parent) == {"kids"}
    (record,) = lab.sql("select detail from suimon.audit where target = %s", parent.id)[0]
    assert record["children_again"] == {"kids": 4}
    assert sorted(record["steps_again"]) == ["outcome", "report"]
    again = [row for row in lab.claim(worker, 20) if row.id != parent.id]
    assert len(again) == 4
    assert lab.tally(parent) == (6, 0, 0, 0)
    lab.end(worker, again)
    assert lab.tally(parent) == lab.recount(parent) == (10, 0, 0, 0)
    assert lab.fanout(parent)["settles"] == 2


def test_each_step_is_named_once(lab: Lab, worker: int) -> None:
    """Also one that stands behind two merges."""
    second = {**SPAWN_GRAPH["kids"]}
    inputs = {"a": {"$ref": "outcome"}, "b": {"$ref": "judged"}}
    graph = {
        **SPAWN_GRAPH,
        "more": second,
        "judged": {"type": "MERGE", "after": ["more"]},
        "report": {**SPAWN_GRAPH["report"], "inputs": inputs},
    }
    lab.pipeline("two", graph)
    run = lab.submit("two", {"items": []})
    made = retry.Plan()
    made.fanouts = {n: (run, v, 1, retry.BAD) for n, v in enumerate(("kids", "more"))}
    retry.add_parents(lab.conn, made)
    (merge,) = made.to_json()["merges_again"]
    assert sorted(merge["steps"]) == ["judged", "outcome", "report"]


def _two_levels(lab: Lab, worker: int) -> tuple[Parent, list[Parent], list[Claimed]]:
    """root → 2 parents → 3 children each; one of the first parent's failed, and all above it."""
    root = lab.fan_out(worker, "parents", 2, to="parents")
    inner = []
    for row in lab.claim(worker, 2):
        one = lab.parent(worker, "parents", row=row)
        lab.chunk(one, 0, 3)
        lab.seal(one, 3)
        lab.spawned(one)
        assert lab.park(one)
        inner.append(one)
    inner.sort(key=lambda one: one.id)
    leaves = sorted(
        lab.claim(worker, 6), key=lambda row: (row.fanout_id != inner[0].fanout.id, row.id)
    )
    lab.end(worker, leaves[0], "failed")
    lab.end(worker, leaves[1:])
    _end_parent(lab, worker, inner[0], status="failed")
    _end_parent(lab, worker, inner[1])
    _end_parent(lab, worker, root, status="failed")
    assert lab.status(root.id) == "failed"
    return root, inner, leaves


@pytest.mark.parametrize("by", ["the leaf", "failed children of the root"])
def test_a_retry_two_levels_down_merges_both_again(lab: Lab, worker: int, by: str) -> None:
    """One leaf runs again; both merges above it do, and nothing else."""
    root, inner, leaves = _two_levels(lab, worker)
    if by == "the leaf":
        said, done = _apply(lab, leaves[0].id)
        assert said["runs"] == [leaves[0].id]
    else:
        said, done = _apply(lab, root.id, failed_children=True)
        assert said["children"] == 1
    assert done == 1
    assert [one["run"] for one in said["merges_again"]] == [inner[0].id, root.id]
    assert (lab.status(inner[0].id), lab.status(inner[1].id), lab.status(root.id)) == (
        "queued",
        "succeeded",
        "queued",
    )
    assert lab.tally(root) == (1, 0, 0, 0)
    lab.end(worker, lab.claim_run(worker, leaves[0].id))
    _end_parent(lab, worker, inner[0])
    _end_parent(lab, worker, root)
    assert set(lab.statuses()) == {"succeeded"}
    assert lab.wrong_tallies() == []
    assert lab.fanout(root)["settles"] == lab.fanout(inner[0])["settles"] == 2
    assert lab.fanout(inner[1])["settles"] == 1


@pytest.mark.slow
def test_ten_thousand_at_once_do_not_merge_before_all_are_open(
    lab: Lab, worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two levels down, with a worker that ends each batch before the next one is re-opened: both
    merges wait for the last child, run once more, and count right.
    """
    count = 10_000
    root = lab.fan_out(worker, "parents", 1, to="parents")
    inner = lab.fan_out(worker, "parents", count, row=lab.claim(worker)[0])
    while rows := lab.claim(worker, 1000):
        lab.end(worker, rows, "failed")
        if lab.status(inner.id) != "waiting":
            break
    _end_parent(lab, worker, inner, status="failed")
    _end_parent(lab, worker, root, status="failed")
    plan = retry.plan(lab.conn, [root.id], failed_children=True)
    assert plan.children == count
    assert [p.id for p in plan.parents] == [inner.id, root.id]
    above = {inner.id: inner, root.id: root}
    ended = 0

    def reopen_and_end(conn: Connection, ids: list[str], lanes: set[str]) -> int:
        nonlocal ended
        done = reopen(conn, ids, lanes)
        leaves = []
        for row in lab.claim(worker, 1000):
            if row.id in above:
                holder = spawn.Holder(row.id, row.claim_no, worker)
                assert wait.park(
                    lab.conn, holder, [wait.On(fanout=above[row.id].fanout.id)], grace_s=10
                )[0]
            else:
                leaves.append(row)
        lab.end(worker, leaves)
        ended += len(leaves)
        assert {lab.fanout(one)["state"] for one in above.values()} == {"open"}, ended
        assert lab.tally(inner) == (ended, count - ended - _open(lab, inner), 0, 0)
        return done

    reopen = retry._reopen
    monkeypatch.setattr(retry, "_reopen", reopen_and_end)
    assert retry.apply(lab.conn, plan, actor="test") == count
    assert ended > count // 2, "most ended while others were still shut"
    while lab.tally(inner)[0] < count:
        rows = [row for row in lab.claim(worker, 1000) if row.id not in above]
        assert rows
        lab.end(worker, rows)
    assert lab.tally(inner) == lab.recount(inner) == (count, 0, 0, 0)
    assert lab.status(root.id) == "waiting"
    _end_parent(lab, worker, inner)
    _end_parent(lab, worker, root)
    assert set(lab.statuses()) == {"succeeded"}
    assert lab.wrong_tallies() == []
    assert lab.fanout(inner)["settles"] == lab.fanout(root)["settles"] == 2


def _open(lab: Lab, parent: Parent) -> int:
    """Its children that have not ended."""
    return int(
        lab.one(
            "select count(*) from suimon.runs where fanout_id = %s"
            " and status in ('queued', 'running')",
            parent.fanout.id,
        )
    )


def test_a_spawner_that_stopped_half_way_creates_only_what_is_missing(
    lab: Lab, worker: int
) -> None:
    """Failed at item 3,000 of 5,000 with 40 children failed: these stay failed and attached."""
    parent = lab.parent(worker, "parents", policy=TOLERANT)
    for first in range(0, 3000, 1000):
        lab.chunk(parent, first, 1000)
    rows = lab.claim(worker, 100)
    lab.end(worker, rows[:40], "failed")
    made = lab.batch(worker, [])
    made.steps = [
        step.Step(parent.id, parent.row.claim_no, "kids", "failed", 1, "", '{"message": "disk"}')
    ]
    batches.execute(lab.conn, made)
    lab.end(worker, parent.row, "failed")
    assert _apply(lab, parent.id)[1] == 1
    again = lab.parent(worker, "parents", row=lab.claim_run(worker, parent.id))
    assert again.fanout.base == parent.fanout.base
    created = [lab.chunk(again, first, 1000)[0] for first in range(0, 5000, 1000)]
    assert created == [0, 0, 0, 1000, 1000]
    lab.seal(again, 5000)
    assert lab.tally(again) == lab.recount(again) == (0, 40, 0, 0)
    assert lab.one("select count(*) from suimon.runs where fanout_id = %s", again.fanout.id) == 5000


def test_a_cancelled_spawner_is_read_on_when_it_is_retried(lab: Lab, worker: int) -> None:
    """Its list was sealed short when it stopped, and settled: a retry opens it again."""
    parent = lab.parent(worker, "parents")
    lab.chunk(parent, 0, 3)
    lab.end(worker, lab.claim(worker, 3))
    cancel.request(lab.conn, [parent.id])
    from suimon.run.merge import stop_parent

    assert stop_parent(lab.conn, parent.holder) is False
    lab.end(worker, parent.row, "cancelled")
    assert lab.fanout(parent)["state"] == "settled"
    assert _apply(lab, parent.id)[1] == 1
    again = lab.parent(worker, "parents", row=lab.claim_run(worker, parent.id))
    assert (again.fanout.state, again.fanout.expected) == ("open", None)
    assert lab.chunk(again, 0, 5) == (2, False)


def test_a_retried_run_of_a_lane_enters_at_its_old_place(lab: Lab, worker: int) -> None:
    """Un-admitted, before those that came later, behind the one that has the place now."""
    lab.pipeline("serial", concurrency=1)
    ids = [lab.submit("serial") for _ in range(3)]
    row = lab.claim(worker)[0]
    second = lab.end(worker, [row], "failed", want=1).claimed
    assert [one.id for one in second] == [ids[1]]
    _apply(lab, ids[0])
    assert lab.claim(worker, 5) == []
    third = lab.end(worker, second, want=5).claimed
    assert [one.id for one in third] == [ids[0]]
    assert [one.id for one in lab.end(worker, third, want=5).claimed] == [ids[2]]


def test_a_spawns_lane_that_was_dropped_is_made_again(lab: Lab, worker: int) -> None:
    """It ended with its fan-out; its limit stands on its runs."""
    parent = lab.fan_out(worker, "parents", 4, limit=2, policy=TOLERANT)
    for _ in range(2):
        lab.end(worker, [row for row in lab.claim(worker, 9) if row.id != parent.id], "failed")
    _end_parent(lab, worker, parent)
    lab.sql("update suimon.fanouts set settled_at = settled_at - interval '2 minutes'")
    sweep.flows(lab.conn)
    assert lab.one("select count(*) from suimon.lanes where name like 'spawn:%%'") == 0
    assert _apply(lab, parent.id, failed_children=True)[1] == 4
    assert len([row for row in lab.claim(worker, 9) if row.id != parent.id]) == 2


def test_keys_that_stand_twice_are_found_at_the_seal(lab: Lab, worker: int) -> None:
    """By key and position; at most twenty are named, and nothing is sealed."""
    parent = lab.parent(worker, "parents")
    keys = [f"k{i % 50}" for i in range(75)]
    lab.chunk(parent, 0, 75, keys=keys)
    with pytest.raises(DuplicateKeys, match='"k0" at 0, 50') as caught:
        lab.seal(parent, 75, keyed=True)
    assert '"k19"' in str(caught.value)
    assert '"k20"' not in str(caught.value)
    assert lab.fanout(parent)["expected"] is None
