"""Cancel: what waits ends at once, what runs is told, what is below goes first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.lab import SPAWN_GRAPH, Lab, Parent

from suimon.run import cancel, lane, merge, wake
from suimon.run.cancel import Asked
from suimon.run.spawn import Policy


@pytest.fixture
def worker(lab: Lab) -> int:
    """One worker, a plain pipeline and one that spawns."""
    lab.pipeline("p")
    lab.pipeline("parents", SPAWN_GRAPH)
    return lab.worker()


def test_a_queued_run_is_cancelled_at_once(lab: Lab, worker: int) -> None:
    """And a second cancel finds it over."""
    run = lab.submit("p")
    assert cancel.request(lab.conn, [run]) == Asked(1, 0)
    assert lab.status(run) == "cancelled"
    assert cancel.request(lab.conn, [run]) == Asked(0, 1)


def test_a_run_in_back_off_is_cancelled_at_once(lab: Lab, worker: int) -> None:
    """Its timer does not wake it any more."""
    run = lab.submit("p")
    lab.again(worker, lab.claim(worker)[0])
    cancel.request(lab.conn, [run])
    assert lab.status(run) == "cancelled"
    assert wake.wake_due(lab.conn) == 0


def test_a_running_run_is_told_through_its_worker(lab: Lab, db_url: str, worker: int) -> None:
    """It runs on until its worker ends it; a failed try after that is no reason for another one."""
    lab.sql("listen suimon_cancel")
    lab.submit("p")
    row = lab.claim(worker)[0]
    cancel.request(lab.conn, [row.id])
    assert [n.payload for n in lab.conn.notifies(timeout=1, stop_after=1)] == [str(worker)]
    assert lab.status(row.id) == "running"
    assert lab.again(worker, row).again == set()
    lab.end(worker, row, "cancelled")
    assert lab.status(row.id) == "cancelled"


def test_a_waiting_parent_ends_when_all_below_it_have(lab: Lab, worker: int) -> None:
    """Queued children at once; the one that runs decides when."""
    parent = lab.fan_out(worker, "parents", 5)
    child = lab.claim(worker)[0]
    cancel.request(lab.conn, [parent.id])
    assert lab.statuses() == {"waiting": 1, "running": 1, "cancelled": 4}
    follows = lab.end(worker, child, "cancelled").settled
    assert follows.stopped_parents == (parent.id,)
    cancel.end_parents(lab.conn, follows.stopped_parents)
    assert lab.statuses() == {"cancelled": 6}
    assert lab.tally(parent) == (0, 0, 0, 5)


def _nested(lab: Lab, worker: int) -> list[Parent]:
    """root → 3 children that each wait for 4 of their own."""
    root = lab.fan_out(worker, "parents", 3, to="parents")
    made = [root]
    for row in lab.claim(worker, 3):
        inner = lab.parent(worker, "parents", row=row)
        lab.chunk(inner, 0, 4)
        lab.seal(inner, 4)
        lab.spawned(inner)
        assert lab.park(inner)
        made.append(inner)
    return made


def test_a_nested_tree_is_cancelled_to_its_leaves(lab: Lab, worker: int) -> None:
    """Every level's tally is complete, and says so."""
    made = _nested(lab, worker)
    cancel.request(lab.conn, [made[0].id])
    assert lab.statuses() == {"cancelled": 1 + 3 + 12}
    assert [lab.tally(one) for one in made] == [(0, 0, 0, 3)] + [(0, 0, 0, 4)] * 3
    assert lab.wrong_tallies() == []


@pytest.mark.parametrize("crash_after", range(1, 8))
def test_a_sweep_goes_on_where_a_crash_stopped_a_cancel(
    lab: Lab, worker: int, crash_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off after any of its transactions; the duty finishes it."""
    made = _nested(lab, worker)
    steps = iter(range(100))

    def crashing(act: Callable[[], object]) -> object:
        if next(steps) == crash_after:
            raise KeyboardInterrupt
        return act()

    with monkeypatch.context() as patched:
        patched.setattr(cancel, "retrying", crashing)
        try:
            cancel.request(lab.conn, [made[0].id])
        except KeyboardInterrupt:
            assert lab.statuses().get("cancelled", 0) < 16
    cancel.sweep(lab.conn)
    assert lab.statuses() == {"cancelled": 16}
    assert lab.wrong_tallies() == []


def test_an_unsealed_spawner_that_is_gone_is_sealed_with_what_exists(lab: Lab, worker: int) -> None:
    """Its worker died; nobody will read the list on, so the tally can be complete."""
    parent = lab.parent(worker, "parents")
    lab.chunk(parent, 0, 6)
    lab.kill(worker)
    from suimon.run import rescue

    rescue.rescue(lab.conn)
    cancel.request(lab.conn, [parent.id])
    assert lab.statuses() == {"cancelled": 7}
    found = lab.fanout(parent)
    assert (found["expected"], found["state"]) == (6, "settled")


def test_an_unsealed_spawner_in_a_workers_hands_stops_there(lab: Lab, worker: int) -> None:
    """Its children go at once; its worker seals, and ends it."""
    parent = lab.parent(worker, "parents")
    lab.chunk(parent, 0, 6)
    cancel.request(lab.conn, [parent.id])
    assert lab.statuses() == {"running": 1, "cancelled": 6}
    assert merge.stop_parent(lab.conn, parent.holder) is False
    found = lab.fanout(parent)
    assert (found["expected"], found["state"]) == (6, "settled")


def test_stragglers_of_a_fan_out_that_failed_fast_are_cancelled(lab: Lab, worker: int) -> None:
    """Those that wait at once, the running one is asked; the parent is woken at the settle."""
    parent = lab.fan_out(worker, "parents", 5, policy=Policy(fail_fast=True))
    one, two = lab.claim(worker, 2)
    assert lab.end(worker, one, "failed").settled.stragglers
    cancel.sweep(lab.conn)
    assert lab.status(parent.id) == "queued"
    assert lab.tally(parent) == (0, 1, 0, 3)
    assert lab.one("select cancel_requested from suimon.runs where id = %s", two.id)


def test_stragglers_that_may_finish_are_left_alone(lab: Lab, worker: int) -> None:
    """`stragglers: finish`: who has begun goes on, who has not is cancelled."""
    parent = lab.fan_out(worker, "parents", 5, policy=Policy(fail_fast=True, stragglers="finish"))
    one, two = lab.claim(worker, 2)
    lab.end(worker, one, "failed")
    cancel.sweep(lab.conn)
    assert not lab.one("select cancel_requested from suimon.runs where id = %s", two.id)
    lab.end(worker, two)
    assert lab.tally(parent) == (1, 1, 0, 3)
    assert lab.fanout(parent)["settles"] == 1


def test_a_child_cancelled_by_hand_frees_its_place(lab: Lab, worker: int) -> None:
    """In its spawn's lane, and in the tally."""
    parent = lab.fan_out(worker, "parents", 3, limit=1)
    cancel.request(lab.conn, [parent.child_id(0)])
    assert [row.id for row in lab.claim(worker, 5)] == [parent.child_id(1)]
    assert lab.tally(parent) == (0, 0, 0, 1)


@pytest.mark.slow
def test_ten_thousand_children_are_cancelled_in_batches(lab: Lab, worker: int) -> None:
    """A thousand a transaction, lanes admitted after it; nothing is left."""
    parent = lab.fan_out(worker, "parents", 10_000, limit=100)
    cancel.request(lab.conn, [parent.id])
    assert lab.statuses() == {"cancelled": 10_001}
    assert lane.sweep(lab.conn) == 0
