"""Keeping duties without being a worker: what ``suimon serve`` does besides answering.

The same threads as in a worker, without a heartbeat of its own: ``Upkeep`` for doors, timers and
the sweep, a ``Listener`` for what comes to the doors, and a watch that looks at the workers' beats
and buries the silent ones. So runs of dead workers are taken back, schedules fire and deliveries
go on when a server is the only process alive. Any number of keepers and workers may do this at
once: every act is idempotent.

The watch also sees the schema's number: after a migration that this process does not know, it
writes nothing more and says so (``wrong_schema``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg

from suimon.core import clock
from suimon.db import connect, migrate
from suimon.db.connect import Connection
from suimon.errors import DatabaseUnavailable
from suimon.run import rescue, wake
from suimon.store.secret_key import KeyRing
from suimon.worker.listener import Listener
from suimon.worker.upkeep import Upkeep
from suimon.worker.watch import Watch

log = logging.getLogger("suimon.keeper")


class Keeper(threading.Thread):
    """The watch; it owns the other two. ``look_s``: between two looks at the beats."""

    def __init__(
        self,
        url: str,
        listen_url: str | None,
        *,
        look_s: float,
        sweep_s: float,
        wrong_schema: Callable[[], None],
        keyring: KeyRing | None = None,
    ) -> None:
        super().__init__(name="suimon-watch", daemon=True)
        self._url, self._look_s, self._wrong_schema = url, look_s, wrong_schema
        self._watch = Watch(look_s)
        self._ending = threading.Event()
        self._upkeep = Upkeep(url, None, sweep_s, keyring=keyring)
        self._listener = Listener(
            listen_url or url, woken=self._woken, look=self._upkeep.may_have_missed
        )  # fmt: skip

    def close(self, patience_s: float = 5.0) -> None:
        """End all three; what one of them is in the middle of is finished, or done again later."""
        self._ending.set()
        self._listener.close()
        self._upkeep.close()
        for thread in (self, self._listener, self._upkeep):
            if thread.is_alive():
                thread.join(patience_s)

    def run(self) -> None:
        self._upkeep.start()
        self._listener.start()
        conn: Connection | None = None
        said = False
        while not self._ending.is_set():
            try:
                if conn is None or conn.closed:
                    conn = connect.connect(self._url, name="watch")
                if not self._look(conn):
                    break
                said = False
            except (psycopg.Error, DatabaseUnavailable) as error:
                if not said:
                    log.warning("no look at the workers: %s", str(error).partition("\n")[0])
                    said = True
                self._watch.forget()
                if conn is not None:
                    conn.close()
                    conn = None
            self._ending.wait(self._look_s)
        if conn is not None:
            conn.close()

    def _look(self, conn: Connection) -> bool:
        """Bury who is silent; False: the schema is another one, and this process keeps nothing."""
        sent_at = clock.boottime()
        schema, beats = rescue.beats(conn)
        if schema != migrate.schema_version():
            log.error("the database has schema version %d now: keeping no duties", schema)
            self._upkeep.close()
            self._listener.close()
            self._wrong_schema()
            return False
        buried = False
        for worker, beat in self._watch.look(sent_at, clock.boottime(), beats):
            name = rescue.bury(conn, worker, beat)
            if name is not None:
                log.warning("worker %d (%s) is silent: buried", worker, name)
                buried = True
        if buried:
            self._upkeep.rescue_soon()
        return True

    def _woken(self, channel: str, payload: str) -> None:
        if channel == wake.DOORS_CHANNEL:
            self._upkeep.heard(payload)
