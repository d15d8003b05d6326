"""Admission: which of the runs that stand in a lane may be claimed.

A lane is a name with a limit. Submit takes no lock and leaves a lane's run un-admitted; ``admit``
is the one idempotent act that lets it in, run after a submit's commit, at finish, cancel, rescue,
retry, limit change and by the sweep. It locks the lane rows in a statement of its own and counts in
the next one: there is no counter to drift, and a count without that lock is what over-admits.

Lane rows come first in the engine's lock order, so a transaction that both finishes runs and admits
calls ``lock`` before anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.run import wake

SQL = statements(__package__, "lane.sql")


def pipeline_lane(pipeline: str) -> str:
    """The lane every limited pipeline has, whatever door or parent starts its runs."""
    return f"pipeline:{pipeline}"


def make_rows(conn: Connection, lanes: Sequence[tuple[str, int | None, str | None]]) -> None:
    """Make rows of lanes given as (name, limit, root run of a spawn's lane); known ones stay."""
    ordered = sorted(lanes)
    conn.execute(
        SQL.make_rows,
        {
            "names": [name for name, _, _ in ordered],
            "limits": [limit for _, limit, _ in ordered],
            "roots": [root for _, _, root in ordered],
        },
    )


def lock(conn: Connection, lanes: Iterable[str]) -> None:
    """Lock the lanes (sorted) and the flows they feed, for the rest of the transaction."""
    names = {"lanes": sorted(set(lanes))}
    conn.execute(SQL.lock, names)
    conn.execute(SQL.lock_flows, names)


def admit(conn: Connection, lanes: Iterable[str]) -> list[str]:
    """Lock, admit and wake, in one transaction; returns the pools that got runs."""
    names = sorted(set(lanes))
    if not names:
        return []

    def act() -> list[str]:
        with transaction(conn):
            lock(conn, names)
            rows = conn.execute(SQL.admit, {"lanes": names}).fetchall()
            pools = [row[0] for row in rows]
            if pools:
                wake.wake(conn, pools)
            return pools

    return retrying(act)


def sweep(conn: Connection) -> int:
    """Admit from its start in every lane where somebody waits, at most 500; returns pools woken."""
    waiting = conn.execute(SQL.waiting_lanes, {"after": ""}).fetchall()
    make_rows(conn, [(name, limit, None) for name, limit in waiting])
    woken = 0
    for name, _ in waiting:

        def act(lane: str = name) -> list[str]:
            with transaction(conn):
                conn.execute(SQL.lock, {"lanes": [lane]})
                conn.execute(SQL.unfloor, {"lanes": [lane]})
            return admit(conn, [lane])

        woken += len(retrying(act))
    return woken


def set_limit(conn: Connection, lane: str, limit: int | None) -> bool:
    """Change a lane's limit live, both ways; raised, it admits at once. False: no such lane."""
    found = conn.execute(SQL.set_limit, {"lane": lane, "lane_limit": limit}).fetchone()
    if found is None:
        return False
    admit(conn, [lane])
    return True
