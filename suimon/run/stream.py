"""The streams of a merge: its children's results and failures, a page at a time, in item order.

Nothing is held in memory but a page, whatever the fan-out's size; a page is bounded in rows and in
the bytes that its large results have together.
"""

from __future__ import annotations

from typing import Any, Final

from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.store import payload

SQL = statements(__package__, "stream.sql")

#: Rows of one page.
PAGE: Final = 1000


def visible_to(conn: Connection, run_id: str, own_fanout: int | None, fanout: int) -> str | None:
    """The base of a fan-out that this run may read: its own, or one of its parent's."""
    params = {"run": run_id, "own_fanout": own_fanout, "fanout": fanout}
    row = conn.execute(SQL.visible, params).fetchone()
    return None if row is None else str(row[0])


def first_failures(
    conn: Connection, fanout: int
) -> list[tuple[int, str | None, str, str | None, str]]:
    """(position, key, state, error JSON, run id) of the first 20 children that ended badly."""
    return [tuple(row) for row in conn.execute(SQL.first_failures, {"fanout": fanout}).fetchall()]


def page(
    conn: Connection, fanout: int, base: str, which: str, after: int, limit: int
) -> list[tuple[Any, ...]]:
    """A page of a merge's stream in item order; ``after``: -1 at the start.

    At most 1,000 rows, and so many that their results have 16 MiB together. Raises
    StoreUnavailable.
    """
    n = max(1, min(limit, PAGE))
    if which == "failed":
        params: dict[str, Any] = {"fanout": fanout, "after": after, "n": n}
        return conn.execute(SQL.failed_page, params).fetchall()
    if after < 0:
        rows = conn.execute(SQL.succeeded_first_page, {"base": base, "n": n}).fetchall()
    else:
        rows = conn.execute(SQL.succeeded_page, {"base": base, "after": after, "n": n}).fetchall()
    rows = rows[: payload.within_page(row[7] or 0 for row in rows)]
    large = payload.read(conn, (row[6] for row in rows))
    return [
        (*row[:3], row[3] if row[6] is None else large[row[6]].decode(), *row[4:6]) for row in rows
    ]
