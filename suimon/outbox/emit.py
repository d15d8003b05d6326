"""Events: something happened, and each pipeline that listens (``on=Event("order.*")``) gets a
delivery, which becomes a run like any other.

All of them end in the SQL function ``suimon.emit``, in the transaction of whoever tells: rolled
back, it never happened. ``emit`` is the door for programs and people; ``send_of_steps`` writes what
tasks told by ``ctx.emit``, in the transaction that records the end of their step, under its fence:
what a try told that failed, or whose run was lost meanwhile, never happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg

from suimon.core import events
from suimon.core.events import Event
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.run import pressure

SQL = statements(__package__, "emit.sql")

#: What one step's record carries: the run, the claim, and what its try told.
Telling = tuple[str, int, Sequence[Event]]
LISTENERS_SHOWN: Final = 1_000
#: How ``suimon.emit`` says that the store is full.
_FULL: Final = "SUI39"


def emit(conn: Connection, kind: str, payload: Any = None, *, key: str | None = None) -> str:
    """Tell of an event; returns its id, that of the earlier one if this key was told before.

    Raises InputRefused, InvalidJson, PayloadTooLarge, and StoragePressure for a large payload while
    the store is full; nothing is stored then.
    """
    given = {
        "type": events.check_type(kind),
        "payload": events.encode(payload).decode(),
        "key": None if key is None else events.check_key(key),
    }

    def act() -> str:
        with transaction(conn):
            row = conn.execute(SQL.emit, given).fetchone()
            assert row is not None
            return str(row[0])

    try:
        return retrying(act)
    except psycopg.Error as error:
        if error.sqlstate == _FULL:
            raise pressure.refusal(conn, len(given["payload"] or "")) from None
        raise


def listeners(conn: Connection, kind: str) -> list[tuple[str, str]]:
    """(pipeline, trigger) of all that listen to this type now; at most 1,000."""
    rows = conn.execute(SQL.listeners, {"type": events.check_type(kind)}).fetchall()
    return [(str(pipeline), str(name)) for pipeline, name in rows]


def send_of_steps(conn: Connection, worker: int, told: Sequence[Telling]) -> None:
    """Write the events of runs that this transaction holds locked under their claims."""
    flat = [(run, claim, event) for run, claim, listed in told for event in listed]
    conn.execute(
        SQL.of_runs,
        {
            "worker": worker,
            "ids": [run for run, _, _ in flat],
            "claims": [claim for _, claim, _ in flat],
            "types": [event.type for _, _, event in flat],
            "payloads": [event.payload for _, _, event in flat],
            "keys": [event.key for _, _, event in flat],
        },
    )
