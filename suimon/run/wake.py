"""Wake-ups: nobody polls, and no wake-up is lost.

Every path that makes a run claimable ends with ``wake``, a statement after its writes: it notifies
one idle worker of each pool, by name. A worker that wants to go silent commits its idle flag, takes
its own transaction id as a mark and keeps trying until no transaction below the mark is open;
whoever submitted without seeing the flag holds such an id (``idle_mark``, ``idle_safe``).

``wake_due`` ends back-offs and durable timers. Whoever parks a run arms its own timer; the sweep is
there for the timers of the dead.
"""

from __future__ import annotations

from collections.abc import Iterable

from suimon.db.connect import Connection, transaction
from suimon.db.statements import statements

SQL = statements(__package__, "wake.sql")
CHANNEL = "suimon_wake"
CANCEL_CHANNEL = "suimon_cancel"
DOORS_CHANNEL = "suimon_doors"
LIMITS_CHANNEL = "suimon_limits"


def wake(conn: Connection, pools: Iterable[str]) -> None:
    """Notify one idle worker of each pool; nothing is sent where nobody is idle."""
    conn.execute(SQL.wake, {"pools": sorted(set(pools))})


def wake_due(conn: Connection) -> int:
    """waiting → queued for every run whose time has come, at most 1,000; returns how many."""
    with transaction(conn):
        rows = conn.execute(SQL.due).fetchall()
        if rows:
            wake(conn, [pool for pool, _ in rows])
    return sum(int(count) for _, count in rows)


def go_idle(conn: Connection, worker: int) -> tuple[int | None, bool]:
    """Commit the idle flag, then take the mark (None: this worker is buried); and whether its pool
    has a cap.
    """
    row = conn.execute(SQL.idle_on, {"worker": worker}).fetchone()
    if row is None:
        return None, False
    return mark(conn), bool(row[0])


def mark(conn: Connection) -> int:
    """A transaction id: whoever had begun to write before now holds a lower one."""
    row = conn.execute(SQL.idle_mark).fetchone()
    assert row is not None
    return int(row[0])


def may_be_silent(conn: Connection, mark: int) -> bool:
    """Whether every transaction that could have missed the idle flag has ended."""
    row = conn.execute(SQL.idle_safe, {"mark": mark}).fetchone()
    return bool(row and row[0])
