"""What has ended at the doors is forgotten: deliveries, events and notices after 30 days, refused
calls and discarded dead letters after 7. What waits, and dead letters, never go by age.

A key of an event is known as long as its event; the idempotency key of a delivery's run outlives
both (``suimon.idempotency_keys``). Each batch is a transaction of at most 500 rows; a crash between
two leaves nothing half done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from suimon.core import clock
from suimon.db.connect import Connection, retrying
from suimon.db.statements import statements

SQL = statements(__package__, "retention.sql")

KEEP_SECONDS: Final = 30 * 86_400.0
REJECTED_SECONDS: Final = 7 * 86_400.0
BATCH: Final = 500
_FIRST_ID: Final = "0" * 32


def prune(conn: Connection, *, seconds: float) -> tuple[int, bool]:
    """Remove what may go, for at most so long: (how many rows went, whether some are left)."""
    give_up_at = clock.monotonic() + seconds
    gone = 0
    for batch in (_rejected, _old_ones(), _events, _notices):
        while (count := batch(conn)) is not None:
            gone += count
            if clock.monotonic() >= give_up_at:
                return gone, True
    return gone, False


def _rejected(conn: Connection) -> int | None:
    rows = conn.execute(SQL.rejected, {"age_s": REJECTED_SECONDS}).fetchall()
    return _drop(conn, [row[0] for row in rows]) if rows else None


def _old_ones() -> Callable[[Connection], int | None]:
    """Page by page from the oldest; what stays is passed by."""
    after = _FIRST_ID

    def batch(conn: Connection) -> int | None:
        nonlocal after
        where = {"after": after, "age_s": KEEP_SECONDS}
        rows = conn.execute(SQL.page, where).fetchall()
        if not rows:
            return None
        after = rows[-1][0]
        ids = [row[0] for row in rows if row[1]]
        return sum(_drop(conn, ids[i : i + BATCH]) for i in range(0, len(ids), BATCH))

    return batch


def _drop(conn: Connection, ids: list[str]) -> int:
    return _counted(conn, SQL.drop_deliveries, {"ids": sorted(ids)}) or 0


def _events(conn: Connection) -> int | None:
    return _counted(conn, SQL.drop_events, {"age_s": KEEP_SECONDS})


def _notices(conn: Connection) -> int | None:
    return _counted(conn, SQL.drop_notices, {"age_s": KEEP_SECONDS})


def _counted(conn: Connection, statement: Any, given: dict[str, Any]) -> int | None:
    """How many rows a statement says it removed; None: none."""
    row = retrying(lambda: conn.execute(statement, given).fetchone())
    return int(row[0]) if row and row[0] else None
