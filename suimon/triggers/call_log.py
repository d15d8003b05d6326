"""The log of calls that made no run, bounded whatever comes.

Each process writes at most ``ROWS_A_SECOND`` rows (``BURST`` after a quiet time); what exceeds that
is counted by trigger and code, and written as one row and one number a second. In the database the
newest ``KEEP`` refused calls stay, ``KEEP_BODIES`` of them with their body; ``suimon.refusals``
holds the numbers for ever. A crash loses at most the counts of its last second.

A row is written before the caller is answered, in a transaction of its own: losing it must not turn
a refusal into an error, so a database that cannot take it is no error here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from suimon.core import clock
from suimon.db.connect import Connection, transaction
from suimon.db.statements import statements
from suimon.run import submit

SQL = statements(__package__, "webhook.sql")

ROWS_A_SECOND: Final = 20.0
BURST: Final = 40.0
KEEP: Final = 10_000
KEEP_BODIES: Final = 500
#: Different (trigger, code) pairs that are counted apart between two writes.
MAX_PAIRS: Final = 1_000
_TRIM_EVERY: Final = 100  # rows of this process
_TRIM_ROWS: Final = 1_000

Pair = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """A refused call (``code`` says why), or, with ``run_id``, one that repeated an earlier one."""

    trigger_id: int | None
    source: str
    code: str | None
    why: str | None
    detail: dict[str, Any]
    run_id: str | None = None

    @property
    def refused(self) -> bool:
        return self.code is not None


class CallLog:
    """Thread-safe. One for each process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._budget = BURST
        self._filled_at = clock.monotonic()
        self._counts: dict[Pair, int] = {}
        self._untrimmed = 0

    def note(self, conn: Connection, entry: Entry) -> bool:
        """Write a row, with what was only counted before; False: counted only, ``flush`` later."""
        with self._lock:
            row = self._may_write()
            if not row:
                if entry.refused:
                    self._count(entry)
                return False
            counts, self._counts = self._counts, {}
        _write(conn, [entry], counts)
        self._trim(conn, 1 + len(counts))
        return True

    @property
    def behind(self) -> bool:
        """Something was counted and not written."""
        return bool(self._counts)

    def flush(self, conn: Connection) -> None:
        """Write what was only counted."""
        with self._lock:
            counts, self._counts = self._counts, {}
        if counts:
            _write(conn, [], counts)
            self._trim(conn, len(counts))

    def _may_write(self) -> bool:
        now = clock.monotonic()
        self._budget = min(BURST, self._budget + (now - self._filled_at) * ROWS_A_SECOND)
        self._filled_at = now
        if self._budget < 1:
            return False
        self._budget -= 1
        return True

    def _count(self, entry: Entry) -> None:
        pair = (entry.trigger_id or 0, str(entry.code))
        if pair not in self._counts and len(self._counts) >= MAX_PAIRS:
            pair = (0, str(entry.code))
        self._counts[pair] = self._counts.get(pair, 0) + 1

    def _trim(self, conn: Connection, written: int) -> None:
        with self._lock:
            self._untrimmed += written
            if self._untrimmed < _TRIM_EVERY:
                return
            self._untrimmed = 0
        conn.execute(SQL.trim, {"keep": KEEP, "n": _TRIM_ROWS})
        conn.execute(SQL.drop_bodies, {"keep": KEEP_BODIES, "n": _TRIM_ROWS})


def _write(conn: Connection, entries: Sequence[Entry], counts: dict[Pair, int]) -> None:
    rows = [*entries, *(_summary(pair, n) for pair, n in counts.items())]
    total = dict(counts)
    for one in entries:
        if one.code is not None:
            pair = (one.trigger_id or 0, one.code)
            total[pair] = total.get(pair, 0) + 1
    with transaction(conn):
        conn.execute(
            SQL.log,
            {
                "ids": sorted(submit.uuid7() for _ in rows),
                "triggers": [one.trigger_id for one in rows],
                "states": ["refused" if one.refused else "delivered" for one in rows],
                "runs": [one.run_id for one in rows],
                "sources": [one.source[:500] for one in rows],
                "codes": [one.code for one in rows],
                "whys": [one.why[:1000] if one.why else None for one in rows],
                "details": [orjson.dumps(one.detail).decode() for one in rows],
            },
        )
        if total:
            triggers, codes = zip(*total, strict=True)
            numbers = {"triggers": list(triggers), "codes": list(codes)}
            conn.execute(SQL.count, {**numbers, "counts": list(total.values())})


def _summary(pair: Pair, n: int) -> Entry:
    trigger_id, code = pair
    why = f"{n:,} more calls were refused like this, too many to be written one by one"
    return Entry(trigger_id or None, "(many)", code, why, {"count": n})
