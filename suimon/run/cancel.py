"""Cancel: of one run, and of all that is below it.

First the words, in one transaction and durable: ``cancel_requested`` on the run, ``cancelling`` on
its fan-outs. From then on no chunk of a spawner is accepted and no merge can end well. Then the
work, in batches that any sweep can go on with after a crash: idle children by id range, running
ones through their worker, each level of the tree in turn. A run is ``cancelled`` when everything
below it has ended.

Cancelling again changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.run import finish, lane, wake

SQL = statements(__package__, "cancel.sql")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request met: how many runs were asked, and how many of them were over already."""

    asked: int
    over: int


def request(
    conn: Connection, ids: Sequence[str], *, why: str = "cancelled by an operator"
) -> Asked:
    """Ask these runs (at most 1,000 at once) to stop, and do at once what needs no worker."""
    found = _mark(conn, ids)
    _end_idle(conn, [run_id for run_id, status in found if status in ("queued", "waiting")], why)
    sweep(conn)
    return Asked(len(found), len(ids) - len(found))


def expire(conn: Connection) -> int:
    """Ask every run whose deadline has passed to stop; at most 500 a call. Returns how many."""
    overdue = [row[0] for row in conn.execute(SQL.overdue).fetchall()]
    return request(conn, overdue, why="its deadline has passed").asked if overdue else 0


def sweep(conn: Connection, *, passes: int = 10_000) -> int:
    """Go on with every cancel that is under way, until nothing more can be done without a worker.

    Bounded by ``passes`` batches of 1,000 children. Returns how many runs it ended.
    """
    ended = 0
    for _ in range(passes):
        moved = 0
        after = 0
        while fanouts := conn.execute(SQL.cancelling, {"after": after}).fetchall():
            for fanout, parent, base, unsealed, leave_running in fanouts:
                if unsealed:
                    moved += _seal(conn, [parent])
                moved += _cancel_children(conn, base, leave_running=leave_running)
                after = fanout
        stoppable = [row[0] for row in conn.execute(SQL.stoppable).fetchall()]
        moved += _end_idle(conn, stoppable, "cancelled")
        if not moved:
            break
        ended += moved
    return ended


def end_parents(conn: Connection, ids: Sequence[str]) -> int:
    """waiting → cancelled for parents that were asked to stop and whose children have all ended."""
    ended = _end_idle(conn, ids, "cancelled")
    return ended + (sweep(conn) if ended else 0)


def seal_stopped(conn: Connection, ids: Sequence[str], worker: int | None) -> int:
    """A stopped spawner's open list ends with what exists; settled if that has all ended.

    In the caller's transaction, which holds the fan-outs and their parents. Returns how many.
    """
    rows = conn.execute(SQL.seal_stopped, {"ids": list(ids), "worker": worker}).fetchall()
    if rows:
        wake.wake(conn, finish.settled(finish.send_settle(conn, [row[0] for row in rows])).pools)
    return len(rows)


def _mark(conn: Connection, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Write down that these shall stop, tell the workers; returns (id, status) of the live ones."""

    def act() -> list[tuple[str, str]]:
        with transaction(conn):
            conn.execute(SQL.mark_fanouts, {"ids": list(ids)})
            rows = conn.execute(SQL.request, {"ids": list(ids)}).fetchall()
            # again: one that was being opened held its parent until now, and was not there before
            conn.execute(SQL.mark_fanouts, {"ids": list(ids)})
            seal_stopped(conn, ids, None)
            workers = sorted({str(row[2]) for row in rows if row[2] is not None})
            if workers:
                conn.execute(wake.SQL.tell_workers, {"workers": workers})
            return [(row[0], row[1]) for row in rows]

    return retrying(act)


def _seal(conn: Connection, parents: Sequence[str]) -> int:
    def act() -> int:
        with transaction(conn):
            conn.execute(SQL.lock_fanouts, {"ids": list(parents)})
            conn.execute(SQL.lock_idle, {"ids": list(parents)})
            return seal_stopped(conn, parents, None)

    return retrying(act)


def _cancel_children(conn: Connection, base: str, *, leave_running: bool) -> int:
    """One pass over a fan-out's live children; returns how many changed."""
    first, moved = 0, 0
    while rows := conn.execute(SQL.live_children, {"base": base, "first": first}).fetchall():
        first = rows[-1][2] + 1
        chosen = [r for r in rows if not (leave_running and r[1] == "running")]
        idle = [r[0] for r in chosen if r[1] in ("queued", "waiting")]
        moved += _end_idle(conn, idle, "cancelled with its parent")
        # the others run, or have children themselves: they get the words, and their turn later
        asked = [r[0] for r in chosen if not r[4]]
        if asked:
            moved += len([1 for _, status in _mark(conn, asked) if status != "running"])
    return moved


def _end_idle(conn: Connection, ids: Sequence[str], why: str) -> int:
    """queued | waiting → cancelled, tallied and settled; parents that may end now follow."""
    ended, todo = 0, list(ids)
    while todo:
        batch, todo = todo[:1000], todo[1000:]

        def act(batch: Sequence[str] = batch) -> tuple[int, set[str], set[str], finish.Settled]:
            with transaction(conn):
                conn.execute(SQL.lock_idle, {"ids": list(batch)})
                rows = conn.execute(SQL.cancel_idle, {"ids": list(batch), "why": why}).fetchall()
                fanouts = sorted({row[1] for row in rows if row[1] is not None})
                follows = finish.settled(finish.send_settle(conn, fanouts))
                if follows.pools:
                    wake.wake(conn, follows.pools)
                lanes = {row[2] for row in rows if row[2] is not None}
                return len(rows), lanes, set(follows.pools), follows

        count, lanes, _, follows = retrying(act)
        # never under the rows' locks: lane rows come first in the lock order
        lane.admit(conn, lanes)
        ended += count
        todo += follows.stopped_parents
    return ended
