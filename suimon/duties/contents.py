"""What nobody refers to any more and does not go by itself: objects, and intents left behind.

Each batch locks its rows, deletes the objects, then the rows, in one transaction. A writer that is
about to refer to one of them waits for that, finds the row gone and keeps the content again; so no
object goes that somebody refers to, and none stays without a row. A store that does not answer
keeps its rows: they are tried again an hour later.
"""

from __future__ import annotations

import logging
from typing import Final

from suimon.core import clock
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import StoreUnavailable
from suimon.store import objects

log = logging.getLogger("suimon.duties")

SQL = statements(__package__, "contents.sql")

#: How long nobody may have touched it: far longer than a put and the transaction after it.
REST_SECONDS: Final = 3600.0
#: Contents of one transaction, and how long one turn of the duty works.
BATCH: Final = 50
TURN_SECONDS: Final = 5.0


def duty(conn: Connection) -> int:
    """Remove what may go, for at most ``TURN_SECONDS`` and a batch; returns how many went."""
    until, gone = clock.monotonic() + TURN_SECONDS, 0
    while clock.monotonic() < until:
        seen, done = retrying(lambda: _batch(conn))
        gone += done
        if seen < BATCH:
            break
    return gone


def _batch(conn: Connection) -> tuple[int, int]:
    """(How many were looked at, how many went.)"""
    with transaction(conn):
        rows = conn.execute(SQL.unused, {"rest_s": REST_SECONDS, "n": BATCH}).fetchall()
        kept = [digest for digest, place in rows if place is not None and not _deleted(place)]
        if kept:
            conn.execute(SQL.later, {"sha256": kept})
        going = sorted({digest for digest, _ in rows} - set(kept))
        if going:
            conn.execute(SQL.drop, {"sha256": going})
        return len(rows), len(going)


def _deleted(place: str) -> bool:
    try:
        objects.delete([place])
    except StoreUnavailable as error:
        log.warning("%s (%s)", error.message, error.detail)
        return False
    return True
