"""The heartbeat thread: says that this worker lives, looks who else does, and buries the dead.

It has a connection of its own, so that no batch can delay a beat, and does nothing but beat. A
worker that cannot beat stops claiming at two intervals and ends its slots before three, measured
from the *send* time of the last accepted beat on a clock that counts suspend: before anybody can
have buried it. A beat's answer holds the schema's number: after a migration that this worker does
not know, it stops (``joining``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psycopg

from suimon.core import clock
from suimon.db import connect, migrate
from suimon.db.connect import Connection
from suimon.errors import DatabaseUnavailable
from suimon.run import rescue
from suimon.worker.away import Away
from suimon.worker.watch import Watch

log = logging.getLogger("suimon.worker")

#: Of an interval: no claims after, and slots are ended after, the last accepted beat.
STOP_CLAIMING: Final = 2.0
END_SLOTS: Final = 2.75
#: A beat that failed is tried again after this part of an interval: the database may be back.
TRY_AGAIN: Final = 0.1


@dataclass(slots=True)
class Events:
    """What the thread tells the main loop, each called from this thread."""

    buried_me: Callable[[], None]
    buried: Callable[[str], None]
    asked_to_cancel: Callable[[], None]
    code_waits: Callable[[], None]
    capped: Callable[[], None]
    must_end_slots: Callable[[], None]
    schema_changed: Callable[[int | None], None]


class Heart(threading.Thread):
    """Beats every ``interval_s``; read ``may_claim`` and ``workers`` from the main loop."""

    def __init__(
        self,
        url: str,
        worker: int,
        interval_s: float,
        events: Events,
        pace: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        super().__init__(name="suimon-beat", daemon=True)
        self._url, self._worker, self._interval_s, self._events = url, worker, interval_s, events
        self._watch, self._pace = Watch(interval_s), pace
        self._ending = threading.Event()
        self._accepted_at = clock.boottime()
        self._ended_slots = False
        self.draining = False
        self.workers = 1

    @property
    def may_claim(self) -> bool:
        """False when the last accepted beat is two intervals old."""
        return clock.boottime() - self._accepted_at < STOP_CLAIMING * self._interval_s

    def check(self) -> None:
        """Called by the main loop too: the slots end in time even while a beat hangs somewhere."""
        if (
            clock.boottime() - self._accepted_at >= END_SLOTS * self._interval_s
            and not self._ended_slots
        ):
            self._ended_slots = True
            self._events.must_end_slots()

    def close(self) -> None:
        self._ending.set()

    def run(self) -> None:
        conn: Connection | None = None
        away = Away("heartbeat", log)
        while not self._ending.is_set():
            began, rest = clock.boottime(), self._interval_s
            try:
                if conn is None or conn.closed:
                    conn = connect.connect(self._url, name="beat")
                if not self._beat(conn, began):
                    break
                away.back()
            except (psycopg.Error, DatabaseUnavailable) as error:
                away.lost(error)
                rest = TRY_AGAIN * self._interval_s
                self._watch.forget()
                if conn is not None:
                    conn.close()
                    conn = None
            self.check()
            self._ending.wait(max(0.0, rest - (clock.boottime() - began)))
        if conn is not None:
            conn.close()

    def _beat(self, conn: Connection, sent_at: float) -> bool:
        alive, beats = rescue.beat(conn, self._worker, draining=self.draining, pace=self._pace())
        found = beats[0].schema_version if beats else migrate.schema_version()
        if found != migrate.schema_version():
            self._events.schema_changed(found)
            return False
        if not alive:
            log.error("worker %d was declared dead: its runs belong to others now", self._worker)
            self._events.buried_me()
            return False
        self._accepted_at = sent_at
        if clock.boottime() - sent_at < END_SLOTS * self._interval_s:
            # an answer that took longer than that ended the slots already: not a second time
            self._ended_slots = False
        self.workers = max(1, len(beats))
        if any(b.mine and b.asked_to_cancel for b in beats):
            self._events.asked_to_cancel()
        if any(b.mine and b.code_waits for b in beats):
            self._events.code_waits()
        if any(b.mine and b.capped for b in beats):
            self._events.capped()
        for worker, beat in self._watch.look(sent_at, clock.boottime(), beats):
            name = rescue.bury(conn, worker, beat)
            if name is not None:
                log.warning(
                    "worker %d (%s) is silent: buried, its runs are taken back", worker, name
                )
                self._events.buried(name)
        return True
