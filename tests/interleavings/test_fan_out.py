"""Findings 3, 12 and 13: parents that park, tallies, and their locks."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest
from support.lab import Lab, Parent
from support.sessions import Sessions

from suimon.db.connect import Connection, connect
from suimon.db.statements import Statements
from suimon.duties import sweep
from suimon.run import cancel, merge, wait
from suimon.run.claim import Claimed
from suimon.worker import batch as batches


@pytest.fixture
def worker(lab: Lab) -> int:
    """One worker, and a pipeline that spawns."""
    lab.pipeline("parents")
    return lab.worker()


def _last_child(lab: Lab, worker: int) -> tuple[Parent, Claimed]:
    """A parent that has sealed and is about to park, and its only child, running."""
    parent = lab.parent(worker, "parents")
    lab.chunk(parent, 0, 1)
    lab.seal(parent, 1)
    lab.spawned(parent)
    return parent, lab.claim(worker)[0]


def test_03_the_last_child_ends_while_the_parent_parks(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """Settle is a statement of its own after the fan-out's lock: the parked parent is woken."""
    parent, child = _last_child(lab, worker)
    parker, finisher = sessions("parker", "finisher")
    parker.hold(after=wait.SQL.park)
    parked = parker.start(
        lambda conn: wait.park(conn, parent.holder, [wait.On(fanout=parent.fanout.id)], grace_s=10)
    )
    parker.until_held()
    ends = lab.batch(worker, [lab.ended(child)])
    job = finisher.start(lambda conn: batches.execute(conn, ends))
    finisher.until_blocked()
    parker.release()
    assert parked.done_in() == (True, None)
    job.done_in()
    assert lab.status(parent.id) == "queued"
    assert lab.fanout(parent)["settles"] == 1


def test_03_without_the_fix_the_parent_waits_for_ever(
    lab: Lab, sessions: Sessions, broken: Statements, worker: int
) -> None:
    """Settled in the finishing statement, whose snapshot still has the parent running."""
    parent, child = _last_child(lab, worker)
    parker, finisher = sessions("parker", "finisher")
    parker.hold(after=wait.SQL.park)
    parked = parker.start(
        lambda conn: wait.park(conn, parent.holder, [wait.On(fanout=parent.fanout.id)], grace_s=10)
    )
    parker.until_held()
    job = finisher.start(
        lambda conn: conn.execute(broken.finish_and_settle, {"id": child.id}).fetchall()
    )
    finisher.until_blocked()
    parker.release()
    parked.done_in()
    assert job.done_in() == []
    assert lab.fanout(parent)["state"] == "settled"
    assert lab.status(parent.id) == "waiting"


def test_03_the_last_child_ends_first_and_the_parent_does_not_park(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """The other order: the park waits for the fan-out and then finds it settled."""
    parent, child = _last_child(lab, worker)
    parker, finisher = sessions("parker", "finisher")
    ends = lab.batch(worker, [lab.ended(child)])
    with finisher.transaction():
        batches.execute(finisher.conn, ends)
        parked = parker.start(
            lambda conn: wait.park(
                conn, parent.holder, [wait.On(fanout=parent.fanout.id)], grace_s=10
            )
        )
        parker.until_blocked()
    assert parked.done_in() == (False, None)
    assert lab.status(parent.id) == "running"


def test_03_children_that_all_ended_before_the_seal_are_seen_by_it(lab: Lab, worker: int) -> None:
    """Nobody else would: the seal's own settle ends the fan-out. So do no children at all."""
    parent = lab.parent(worker, "parents")
    lab.chunk(parent, 0, 3)
    lab.end(worker, lab.claim(worker, 10))
    lab.seal(parent, 3)
    assert lab.fanout(parent)["verdict"] == "succeeded"
    assert not lab.park(parent)
    empty = lab.parent(worker, "parents")
    lab.seal(empty, 0)
    assert lab.fanout(empty)["verdict"] == "succeeded"


def _stopped_parent(lab: Lab, worker: int) -> tuple[Parent, Claimed]:
    """A sealed parent in a worker's hands and its running child; the parent was asked to stop."""
    parent, child = _last_child(lab, worker)
    cancel.request(lab.conn, [parent.id])
    return parent, child


def test_03_the_last_child_ends_while_a_stopped_parent_parks(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """The same at a cancel: who parks below living children has their fan-outs locked."""
    parent, child = _stopped_parent(lab, worker)
    parker, finisher = sessions("parker", "finisher")
    ends = lab.batch(worker, [lab.ended(child)])
    with finisher.transaction():
        batches.execute(finisher.conn, ends)
        stopped = parker.start(lambda conn: merge.stop_parent(conn, parent.holder))
        parker.until_blocked()
    assert stopped.done_in() is False, "all below it have ended: it does not wait"


def test_03_without_the_fix_a_stopped_parent_waits_for_nobody(
    lab: Lab, sessions: Sessions, broken: Statements, worker: int
) -> None:
    """The child is over, its finisher saw a running parent, and the parent parks all the same."""
    parent, child = _stopped_parent(lab, worker)
    (finisher,) = sessions("finisher")
    ends = lab.batch(worker, [lab.ended(child)])
    with finisher.transaction():
        outcome = batches.execute(finisher.conn, ends)
        lab.conn.execute(broken.park_cancelling, {"parent": parent.id})
    assert outcome.settled.stopped_parents == ()
    assert lab.status(parent.id) == "waiting"


def _wrong_tally_and_a_finish(lab: Lab, worker: int) -> tuple[Parent, Claimed]:
    """Two children, one over; the tally says three: it must be mended while the other one ends."""
    parent = lab.fan_out(worker, "parents", 10)
    one, two = lab.claim(worker, 2)
    lab.end(worker, one)
    lab.sql("update suimon.fanouts set succeeded = 3 where id = %s", parent.fanout.id)
    return parent, two


def test_12_a_recount_that_waited_counts_what_came_meanwhile(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """Compared without a lock; then locked, and counted in the next statement."""
    parent, child = _wrong_tally_and_a_finish(lab, worker)
    finisher, repairer = sessions("finisher", "repairer")
    ends = lab.batch(worker, [lab.ended(child)])
    with finisher.transaction():
        batches.execute(finisher.conn, ends)
        job = repairer.start(sweep.repair)
        repairer.until_blocked()
    assert job.done_in() == 1
    assert lab.tally(parent) == lab.recount(parent) == (2, 0, 0, 0)


def test_12_without_the_fix_the_count_goes_back(
    lab: Lab, sessions: Sessions, broken: Statements, worker: int
) -> None:
    """Locked and counted in one statement, it writes the number of before."""
    parent, child = _wrong_tally_and_a_finish(lab, worker)
    lab.sql("update suimon.fanouts set succeeded = 1 where id = %s", parent.fanout.id)
    finisher, repairer = sessions("finisher", "repairer")
    ends = lab.batch(worker, [lab.ended(child)])
    with finisher.transaction():
        batches.execute(finisher.conn, ends)
        job = repairer.start(
            lambda conn: conn.execute(broken.recount_in_one, {"fanout": parent.fanout.id})
        )
        repairer.until_blocked()
    job.done_in()
    assert lab.recount(parent) == (2, 0, 0, 0)
    assert lab.tally(parent) == (1, 0, 0, 0)


def test_12_a_right_tally_is_compared_without_a_lock(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """A finish under way does not make it look wrong, and is not waited for."""
    parent = lab.fan_out(worker, "parents", 10)
    child = lab.claim(worker)[0]
    finisher, repairer = sessions("finisher", "repairer")
    with finisher.transaction():
        batches.execute(finisher.conn, lab.batch(worker, [lab.ended(child)]))
        assert repairer.start(sweep.repair).done_in(5) == 0
    assert lab.tally(parent) == lab.recount(parent) == (1, 0, 0, 0)


def _four_children(lab: Lab, worker: int) -> tuple[list[Claimed], list[Claimed]]:
    """Two fan-outs; two pairs of children, each pair with one child of each."""
    parents = [lab.fan_out(worker, "parents", 2) for _ in range(2)]
    rows = {row.id: row for row in lab.claim(worker, 10)}
    first, second = ([rows[p.child_id(i)] for p in parents] for i in range(2))
    return first, second


def _cross(
    sessions: Sessions,
    one: Callable[[Connection], object],
    two: Callable[[Connection], object],
    lower: str,
) -> None:
    """`one` holds the lower fan-out, `two` meets both, then `one` wants the higher one."""
    a, b = sessions("one", "two")
    with a.transaction():
        a.conn.execute("select from suimon.fanouts where id = %s for update", (lower,))
        job = b.start(two)
        b.until_blocked()
        one(a.conn)
    job.done_in()


def test_13_two_batches_of_the_same_fan_outs_do_not_deadlock(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """Fan-outs are locked in the order of their ids, whatever order the batch has."""
    first, second = _four_children(lab, worker)
    ends = [lab.batch(worker, [lab.ended(r) for r in rows]) for rows in (first, second[::-1])]
    lower = min(r.fanout_id or 0 for r in first)
    _cross(
        sessions,
        lambda conn: batches._send(conn, ends[0]),
        lambda conn: batches._send(conn, ends[1]),
        str(lower),
    )
    assert lab.wrong_tallies() == []
    assert lab.one("select sum(settles) from suimon.fanouts") == 2


def test_13_without_the_fix_they_do(
    lab: Lab, sessions: Sessions, broken: Statements, worker: int
) -> None:
    """A tally that takes its fan-outs in one order meets one that takes them in another."""
    first, second = _four_children(lab, worker)
    ends = lab.batch(worker, [lab.ended(r) for r in first])
    lower = min(r.fanout_id or 0 for r in first)
    lab.sql("set deadlock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.DeadlockDetected):
        _cross(
            sessions,
            lambda conn: batches._send(conn, ends),
            lambda conn: conn.execute(broken.tally_as_it_comes, {"ids": [r.id for r in second]}),
            str(lower),
        )


@pytest.mark.slow
def test_13_forty_fan_outs_and_four_writers(lab: Lab, db_url: str, worker: int) -> None:
    """1,200 children in batches that each touch many fan-outs: no deadlock, every count right."""
    parents = [lab.fan_out(worker, "parents", 30) for _ in range(40)]
    rows = lab.claim(worker, 2000)
    assert len(rows) == 1200
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with connect(db_url, name=f"writer{number}") as conn:
                mine = rows[number::4]
                for start in range(0, len(mine), 30):
                    ends = [lab.ended(r) for r in mine[start : start + 30]]
                    batches._send(conn, lab.batch(worker, ends))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    # children of all fan-outs in every batch, in an order that differs from writer to writer
    rows.sort(key=lambda r: (int(r.id[-8:], 16), hash(r.id)))
    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert lab.wrong_tallies() == []
    assert {lab.fanout(p)["settles"] for p in parents} == {1}
