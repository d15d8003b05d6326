"""The schedules as people see them: the next instants, and what stands in their way.

Worked out by the functions that ``suimon/triggers/cron.py`` fires by, so that what is shown is what
will happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from suimon.core import instants
from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.run import doors

SQL = statements(__package__, "schedules.sql")


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule as it stands, in its own zone. ``last``: the last instant that was dealt with."""

    trigger_id: int
    pipeline: str
    name: str
    zone: str
    next: tuple[datetime, ...]
    last: datetime | None
    paused: str | None
    note: str | None

    def to_json(self) -> dict[str, Any]:
        utc = [one.astimezone(UTC).isoformat().replace("+00:00", "Z") for one in self.next]
        return {
            "trigger": self.trigger_id,
            "pipeline": self.pipeline,
            "name": self.name,
            "tz": self.zone,
            "next": [one.isoformat() for one in self.next],
            "next_utc": utc,
            "last": self.last.isoformat() if self.last else None,
            "paused": self.paused,
            "note": self.note,
        }


def planned(conn: Connection, pipeline: str | None = None, *, count: int = 5) -> list[Planned]:
    """The next instants of every schedule, at most 1,000 schedules."""
    found = []
    for row in conn.execute(SQL.schedules, {"pipeline": pipeline}).fetchall():
        id_, of, name, spec, created_at, cursor, era, note, paused, now = row
        times: tuple[datetime, ...] = ()
        try:
            schedule = instants.of(spec, created_at, begun=era > 0)
        except instants.UNREADABLE as error:
            note = f"its schedule cannot be read here: {error}"[:500]
        else:
            times = tuple(instants.upcoming(schedule, max(cursor or created_at, now), count))
            cursor = cursor and cursor.astimezone(schedule.zone)
        found.append(Planned(id_, of, name, spec.get("tz", "UTC"), times, cursor, paused, note))
    return found


def start_now(conn: Connection, trigger_id: int, *, queue: bool) -> str | None:
    """A person's start of what the schedule would start, now; None: there is no such schedule.

    It is no instant of the plan: nothing folds into it, and the next one comes as it would have.
    """
    row = conn.execute(SQL.schedule, {"trigger": trigger_id}).fetchone()
    if row is None:
        return None
    pipeline, spec, created_at, cursor, era, now = row
    zone = instants.of(spec, created_at, begun=era > 0).zone
    value = {
        "scheduled_at": now.astimezone(zone).isoformat(),
        "previous_at": cursor.astimezone(zone).isoformat() if cursor else None,
        "folded": 0,
    }
    return doors.start(conn, pipeline, value, queue=queue).id
