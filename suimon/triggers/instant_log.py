"""What became of each instant of a schedule, as rows of ``suimon.deliveries``.

    delivered   it has a run of its own
    folded      the run of another instant stands for it
    missed      it has none, and the row says why

Several at once get a row each, up to ``ROWS``; of more, one row tells how many there were and since
when, so that a schedule of minutes that slept for a month does not write a row for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from suimon.core import jsonsafe
from suimon.core.instants import Passed
from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.run import submit

SQL = statements(__package__, "instant_log.sql")

ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class _Row:
    source: str
    detail: dict[str, Any]
    key: str | None = None


@dataclass(frozen=True, slots=True)
class InstantLog:
    """The log of one trigger; ``key`` is the idempotency key of an instant."""

    conn: Connection
    trigger_id: int
    key: Callable[[datetime], str]

    def delivered(self, instant: datetime, run: str, *, duplicate: bool) -> None:
        self._write("delivered", [self._row(instant)], run=run, duplicate=duplicate)

    def folded(self, group: Passed, run: str) -> None:
        self._write("folded", self._rows(group), run=run)

    def missed(self, group: Passed, why: str) -> None:
        self._write("missed", self._rows(group), why=why)

    def _rows(self, group: Passed) -> list[_Row]:
        if group.count <= ROWS and group.count == len(group.newest):
            return [self._row(instant) for instant in group.newest]
        first = group.first.isoformat() if group.first else None
        least = "" if group.exact else "at least "
        source = f"{least}{group.count:,} instants from {first} on"
        return [_Row(source, {"first": first, "count": group.count, "exact": group.exact})]

    def _row(self, instant: datetime) -> _Row:
        text = instant.isoformat()
        return _Row(text, {"scheduled_at": text}, self.key(instant))

    def _write(
        self,
        state: str,
        rows: Sequence[_Row],
        *,
        run: str | None = None,
        duplicate: bool = False,
        why: str | None = None,
    ) -> None:
        params = {
            "trigger": self.trigger_id,
            "state": state,
            "run": run,
            "duplicate": duplicate,
            "code": "missed" if why else None,
            "why": why,
            "ids": sorted(submit.uuid7() for _ in rows),
            "keys": [row.key for row in rows],
            "sources": [row.source for row in rows],
            "details": [jsonsafe.dumps(row.detail).decode() for row in rows],
        }
        if rows:
            self.conn.execute(SQL.write, params)
