"""Keeping the doors: instants that have come and deliveries that wait become runs.

Any worker or serve may look; two at once do no harm, because each trigger is held by its row's lock
and every run by its key. A look is asked for by a notification, by the time the last look named, or
by the sweep.

A notification is sent only where nothing older waits (see ``suimon.emit``), so whoever works on the
older one must not fall silent too early. After a look that had work, ``Keeper`` takes its
transaction id as a mark and looks again until no transaction below the mark is open: every emitter
that saw the older delivery still waiting holds such an id. The same proof lets a worker fall silent
(run/wake.py).
"""

from __future__ import annotations

from typing import Final

from suimon.db.connect import Connection, transaction
from suimon.run import lane, pressure, wake
from suimon.triggers import cron, deliver

FIRST_PAUSE_S: Final = 0.003
LAST_PAUSE_S: Final = 1.0


class Keeper:
    """One process's looks at the doors; ``look`` says when it wants the next one."""

    def __init__(self) -> None:
        self._mark: int | None = None
        self._pause_s = FIRST_PAUSE_S

    def look(self, conn: Connection) -> float | None:
        """Do what is due; seconds until the next look, None: not before a notification."""
        safe = self._mark is None or wake.may_be_silent(conn, self._mark)
        worked, next_s = fire_all(conn)
        if worked:
            self._mark, self._pause_s = wake.mark(conn), FIRST_PAUSE_S
        elif safe:
            self._mark = None
            return next_s
        else:
            self._pause_s = min(self._pause_s * 2, LAST_PAUSE_S)
        return self._pause_s if next_s is None else min(next_s, self._pause_s)


def fire_all(conn: Connection) -> tuple[bool, float | None]:
    """Schedules, then deliveries: whether there was work, and seconds until the next is due."""
    instant_s = cron.due(conn)
    triggers, delivery_s = deliver.deliver_all(conn)
    times = [t for t in (instant_s, delivery_s) if t is not None]
    return triggers > 0, min(times, default=None)


def duty(conn: Connection) -> int:
    """The same for the sweep."""
    worked, _ = fire_all(conn)
    return int(worked)


def heard(conn: Connection, payload: str) -> None:
    """What SQL functions ask for after their caller's commit: admission, or a wake-up."""
    what, _, name = payload.partition(" ")
    if what == "lane":
        lane.admit_all(conn, name)
    elif what == "pool":
        with transaction(conn):
            wake.wake(conn, [name])
    elif what == "storage":
        pressure.look(conn)
