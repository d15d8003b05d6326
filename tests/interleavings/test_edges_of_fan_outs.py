"""Finding 17: lists that are read twice, retries below a settled merge, ends that all count."""

from __future__ import annotations

import pytest
from support.lab import SPAWN_GRAPH, Lab, Parent
from support.sessions import Sessions

from suimon.db.connect import Connection
from suimon.db.statements import Statements
from suimon.errors import ItemsChanged
from suimon.run import approvals, cancel, merge, rescue, retry, spawn, wait
from suimon.run.claim import Claimed
from suimon.run.finish import Ended
from suimon.run.merge import ParentEnd
from suimon.worker import batch as batches


@pytest.fixture
def worker(lab: Lab) -> int:
    """One worker, and a pipeline that spawns, merges and reports."""
    lab.pipeline("parents", SPAWN_GRAPH)
    return lab.worker()


def _redelivered(lab: Lab, parent: Parent) -> Parent:
    """The spawner's worker has died; another one has the parent and opens its fan-out again."""
    lab.kill(parent.holder.worker)
    rescue.rescue(lab.conn)
    worker = lab.worker()
    return lab.parent(worker, "parents", row=lab.claim_run(worker, parent.id))


def _finish(parent: Parent, row: Claimed, status: str = "succeeded") -> object:
    """The parent's worker thinks that its last step is done."""

    def act(conn: Connection) -> ParentEnd:
        holder = spawn.Holder(row.id, row.claim_no, parent.holder.worker)
        output, error = ("1", "") if status == "succeeded" else ("", '{"message": "merge"}')
        ended = Ended(row.id, row.claim_no, status, output, error, 0, row.fanout_id, row.lane)
        graph = {"vertices": SPAWN_GRAPH}
        return merge.finish_parent(conn, holder, ended, graph, grace_s=10)

    return act


def _after_its_merge(
    lab: Lab, worker: int, *, failed: int = 1
) -> tuple[Parent, Claimed, list[Claimed]]:
    """A parent that runs its last step; `failed` of its three children have failed."""
    parent = lab.fan_out(worker, "parents", 3, policy=spawn.Policy(tolerate=("failed",)))
    children = lab.claim(worker, 3)
    if failed:
        lab.end(worker, children[:failed], "failed")
    lab.end(worker, children[failed:])
    assert lab.status(parent.id) == "queued"
    return parent, lab.claim_run(worker, parent.id), children


def test_17a_a_shorter_list_is_refused_at_the_seal(lab: Lab, worker: int) -> None:
    """Five children exist; the second reading ends after four: nothing is sealed, nobody waits."""
    parent = lab.parent(worker, "parents")
    lab.chunk(parent, 0, 5)
    again = _redelivered(lab, parent)
    assert lab.chunk(again, 0, 4) == (0, False)
    with pytest.raises(ItemsChanged, match="up to position 4"):
        lab.seal(again, 4)
    assert lab.fanout(again)["expected"] is None


def test_17a_another_item_is_refused_with_its_position(lab: Lab, worker: int) -> None:
    """And nothing of that chunk stays."""
    parent = lab.parent(worker, "parents")
    lab.chunk(parent, 0, 5)
    again = _redelivered(lab, parent)
    lab.chunk(again, 0, 3)
    with pytest.raises(ItemsChanged, match="position 3"):
        lab.chunk(again, 3, 10, offset=100)
    assert lab.one("select count(*) from suimon.runs where fanout_id = %s", again.fanout.id) == 5


def test_17a_the_same_list_creates_what_is_missing_and_nothing_twice(lab: Lab, worker: int) -> None:
    """Children that ended meanwhile, failed ones too, stay as they are."""
    parent = lab.parent(worker, "parents")
    lab.chunk(parent, 0, 5)
    failed = lab.claim(worker, 1)[0]
    lab.end(worker, failed, "failed")
    again = _redelivered(lab, parent)
    assert lab.chunk(again, 0, 8) == (3, False)
    lab.seal(again, 8)
    assert lab.status(failed.id) == "failed"
    assert lab.statuses() == {"running": 1, "failed": 1, "queued": 7}


def test_17b_after_the_seal_the_list_is_not_read_again(lab: Lab, worker: int) -> None:
    """Who opens it then is told how many there are; a second seal changes nothing."""
    parent = lab.parent(worker, "parents")
    lab.chunk(parent, 0, 2)
    lab.seal(parent, 2)
    again = _redelivered(lab, parent)
    assert again.fanout.expected == 2
    lab.seal(again, 2)
    assert lab.fanout(again)["expected"] == 2


def test_17c_a_retry_on_an_unsealed_fan_out_takes_the_spawner_along(lab: Lab, worker: int) -> None:
    """Otherwise nobody would ever say how many there are to be."""
    parent = lab.parent(worker, "parents", policy=spawn.Policy(fail_fast=True))
    lab.chunk(parent, 0, 3)
    lab.end(worker, lab.claim(worker, 1), "failed")
    lab.end(worker, parent.row, "failed")
    cancel.sweep(lab.conn)
    lab.sql("update suimon.fanouts set expected = null")
    plan = retry.plan(lab.conn, [parent.id], failed_children=True)
    assert [one.id for one in plan.runs] == [parent.id]
    retry.apply(lab.conn, plan, actor="test")
    found = lab.fanout(parent)
    assert (found["state"], found["expected"], found["cancelling"]) == ("open", None, False)
    assert lab.status(parent.id) == "queued"


def test_17d_there_is_one_count_per_terminal_state(lab: Lab, worker: int) -> None:
    """Each end stands under its own name, so that a merge may tolerate one and not the other."""
    parent = lab.fan_out(worker, "parents", 4)
    rows = lab.claim(worker, 4)
    for row, status in zip(rows, ("succeeded", "failed", "timed_out", "cancelled"), strict=True):
        lab.end(worker, row, status)
    assert lab.tally(parent) == lab.recount(parent) == (1, 1, 1, 1)


def test_17e_a_retry_of_many_does_not_settle_before_all_are_open(
    lab: Lab, sessions: Sessions, worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch ends before the second is re-opened: the hold keeps the merge shut."""
    monkeypatch.setattr(retry, "BATCH", 2)
    parent = lab.fan_out(worker, "parents", 4)
    lab.end(worker, lab.claim(worker, 4), "failed")
    (retrier,) = sessions("retrier")
    plan = retry.plan(lab.conn, [parent.id], failed_children=True)
    second = iter(range(2))

    def between(conn: Connection, ids: list[str], lanes: set[str]) -> int:
        if next(second):
            rows = [row for row in lab.claim(worker, 10) if row.parent_is_not(parent)]
            lab.end(worker, rows)
            assert lab.tally(parent)[0] == 2
            assert lab.fanout(parent)["state"] == "open"
        return original(conn, ids, lanes)

    original = retry._reopen
    monkeypatch.setattr(Claimed, "parent_is_not", lambda row, p: row.id != p.id, raising=False)
    monkeypatch.setattr(retry, "_reopen", between)
    assert retry.apply(retrier.conn, plan, actor="test") == 4
    lab.end(worker, [row for row in lab.claim(worker, 10) if row.id != parent.id])
    assert lab.fanout(parent)["verdict"] == "succeeded"
    assert lab.fanout(parent)["settles"] == 2


def test_17e_a_hold_whose_retrier_died_ends_by_itself(lab: Lab, worker: int) -> None:
    """After a minute without a batch the repair settles what is complete."""
    from suimon.duties import sweep

    parent = lab.fan_out(worker, "parents", 2)
    lab.conn.execute(retry.SQL.hold, {"fanouts": [parent.fanout.id]})
    lab.end(worker, lab.claim(worker, 2))
    assert lab.fanout(parent)["state"] == "open"
    assert sweep.repair(lab.conn) == 0
    lab.sql("update suimon.fanouts set held_until = clock_timestamp() - interval '1 second'")
    assert sweep.repair(lab.conn) == 1
    assert lab.status(parent.id) == "queued"


def _retry_one(failed: Claimed) -> object:
    def act(conn: Connection) -> int:
        plan = retry.plan(conn, [failed.id])
        return retry.apply(conn, plan, actor="test")

    return act


def test_17f_a_child_retried_under_a_running_parent_is_waited_for(lab: Lab, worker: int) -> None:
    """The parent may not succeed above an open fan-out: it parks, and merges again."""
    parent, row, children = _after_its_merge(lab, worker)
    assert _retry_one(children[0])(lab.conn) == 1  # type: ignore[operator]
    end = _finish(parent, row)(lab.conn)  # type: ignore[operator]
    assert (end.done, end.parked) == (False, True)
    child = lab.claim(worker)[0]
    assert child.id == children[0].id
    lab.end(worker, child)
    assert lab.status(parent.id) == "queued"
    assert lab.tally(parent) == (3, 0, 0, 0)


@pytest.mark.parametrize("status", ["succeeded", "failed"])
def test_17f_a_retry_meets_the_parents_end(
    lab: Lab, sessions: Sessions, worker: int, status: str
) -> None:
    """The parent ends while its fan-out is being opened: it waits, and sees it open.

    A parent that fails by that very merge parks as well: its verdict is out of date.
    """
    parent, row, children = _after_its_merge(lab, worker)
    lab.sql(
        "insert into suimon.steps (run_id, vertex, status, attempt, claim_no)"
        " values (%s, 'outcome', %s, 1, 2)",
        parent.id, status,
    )  # fmt: skip
    retrier, finisher = sessions("retrier", "finisher")
    retrier.hold(after=retry.SQL.reopen)
    retried = retrier.start(_retry_one(children[0]))  # type: ignore[arg-type]
    retrier.until_held()
    finished = finisher.start(_finish(parent, row, status))  # type: ignore[arg-type]
    finisher.until_blocked()
    retrier.release()
    assert retried.done_in() == 1
    assert finished.done_in().parked
    assert lab.status(parent.id) == "waiting"
    lab.end(worker, lab.claim(worker))
    assert lab.status(parent.id) == "queued"


def test_17f_a_retry_meets_a_parent_that_begins_to_wait_behind_its_merge(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """It has asked people about the merge, and parks while that is being undone: it waits for its
    children instead, and nobody can answer a question that nobody asks any more.
    """
    parent, row, children = _after_its_merge(lab, worker)
    holder = spawn.Holder(row.id, row.claim_no, worker)
    asked = approvals.ask(
        lab.conn, holder, "report", pipeline="parents", show=b"1", required=True, title=None,
        role=None, quorum=1, expires_s=None,
    )  # fmt: skip
    assert asked is None
    retrier, parker = sessions("retrier", "parker")
    retrier.hold(after=retry.SQL.reopen)
    retried = retrier.start(_retry_one(children[0]))  # type: ignore[arg-type]
    retrier.until_held()
    merged = {parent.fanout.id: ["outcome", "report"]}
    waits = [wait.On(approval="report")]
    parked = parker.start(lambda conn: wait.park(conn, holder, waits, grace_s=10, merged=merged))
    parker.until_blocked()
    retrier.release()
    assert retried.done_in() == 1
    assert parked.done_in() == (True, None)
    assert lab.sql("select status::text, reason from suimon.runs where id = %s", parent.id) == [
        ("waiting", "children")
    ]
    assert approvals.listed(lab.conn, run_id=parent.id, all_=True) == []
    lab.end(worker, lab.claim(worker))
    assert lab.status(parent.id) == "queued"


def test_17f_without_the_fix_the_parent_ends_above_an_open_fan_out(
    lab: Lab, sessions: Sessions, broken: Statements, worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking for open fan-outs only, it locks none, and sees the one being opened settled."""
    parent, row, children = _after_its_merge(lab, worker)
    retrier, finisher = sessions("retrier", "finisher")
    texts = {**retry.SQL._texts, "below": broken.open_below}
    monkeypatch.setattr(retry.SQL, "_texts", texts)
    retrier.hold(after=retry.SQL.reopen)
    retried = retrier.start(_retry_one(children[0]))  # type: ignore[arg-type]
    retrier.until_held()
    assert finisher.start(_finish(parent, row)).done_in().done  # type: ignore[arg-type]
    retrier.release()
    assert retried.done_in() == 1
    lab.end(worker, lab.claim(worker))
    assert lab.status(parent.id) == "succeeded", "and never merged what was retried"


def test_17f_a_parent_that_ended_after_the_plan_is_re_opened(lab: Lab, worker: int) -> None:
    """What counts is its state when the retry is done, not when it was thought of."""
    parent, row, children = _after_its_merge(lab, worker)
    plan = retry.plan(lab.conn, [children[0].id])
    assert _finish(parent, row)(lab.conn).done  # type: ignore[operator]
    retry.apply(lab.conn, plan, actor="test")
    assert lab.status(parent.id) == "queued"
    assert lab.status(children[0].id) == "queued"


def test_17f_a_child_retried_alone_is_not_cancelled_for_its_siblings(lab: Lab, worker: int) -> None:
    """Two failed under fail-fast; one is retried and runs, though the other one is hopeless."""
    parent = lab.fan_out(worker, "parents", 3, policy=spawn.Policy(fail_fast=True))
    rows = lab.claim(worker, 3)
    lab.end(worker, rows[:2], "failed")
    lab.end(worker, rows[2:])
    assert lab.fanout(parent)["verdict"] == "failed"
    lab.end(worker, lab.claim_run(worker, parent.id), "failed")
    _retry_one(rows[0])(lab.conn)  # type: ignore[operator]
    cancel.sweep(lab.conn)
    assert lab.status(rows[0].id) == "queued"
    lab.end(worker, lab.claim_run(worker, rows[0].id))
    found = lab.fanout(parent)
    assert (found["state"], found["verdict"], found["succeeded"], found["failed"]) == (
        "settled",
        "failed",
        2,
        1,
    )


def test_17g_every_terminal_edge_of_a_child_is_tallied(lab: Lab, worker: int) -> None:
    """By hand, poisoned in a slot and by a worker, cancelled with its parent."""
    parent = lab.fan_out(worker, "parents", 6)
    queued = parent.child_id(0)
    cancel.request(lab.conn, [queued])
    assert lab.tally(parent) == (0, 0, 0, 1)
    slot, dead, own, _ = lab.claim(worker, 4)
    lab.sql(
        "update suimon.runs set interruptions = 3 where id = any(%s::uuid[])", [slot.id, dead.id]
    )
    made = lab.batch(worker, [])
    made.interrupted = [(slot.id, slot.claim_no)]
    made.fanouts = {parent.fanout.id}
    batches.execute(lab.conn, made)
    lab.end(worker, own, "timed_out")
    lab.kill(worker)
    rescue.rescue(lab.conn)
    assert lab.tally(parent) == lab.recount(parent) == (0, 2, 1, 1)
    cancel.request(lab.conn, [parent.id])
    assert lab.tally(parent) == lab.recount(parent) == (0, 2, 1, 3)
    assert lab.status(parent.id) == "cancelled"


def test_17h_two_last_children_end_at_once_and_one_of_them_settles(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """One row holds the tally: the second finisher waits for the first, and counts two of two."""
    parent = lab.fan_out(worker, "parents", 2)
    rows = lab.claim(worker, 2)
    one, two = sessions("one", "two")
    with one.transaction():
        batches.execute(one.conn, lab.batch(worker, [lab.ended(rows[0])]))
        job = two.start(lambda conn: batches.execute(conn, lab.batch(worker, [lab.ended(rows[1])])))
        two.until_blocked()
    assert job.done_in().settled.pools == ("default",)
    assert lab.fanout(parent)["settles"] == 1
    assert lab.status(parent.id) == "queued"
