"""Pools as people see them, and their caps: at most so many runs of a pool are claimed at once.

A cap is a row (``suimon.pool_caps``). Whoever claims in a capped pool locks that row, counts what
the pool's workers hold in a later statement, and takes no more than is left; who does not know of
the cap takes nothing and learns of it; a first cap waits for claims that began before it. The count
is of rows, so that nothing can drift: what a dead worker held counts until it is rescued. A raise
is told to the workers at once; a lowering takes nobody's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg

from suimon.core.suggest import did_you_mean
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, InputRefused, NotThere
from suimon.run import audit, wake
from suimon.run.read import named

SQL = statements(__package__, "pools.sql")

MOST: Final = 1_000_000
#: How long a first cap waits for the claims that are under way and do not know of it; what one of
#: them takes after that is held besides, as what was held before.
PATIENCE_MS: Final = 1_000
_LISTED: Final = (
    "name", "cap", "version", "edited_at", "held", "ready", "workers", "slots", "paused_by",
    "pipelines",
)  # fmt: skip


def known(conn: Connection) -> list[str]:
    """Every pool that anything names, at most 1,000."""
    return [row[0] for row in conn.execute(SQL.names).fetchall()]


def listed(conn: Connection) -> list[dict[str, Any]]:
    """All of them, by name: cap, runs held and ready (up to 10,000), live workers and slots."""
    return _listed(conn, known(conn))


def show(conn: Connection, name: str) -> dict[str, Any]:
    """One of them. Raises NotThere."""
    names = known(conn)
    if name not in names:
        near = did_you_mean(name, names) or "See them: suimon pools list"
        msg = f'there is no pool "{name}"'
        raise NotThere(msg, hint=near)
    return _listed(conn, [name])[0]


def _listed(conn: Connection, names: Sequence[str]) -> list[dict[str, Any]]:
    rows = conn.execute(SQL.listed, {"names": list(names)}).fetchall()
    return [named(_LISTED, row) for row in rows]


def cap_of(conn: Connection, name: str) -> tuple[int, int] | None:
    """(The cap, how many runs are held now); None: it has no cap."""
    row = conn.execute(SQL.cap, {"name": name}).fetchone()
    return None if row is None else (int(row[0]), int(row[1]))


def set_cap(
    conn: Connection,
    name: str,
    cap: int | None,
    *,
    actor: str,
    why: str = "",
    expected: int | None = None,
) -> dict[str, Any]:
    """At most ``cap`` runs of the pool are claimed at once (None: any number); returns the pool.

    Raises NotThere, InputRefused, and Conflict when its version is not the ``expected`` one.
    """
    if cap is not None and not 1 <= cap <= MOST:
        msg = f'"cap" cannot be {cap}'
        hint = f"A whole number from 1 to {MOST:,}, or none. To stop it: suimon pause pool {name}"
        raise InputRefused(msg, path="cap", hint=hint)
    show(conn, name)

    def act(*, first: bool) -> None:
        with transaction(conn):
            if first:
                conn.execute(SQL.patience, {"ms": PATIENCE_MS})
                conn.execute(SQL.lock_all)
            conn.execute(SQL.make, {"name": name})
            row = conn.execute(SQL.lock, {"name": name}).fetchone()
            assert row is not None
            before, version = row
            if expected not in (None, version):
                msg = f'the cap of pool "{name}" has changed meanwhile'
                raise Conflict(msg, hint=f"Look again: suimon pools show {name}")
            conn.execute(SQL.change, {"name": name, "cap": cap})
            detail = {"from": before, "to": cap}
            audit.note(conn, "cap", [f"pool:{name}"], actor=actor, why=why, detail=detail)
            conn.execute(SQL.tell, {"name": name})
            wake.wake(conn, [name])

    first = cap is not None and cap_of(conn, name) is None
    try:
        retrying(lambda: act(first=first))
    except psycopg.errors.LockNotAvailable:
        retrying(lambda: act(first=False))
    return show(conn, name)
