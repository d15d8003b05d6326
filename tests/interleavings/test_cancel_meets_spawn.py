"""Findings 4 and 10: a cancel meets a spawner at work, and whose children are whose."""

from __future__ import annotations

import pytest
from support.lab import Lab
from support.sessions import Sessions

from suimon.db.statements import Statements
from suimon.errors import ItemsChanged
from suimon.run import cancel, merge
from suimon.run.spawn import LostRunError, Policy
from suimon.worker import batch as batches


@pytest.fixture
def worker(lab: Lab) -> int:
    """One worker, and a pipeline that spawns."""
    lab.pipeline("parents")
    return lab.worker()


@pytest.mark.parametrize("early", [True, False])
def test_04_a_cancel_meets_a_chunk(lab: Lab, sessions: Sessions, worker: int, early: bool) -> None:
    """Asked first, children after: the chunk's five are cancelled too, and the next is refused."""
    parent = lab.parent(worker, "parents")
    if early:
        lab.chunk(parent, 0, 5)
    spawner, canceller = sessions("spawner", "canceller")
    spawning = Lab(spawner.conn)
    with spawner.transaction():
        spawning.chunk(parent, 5 * early, 5)
        job = canceller.start(lambda conn: cancel.request(conn, [parent.id]))
        canceller.until_blocked()
    job.done_in()
    assert lab.statuses() == {"running": 1, "cancelled": 5 + 5 * early}
    with pytest.raises(LostRunError):
        lab.chunk(parent, 10, 5)


def test_04_a_cancel_meets_the_opening_of_a_fan_out(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """It was not there when the cancel looked, and is marked all the same: its parent can end."""
    row = lab.claim_run(worker, lab.submit("parents"))
    opener, canceller = sessions("opener", "canceller")
    with opener.transaction():
        parent = Lab(opener.conn).parent(worker, "parents", row=row)
        job = canceller.start(lambda conn: cancel.request(conn, [row.id]))
        canceller.until_blocked()
    job.done_in()
    assert lab.fanout(parent)["cancelling"]
    with pytest.raises(LostRunError):
        lab.chunk(parent, 0, 5)
    assert merge.stop_parent(lab.conn, parent.holder) is False
    assert lab.fanout(parent)["expected"] == 0


def test_04_without_the_fix_the_open_fan_out_keeps_its_parent_for_ever(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """Looked for before the parent was locked only: unsealed, unmarked, and waited for."""
    row = lab.claim_run(worker, lab.submit("parents"))
    opener, canceller = sessions("opener", "canceller")
    ids = {"ids": [row.id]}
    with opener.transaction():
        parent = Lab(opener.conn).parent(worker, "parents", row=row)
        canceller.conn.execute(cancel.SQL.mark_fanouts, ids)
        job = canceller.start(lambda conn: conn.execute(cancel.SQL.request, ids))
        canceller.until_blocked()
    job.done_in()
    assert merge.stop_parent(lab.conn, parent.holder) is True
    cancel.sweep(lab.conn)
    assert lab.status(parent.id) == "waiting"


def test_04_without_the_fix_the_chunk_lives_on(
    lab: Lab, sessions: Sessions, broken: Statements, worker: int
) -> None:
    """One statement cancels the parent and none of the children it did not see."""
    parent = lab.parent(worker, "parents")
    spawner, canceller = sessions("spawner", "canceller")
    with spawner.transaction():
        Lab(spawner.conn).chunk(parent, 0, 5)
        job = canceller.start(
            lambda conn: conn.execute(broken.cancel_in_one, {"id": parent.id}).fetchall()
        )
        canceller.until_blocked()
    assert job.done_in() == []
    assert lab.statuses() == {"cancelled": 1, "queued": 5}


def test_04_a_chunk_after_fail_fast_tells_its_spawner_to_stop(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """The chunk under way is stored, the spawner stops, the next sweep ends its children too."""
    parent = lab.parent(worker, "parents", policy=Policy(fail_fast=True))
    lab.chunk(parent, 0, 2)
    child = lab.claim(worker)[0]
    (spawner,) = sessions("spawner")
    with spawner.transaction():
        Lab(spawner.conn).chunk(parent, 2, 3)
        lab.end(worker, child, "failed")
    assert lab.fanout(parent)["state"] == "settled"
    created, stop = lab.chunk(parent, 5, 4)
    assert (created, stop) == (4, True)
    merge.seal_short(lab.conn, parent.holder, parent.fanout)
    cancel.sweep(lab.conn)
    assert lab.tally(parent) == lab.recount(parent) == (0, 1, 0, 8)
    assert lab.fanout(parent)["expected"] == 9


def test_04_a_child_that_spawns_while_its_parent_is_cancelled_leaves_no_orphans(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """Idle children are locked, then looked at in the next statement with all they have now."""
    child, earlier = _two_children(lab, worker)
    holder, canceller = sessions("holder", "canceller")
    with holder.transaction():
        holder.conn.execute("select from suimon.runs where id = %s for update", (earlier,))
        job = canceller.start(lambda conn: cancel._end_idle(conn, [earlier, child], "x"))
        canceller.until_blocked()
        _spawn_and_park(lab, worker, child)
    job.done_in()
    assert lab.status(earlier) == "cancelled"
    assert lab.status(child) == "waiting", "it has a living child: it may not end"


def test_04_without_the_fix_grandchildren_are_orphans(
    lab: Lab, sessions: Sessions, broken: Statements, worker: int
) -> None:
    """Seen idle, then claimed, spawned and parked: cancelled above a living child."""
    child, earlier = _two_children(lab, worker)
    holder, canceller = sessions("holder", "canceller")
    with holder.transaction():
        holder.conn.execute("select from suimon.runs where id = %s for update", (earlier,))
        job = canceller.start(
            lambda conn: conn.execute(broken.cancel_idle, {"ids": [earlier, child]}).fetchall()
        )
        canceller.until_blocked()
        _spawn_and_park(lab, worker, child)
    job.done_in()
    assert lab.status(child) == "cancelled"
    assert lab.one("select count(*) from suimon.runs where status = 'queued'") == 1


def _two_children(lab: Lab, worker: int) -> tuple[str, str]:
    """(a queued child that will spawn, a queued one whose id is smaller)."""
    lab.fan_out(worker, "parents", 2, to="parents")
    ids = [
        row[0]
        for row in lab.sql("select id::text from suimon.runs where position >= 0 order by id")
    ]
    return ids[1], ids[0]


def _spawn_and_park(lab: Lab, worker: int, child: str) -> None:
    """The child is claimed, makes one grandchild and waits for it."""
    row = next(r for r in lab.claim(worker, 1) if r.id == child)
    parent = lab.parent(worker, "parents", row=row)
    lab.chunk(parent, 0, 1)
    lab.seal(parent, 1)
    assert lab.park(parent)


def test_10_a_base_is_made_once_and_ids_of_others_are_refused(lab: Lab, worker: int) -> None:
    """A second try finds the first one's base; an id that another has is an error, no child."""
    parent = lab.parent(worker, "parents")
    again = lab.parent(worker, "parents", row=parent.row)
    assert again.fanout.base == parent.fanout.base
    other = lab.parent(worker, "parents")
    assert other.fanout.base != parent.fanout.base
    lab.chunk(other, 0, 1)
    lab.sql(
        "update suimon.runs set id = %s where fanout_id = %s", parent.child_id(3), other.fanout.id
    )
    with pytest.raises(ItemsChanged):
        lab.chunk(parent, 0, 5)
    assert lab.one("select count(*) from suimon.runs where fanout_id = %s", parent.fanout.id) == 0


def test_13_a_fan_out_that_is_opened_again_is_locked_before_its_parent(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """A cancel holds the fan-out and wants the parent: the redelivered spawner waits for both."""
    parent = lab.parent(worker, "parents")
    canceller, opener = sessions("canceller", "opener")
    with canceller.transaction():
        canceller.conn.execute(cancel.SQL.mark_fanouts, {"ids": [parent.id]})
        job = opener.start(lambda conn: Lab(conn).parent(worker, "parents", row=parent.row))
        opener.until_blocked()
        canceller.conn.execute(cancel.SQL.request, {"ids": [parent.id]})
    with pytest.raises(LostRunError):
        job.done_in()


def test_13_a_batch_of_many_kinds_locks_its_runs_in_one_order(
    lab: Lab, sessions: Sessions, worker: int
) -> None:
    """The later run ends, the earlier one's slot died: a cancel of both waits, no deadlock."""
    lab.submit_many("parents", 2)
    first, second = sorted(lab.claim(worker, 2), key=lambda row: row.id)
    made = lab.batch(worker, [lab.ended(second)])
    made.interrupted = [(first.id, first.claim_no)]
    holder, canceller, sender = sessions("holder", "canceller", "sender")
    with holder.transaction():
        holder.conn.execute("select from suimon.runs where id = %s for update", (first.id,))
        job = sender.start(lambda conn: batches._send(conn, made))
        sender.until_blocked()
        # had the batch begun with the end of the second run, this would wait for it
        canceller.conn.execute("set lock_timeout = '2s'")
        canceller.conn.execute(
            "select from suimon.runs where id = %s for no key update nowait", (second.id,)
        )
    job.done_in()
    assert (lab.status(first.id), lab.status(second.id)) == ("queued", "succeeded")
