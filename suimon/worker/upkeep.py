"""The thread for what is not a batch: own timers, rescue after a burial, cancels, the sweep.

It has a connection of its own, so that taking back 50,000 runs of a dead worker delays no batch.
Each act is bounded and idempotent; whatever fails here is done again by the next sweep, of this
worker or another.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable

import psycopg

from suimon.core import clock, words
from suimon.db import connect
from suimon.db.connect import Connection
from suimon.duties import doors, sweep
from suimon.errors import DatabaseUnavailable, SuimonError
from suimon.outbox import relay
from suimon.run import cancel, finish, lane, rescue, wake
from suimon.store.disk import Disk
from suimon.store.secret_key import KeyRing
from suimon.triggers.watcher import FileWatcher
from suimon.worker.away import Away

log = logging.getLogger("suimon.worker")


class Upkeep(threading.Thread):
    """Thread-safe requests in, idempotent acts out."""

    def __init__(
        self,
        url: str,
        worker: int | None,
        sweep_s: float,
        *,
        duties: bool = True,
        keyring: KeyRing | None = None,
    ) -> None:
        super().__init__(name="suimon-upkeep", daemon=True)
        self._url, self._worker, self._sweep_s, self._duties = url, worker, sweep_s, duties
        self._ending = threading.Event()
        self._changed = threading.Condition()
        self._timers: list[float] = []
        self._asked: dict[str, Callable[[Connection], None]] = {}
        self._next_sweep = clock.boottime() + (0.0 if duties else float("inf"))
        self._keeper = doors.Keeper()
        self._disk = Disk(None)
        self._files = FileWatcher(url)
        self._next_doors = float("inf")
        self._relay = relay.of(url, keyring or KeyRing()) if duties else None

    # ------------------------------------------------------------------ requests

    def arm(self, delay_s: float) -> None:
        """A run was parked until then: whoever parks it arms its timer."""
        with self._changed:
            heapq.heappush(self._timers, clock.boottime() + delay_s)
            self._changed.notify()

    def set_worker(self, worker: int) -> None:
        self._worker = worker

    def call_later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Call ``act`` from a thread of its own, after that time."""
        timer = threading.Timer(delay_s, act)
        timer.daemon = True
        timer.start()

    def rescue_soon(self) -> None:
        self._ask("rescue", self._rescue)

    def cancel_soon(self) -> None:
        self._ask("cancel", lambda conn: void(cancel.sweep(conn)))

    def end_parents(self, ids: tuple[str, ...]) -> None:
        """These parents were asked to stop and their children have all ended."""
        if ids:
            self._ask(f"end {ids[0]} {len(ids)}", lambda conn: void(cancel.end_parents(conn, ids)))

    def wake(self, pools: tuple[str, ...]) -> None:
        if pools:
            self._ask(f"wake {pools}", lambda conn: wake.wake(conn, pools))

    def doors_soon(self) -> None:
        """Something may have come to the doors; nothing for those that keep none."""
        if self._duties:
            self._ask("doors", self._look_at_doors)

    def may_have_missed(self) -> None:
        """Nobody listened for a while: all that a notification for the doors could have asked."""
        if self._duties:
            self.doors_soon()
            self._ask("lanes", lambda conn: void(lane.sweep(conn)))
            self._ask("wakes", lambda conn: void(sweep.wakes(conn)))

    def heard(self, payload: str) -> None:
        """A notification for whoever keeps the doors."""
        if not self._duties:
            return
        if payload == "notices":
            self._send_notices()
        elif payload == "sweep":
            with self._changed:
                self._next_sweep = clock.boottime()
                self._changed.notify()
        elif payload.startswith(("lane ", "pool ")) or payload == "storage":
            self._ask(payload, lambda conn: doors.heard(conn, payload))
        else:
            if payload == "triggers":
                self._ask("files", self._files.reload)
            self.doors_soon()

    def close(self) -> None:
        self._ending.set()
        if self._relay is not None:
            self._relay.close()
        with self._changed:
            self._changed.notify()

    def _ask(self, name: str, act: Callable[[Connection], None]) -> None:
        with self._changed:
            self._asked[name] = act
            self._changed.notify()

    # ------------------------------------------------------------------ the thread

    def run(self) -> None:
        conn: Connection | None = None
        away = Away("upkeep", log)
        if self._relay is not None:
            self._relay.start()
            self._relay.poke()  # there may be notices whose relay died
        while not self._ending.is_set():
            acts, sweep_due = self._wait()
            if not acts and not sweep_due:
                continue
            try:
                if conn is None or conn.closed:
                    conn = connect.connect(self._url, name="upkeep")
                    away.back()
                    self._disk = Disk.of(conn) if self._duties else Disk(None)
                for name, act in acts:
                    _do(conn, name, act)
                if sweep_due:
                    _do(conn, "sweep", self._sweep)
            except (psycopg.Error, DatabaseUnavailable) as error:
                away.lost(error)
                if conn is not None:
                    conn.close()
                    conn = None
                with self._changed:
                    for name, act in acts:
                        self._asked.setdefault(name, act)
                self._ending.wait(0.5)
        self._files.close()
        if conn is not None:
            conn.close()

    def _wait(self) -> tuple[list[tuple[str, Callable[[Connection], None]]], bool]:
        """Sleep until something is asked or due; returns (acts, whether the sweep is due)."""
        with self._changed:
            while True:
                now = clock.boottime()
                if self._timers and self._timers[0] <= now:
                    while self._timers and self._timers[0] <= now:
                        heapq.heappop(self._timers)
                    self._asked["timers"] = _due
                if self._next_doors <= now:
                    self._next_doors = float("inf")
                    self._asked["doors"] = self._look_at_doors
                sweep_due = now >= self._next_sweep
                if sweep_due:
                    self._next_sweep = now + self._sweep_s
                if self._asked or sweep_due or self._ending.is_set():
                    acts = list(self._asked.items())
                    self._asked.clear()
                    return acts, sweep_due
                until = min([self._next_sweep, self._next_doors, *self._timers[:1]])
                self._changed.wait(min(until - now, 3600.0))

    def _sweep(self, conn: Connection) -> None:
        """The wall clock may have jumped: what the doors wait for is asked for anew."""
        worked = sweep.run(conn, self._worker, self._disk.measure())
        if worked:
            self._send_notices()
        self._files.reload(conn)
        if worked or self._next_doors != float("inf"):
            self._look_at_doors(conn)

    def _look_at_doors(self, conn: Connection) -> None:
        next_s = self._keeper.look(conn)
        self._next_doors = float("inf") if next_s is None else clock.boottime() + next_s

    def _send_notices(self) -> None:
        if self._relay is not None:
            self._relay.poke()

    def _rescue(self, conn: Connection) -> None:
        count, follows = rescue.rescue(conn)
        if count:
            log.warning("took back %s of dead workers", words.count(count, "run"))
        self._follow(conn, follows)

    def _follow(self, conn: Connection, follows: finish.Settled) -> None:
        if follows.stopped_parents:
            cancel.end_parents(conn, follows.stopped_parents)
        if follows.stragglers:
            cancel.sweep(conn)


def _do(conn: Connection, name: str, act: Callable[[Connection], None]) -> None:
    """One act. Only a lost connection comes through: without this thread nobody would keep time.

    What PostgreSQL refuses is not asked again at once, or it would stand before all others for
    good; the next sweep does it again.
    """
    try:
        act(conn)
    except DatabaseUnavailable:
        raise
    except psycopg.Error as error:
        if conn.closed:
            raise
        log.warning("%s: refused: %s", name, str(error).splitlines()[0] if str(error) else error)
    except SuimonError as error:
        log.warning("%s: %s", name, error)
    except Exception:
        log.exception("%s", name)


def _due(conn: Connection) -> None:
    """End the waits that are over; again while a full batch came back (1,000 each, at most 100)."""
    for _ in range(100):
        if wake.wake_due(conn) < 1000:
            return


def void(_: object) -> None:
    """An act's result that nobody needs."""
