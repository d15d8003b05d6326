"""Schedules on a clock that the test moves.

    clock = Clock(lab, "2021-03-13T12:00", "America/Winnipeg")
    nightly = clock.deploy("nightly", {"type": "CRON", "cron": "30 2 * * *", "tz": ...})
    clock.run_to("2021-03-15T12:00")            looks as often as the processes do

The instants go through `cron.due`, which is told the time that a database would tell. Everything
else is the engine as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from suimon.db.connect import Connection
from suimon.triggers import cron
from support.lab import Lab

#: The processes look at least this often (the sweep); a clock that jumps is noticed by then.
SWEEP = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Record:
    """What became of an instant."""

    state: str
    source: str
    run: str | None
    why: str | None
    detail: dict[str, Any]


class Clock:
    """The time, and what it starts."""

    def __init__(self, lab: Lab, start: str, zone: str = "UTC") -> None:
        self.lab = lab
        self.zone = ZoneInfo(zone)
        self.now = self.at(start)
        self._worker: int | None = None

    def at(self, text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=self.zone)

    def move(self, **span: float) -> None:
        """The wall clock jumps, in either direction."""
        self.now = (self.now.astimezone(ZoneInfo("UTC")) + timedelta(**span)).astimezone(self.zone)

    def deploy(self, pipeline: str, trigger: dict[str, Any], **keys: Any) -> int:
        """A pipeline with this one schedule, deployed now; the trigger's id."""
        self.lab.pipeline(pipeline, triggers=[trigger], **keys)
        now = "update suimon.triggers set created_at = %s, next_at = %s where pipeline = %s"
        ((trigger,),) = self.lab.sql(f"{now} returning id", self.now, self.now, pipeline)
        return int(trigger)

    def look(self, conn: Connection | None = None) -> float | None:
        return cron.due(conn or self.lab.conn, now=self.now)

    def run_to(
        self, until: str, *, most: timedelta = SWEEP, each: Callable[[], None] | None = None
    ) -> None:
        """Time passes: sleep as long as the last look said, but not longer than `most`."""
        end = self.at(until).astimezone(ZoneInfo("UTC"))
        while True:
            wait = self.look()
            if each is not None:
                each()
            left = end - self.now.astimezone(ZoneInfo("UTC"))
            if left <= timedelta():
                return
            step = min(most, left) if wait is None else min(timedelta(seconds=wait), most, left)
            self.move(seconds=step.total_seconds())

    # ------------------------------------------------------------------ looking

    def runs(self, pipeline: str) -> list[dict[str, Any]]:
        """The inputs of its runs, in the order in which they began to exist."""
        rows = self.lab.sql(
            "select input from suimon.runs where pipeline = %s order by id", pipeline
        )
        return [row[0] for row in rows]

    def planned(self, pipeline: str) -> list[str]:
        """The instants of its runs."""
        return [one["scheduled_at"] for one in self.runs(pipeline)]

    def records(self, trigger: int) -> list[Record]:
        rows = self.lab.sql(
            "select state, source, run_id::text, why, detail from suimon.deliveries"
            " where trigger_id = %s order by seq",
            trigger,
        )
        return [Record(*row) for row in rows]

    def states(self, trigger: int) -> list[str]:
        return [record.state for record in self.records(trigger)]

    def finish_all(self) -> None:
        """Whatever is queued is claimed and succeeds."""
        if self._worker is None:
            self._worker = self.lab.worker()
        while rows := self.lab.claim(self._worker, 100):
            self.lab.end(self._worker, rows)
