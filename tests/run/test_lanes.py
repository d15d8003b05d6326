"""Lanes: a limit that holds, an order that is kept, changes that take effect at once."""

from __future__ import annotations

import pytest
from support.lab import SPAWN_GRAPH, Lab

from suimon.run import cancel, claim, finish, lane, rescue, wake
from suimon.run.claim import Claimed
from suimon.worker import batch as batches


@pytest.fixture
def worker(lab: Lab) -> int:
    """One worker, pipelines with limits of one and three."""
    lab.pipeline("one", concurrency=1)
    lab.pipeline("three", concurrency=3)
    return lab.worker()


def _many(lab: Lab, pipeline: str, n: int) -> list[str]:
    return [lab.submit(pipeline) for _ in range(n)]


@pytest.mark.parametrize(("pipeline", "limit"), [("one", 1), ("three", 3)])
def test_at_most_its_limit_runs_at_once_and_in_order(
    lab: Lab, worker: int, pipeline: str, limit: int
) -> None:
    """Each end lets the next one in, in the order of submission, until all are through."""
    ids = _many(lab, pipeline, 8)
    held: list[Claimed] = lab.claim(worker, 100)
    seen = [row.id for row in held]
    while held:
        assert len(held) <= limit
        first, *rest = held
        outcome = lab.end(worker, first, want=100)
        seen += [row.id for row in outcome.claimed]
        held = rest + outcome.claimed
    assert seen == ids


def test_a_busy_lane_does_not_hold_up_others(lab: Lab, worker: int) -> None:
    """Its backlog is not in the claim's index at all."""
    lab.pipeline("free")
    _many(lab, "one", 5)
    lab.claim(worker, 10)
    free = lab.submit("free")
    assert [row.id for row in lab.claim(worker, 10)] == [free]


def test_a_raised_limit_lets_in_at_once(lab: Lab, worker: int) -> None:
    """From one to three with one running; and without any limit, all of them."""
    _many(lab, "one", 6)
    assert len(lab.claim(worker, 10)) == 1
    assert lane.set_limit(lab.conn, "pipeline:one", 3)
    assert len(lab.claim(worker, 10)) == 2
    assert lane.set_limit(lab.conn, "pipeline:one", None)
    assert len(lab.claim(worker, 10)) == 3


def test_a_lowered_limit_drains_what_runs_and_lets_nobody_in(lab: Lab, worker: int) -> None:
    """Nothing is un-admitted: three run on, and the next comes when none is left."""
    _many(lab, "three", 6)
    rows = lab.claim(worker, 10)
    assert lane.set_limit(lab.conn, "pipeline:three", 1)
    for row in rows[:2]:
        assert lab.end(worker, row, want=10).claimed == []
    assert len(lab.end(worker, rows[2], want=10).claimed) == 1


def test_an_unknown_lane_has_no_limit_to_set(lab: Lab) -> None:
    """It says so."""
    assert lane.set_limit(lab.conn, "pipeline:none", 3) is False


def test_who_waits_for_its_next_try_keeps_its_place(lab: Lab, worker: int) -> None:
    """Back-off, release and rescue keep it; nobody slips in between."""
    first, second = _many(lab, "one", 2)
    row = lab.claim(worker)[0]
    lab.again(worker, row)
    assert lab.claim(worker, 10) == []
    assert wake.wake_due(lab.conn) == 1
    row = lab.claim(worker)[0]
    claim.release(lab.conn, worker, [(row.id, row.claim_no)])
    row = lab.claim(worker)[0]
    lab.kill(worker)
    rescue.rescue(lab.conn)
    other = lab.worker()
    row = lab.claim(other)[0]
    assert row.id == first
    assert [r.id for r in lab.end(other, row, want=5).claimed] == [second]


@pytest.mark.parametrize("name", ["one", "three"])
def test_who_waits_is_counted_whenever_somebody_admits(lab: Lab, worker: int, name: str) -> None:
    """All places are held by runs in back-off: an admission lets nobody in."""
    runs = _many(lab, name, 6)
    held = lab.claim(worker, 10)
    for row in held:
        lab.again(worker, row, delay_s=3600.0)
    lane.admit(lab.conn, [f"pipeline:{name}"])
    assert lab.claim(worker, 10) == []
    assert lab.statuses() == {"waiting": len(held), "queued": len(runs) - len(held)}


@pytest.mark.parametrize("how", ["cancel", "poison", "fail"])
def test_every_way_out_of_a_lane_lets_the_next_one_in(lab: Lab, worker: int, how: str) -> None:
    """By hand, by a dead worker once too often, by its own failure."""
    first, second = _many(lab, "one", 2)
    if how == "cancel":
        cancel.request(lab.conn, [first])
    else:
        row = lab.claim(worker)[0]
        if how == "poison":
            lab.sql("update suimon.runs set interruptions = 3 where id = %s", first)
            lab.kill(worker)
            rescue.rescue(lab.conn)
        else:
            lab.end(worker, row, "failed")
    assert [r.id for r in lab.claim(lab.worker(), 5)] == [second]


def test_who_took_its_number_early_and_committed_late_is_not_passed_over(
    lab: Lab, worker: int
) -> None:
    """2,000 have gone through meanwhile: its place lies behind the lane's floor and margin."""
    late = lab.submit("one")
    lab.sql("update suimon.runs set lane_rank = 1, admitted = false where id = %s", late)
    lab.sql("update suimon.lanes set floor = 5000 where name = 'pipeline:one'")
    assert lane.admit(lab.conn, ["pipeline:one"]) == []
    assert lane.admit(lab.conn, ["pipeline:one"], late={"pipeline:one": 1}) == ["default"]


def test_a_child_in_an_ancestors_lane_goes_under_its_place(lab: Lab) -> None:
    """Serial among themselves, under the waiting parent: they would wait for it for ever."""
    lab.pipeline("parents", SPAWN_GRAPH, concurrency=1)
    worker = lab.worker()
    parent = lab.parent(worker, "parents", to="parents")
    assert parent.child.lane == f"pipeline:parents/{parent.id}"
    lab.chunk(parent, 0, 3)
    lab.seal(parent, 3)
    lab.spawned(parent)
    assert lab.park(parent)
    for _ in range(3):
        rows = lab.claim(worker, 10)
        assert len(rows) == 1
        lab.end(worker, rows)
    assert [row.id for row in lab.claim(worker, 10)] == [parent.id]


def test_a_spawns_limit_holds_for_its_children(lab: Lab, worker: int) -> None:
    """Limit two of ten, in item order."""
    lab.pipeline("parents")
    parent = lab.fan_out(worker, "parents", 10, limit=2)
    seen: list[str] = []
    held = lab.claim(worker, 10)
    while held:
        assert len(held) <= 2
        seen += [row.id for row in held]
        held = [r for r in lab.end(worker, held, want=10).claimed if r.id != parent.id]
    assert seen == [parent.child_id(i) for i in range(10)]


def test_a_batch_with_a_bad_row_lets_the_lane_go_on(lab: Lab, worker: int) -> None:
    """A result that cannot be stored ends its own run, and the others' go through."""
    first, second = _many(lab, "one", 2)
    free = lab.claim(worker, 1)[0]
    ended = lab.ended(free)
    ended.output = '"\\u0000"'
    outcome = batches.execute(lab.conn, lab.batch(worker, [ended]))
    assert outcome.ended == {first}
    assert lab.status(first) == "failed"
    assert "cannot be stored" in lab.one(
        "select error ->> 'message' from suimon.runs where id = %s", first
    )
    assert [r.id for r in lab.claim(worker, 5)] == [second]


def test_one_bad_row_of_many_takes_nobody_along(lab: Lab, worker: int) -> None:
    """The batch is sent again in halves."""
    lab.pipeline("free")
    lab.submit_many("free", 20)
    rows = lab.claim(worker, 20)
    ends = [lab.ended(row) for row in rows]
    ends[7] = finish.Ended(ends[7].id, ends[7].claim_no, "succeeded", '"\\u0000"', "", 1)
    assert len(batches.execute(lab.conn, lab.batch(worker, ends)).ended) == 20
    assert lab.statuses() == {"succeeded": 19, "failed": 1}
