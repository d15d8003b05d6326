"""Admission: which of the runs that stand in a lane may be claimed.

A lane is a name with a limit. Submit takes no lock and leaves a lane's run un-admitted; ``admit``
is the one idempotent act that lets it in, run after a submit's commit, at finish, cancel, rescue,
retry, limit change and by the sweep. It locks the lane rows in a statement of its own and counts in
the next one: there is no counter to drift, and a count without that lock is what over-admits.

Lane rows come first in the engine's lock order, so a transaction that both finishes runs and admits
calls ``lock`` before anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
    """Lock the lanes (sorted) for the rest of the transaction."""
    conn.execute(SQL.lock, {"lanes": sorted(set(lanes))})


def send_admit(conn: Connection, lanes: Iterable[str]) -> Any:
    """Send the admission in locked lanes. The flows they feed come last in the lock order."""
    names = {"lanes": sorted(set(lanes))}
    conn.execute(SQL.lock_flows, names, prepare=True)
    return conn.execute(SQL.admit, names, prepare=True)


def admitted(cursor: Any) -> set[str]:
    """Read the answer of ``send_admit``: the pools that got runs."""
    return {row[0] for row in cursor.fetchall()}


def admit(
    conn: Connection, lanes: Iterable[str], *, late: Mapping[str, int] | None = None
) -> list[str]:
    """Lock, admit and wake, in one transaction; returns the pools that got runs.

    ``late`` are the lowest lane ranks just submitted: who took its number early and committed late
    lies behind the lane's floor, which then goes back.
    """
    names = sorted(set(lanes))
    if not names:
        return []

    def act() -> list[str]:
        with transaction(conn):
            lock(conn, names)
            if late:
                conn.execute(SQL.lower, {"names": list(late), "ranks": list(late.values())})
            pools = sorted(admitted(send_admit(conn, names)))
            if pools:
                wake.wake(conn, pools)
            return pools

    return retrying(act)


def sweep(conn: Connection, *, pages: int = 20) -> int:
    """Admit from its start in every lane where somebody waits and one has room; returns pools
    woken.

    At most ``pages`` times 500 lanes, in the order of their names.
    """
    woken, after = 0, ""
    for _ in range(pages):
        waiting = conn.execute(SQL.waiting_lanes, {"after": after}).fetchall()
        if not waiting:
            break
        after = waiting[-1][0]
        open_lanes = [(name, limit, None) for name, limit, has_room in waiting if has_room]
        if open_lanes:
            make_rows(conn, open_lanes)
        for name, _, _ in open_lanes:
            woken += len(admit(conn, [name], late={name: 0}))
    return woken


def admit_all(conn: Connection, name: str) -> None:
    """Admit in one lane from its start; its row is made if its first run came through SQL alone."""
    limit = conn.execute(SQL.limit_of, {"lane": name}).fetchone()
    if limit is not None:
        make_rows(conn, [(name, limit[0], None)])
        admit(conn, [name], late={name: 0})


def set_limit(conn: Connection, lane: str, limit: int | None) -> bool:
    """Change a lane's limit live, both ways; raised, it admits at once. False: no such lane."""
    found = conn.execute(SQL.set_limit, {"lane": lane, "lane_limit": limit}).fetchone()
    if found is None:
        return False
    admit(conn, [lane])
    return True
