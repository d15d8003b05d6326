"""Does it move? Pools, workers and duties at one glance, and everything that is wrong with them.

``overall`` is what ``suimon status`` shows. A problem is something that will not go away by itself
or that somebody should know now; a queue that is merely long is none.
"""

from __future__ import annotations

from typing import Any, Final

from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.run.read import named

SQL = statements(__package__, "status.sql")

#: A duty that nobody has taken for this many of its own intervals is overdue.
OVERDUE_INTERVALS: Final = 3
_SILENT_BEATS: Final = 3


def overall(conn: Connection) -> dict[str, Any]:
    """``{ok, problems, pools, workers, held_back, duties}``."""
    pools = _pools(conn)
    alive = workers(conn)
    held_back = [
        {"pool": row[0], "reason": row[1], "runs": row[2]}
        for row in conn.execute(SQL.held_back).fetchall()
    ]
    row = conn.execute(SQL.orphaned).fetchone()
    orphaned = int(row[0]) if row else 0
    duties = _duties(conn)
    problems = _problems(pools, alive, held_back, orphaned, duties)
    return {
        "ok": not problems,
        "problems": problems,
        "pools": pools,
        "workers": alive,
        "held_back": held_back,
        "orphaned_runs": orphaned,
        "duties": duties,
    }


def workers(conn: Connection) -> list[dict[str, Any]]:
    """Every worker that is not buried, at most 1,000."""
    names = (
        "id",
        "name",
        "pool",
        "slots",
        "host",
        "pid",
        "version",
        "idle",
        "draining",
        "started_at",
        "silent_s",
        "beat_ms",
        "running",
    )
    rows = conn.execute(SQL.workers).fetchall()
    return [named(names, row) for row in rows]


def _pools(conn: Connection) -> list[dict[str, Any]]:
    names = ("pool", "ready", "oldest_s", "workers", "slots", "beating", "running")
    return [named(names, row) for row in conn.execute(SQL.pools).fetchall()]


def _duties(conn: Connection) -> list[dict[str, Any]]:
    names = ("name", "overdue_s", "every_ms", "last_at", "last_note")
    rows = conn.execute(SQL.duties).fetchall()
    return [named(names, row) for row in rows]


def _problems(
    pools: list[dict[str, Any]],
    alive: list[dict[str, Any]],
    held_back: list[dict[str, Any]],
    orphaned: int,
    duties: list[dict[str, Any]],
) -> list[str]:
    found = []
    for one in pools:
        if one["ready"] and not one["beating"]:
            age = f", the oldest for {one['oldest_s']:.0f} s" if one["oldest_s"] else ""
            found.append(
                f"pool {one['pool']}: {one['ready']} runs are ready{age}, and no live worker "
                f"claims them; start one: suimon worker PATH --pool {one['pool']}"
            )
    silent = [w for w in alive if w["silent_s"] * 1000 > _SILENT_BEATS * w["beat_ms"]]
    found += [
        f"worker {w['name']}: no heartbeat for {w['silent_s']:.0f} s; it holds {w['running']} runs"
        for w in silent
    ]
    found += [
        f"pool {one['pool']}: {one['runs']} runs are held: {one['reason']}" for one in held_back
    ]
    if orphaned:
        found.append(f"{orphaned} runs belong to dead workers and wait for a rescue")
    beating = len(alive) - len(silent)
    if beating == 0 and (silent or orphaned):
        found.append("no worker is alive: nobody rescues, wakes or repairs; start one")
    if beating:
        found += [
            f"duty {one['name']}: not done for {one['overdue_s']:.0f} s"
            for one in duties
            if one["overdue_s"] * 1000 > OVERDUE_INTERVALS * one["every_ms"]
        ]
    return found
