"""The thread that LISTENs, on a connection that does nothing else.

While it cannot listen (the connection was cut, a pooler stands in between) it asks the main loop to
look once a second: notifications are a hint, the table is the truth. After every reconnect it asks
too, since what was said in the gap was said to nobody.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

import psycopg

from suimon.db import connect
from suimon.errors import DatabaseUnavailable
from suimon.run import wake

log = logging.getLogger("suimon.worker")

POLL_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 0.5


class Listener(threading.Thread):
    """``woken(channel, payload)`` for each notification, ``look()`` when some may be missing."""

    def __init__(
        self, url: str, *, woken: Callable[[str, str], None], look: Callable[[], None]
    ) -> None:
        super().__init__(name="suimon-listen", daemon=True)
        self._url, self._woken, self._look = url, woken, look
        self._ending = threading.Event()
        self.listening = threading.Event()

    def close(self) -> None:
        self._ending.set()

    def run(self) -> None:
        said = False
        while not self._ending.is_set():
            try:
                conn = connect.connect(self._url, name="listen")
            except (DatabaseUnavailable, psycopg.Error) as error:
                if not said:
                    log.warning("not listening: %s; looking once a second instead", error)
                    said = True
                self._pause()
                continue
            try:
                if conn.pooled:
                    if not said:
                        log.warning(
                            "a pooler stands before PostgreSQL: LISTEN needs SUIMON_LISTEN_URL, "
                            "an address past it; looking once a second instead"
                        )
                        said = True
                    self._pause()
                    continue
                conn.execute(wake.SQL.listen)
                conn.execute(wake.SQL.listen_cancel)
                conn.execute(wake.SQL.listen_doors)
                conn.execute(wake.SQL.listen_limits)
                said = False
                self.listening.set()
                self._look()
                self._receive(conn)
            except psycopg.Error as error:
                log.warning(
                    "the listening connection broke (%s); connecting again", type(error).__name__
                )
            finally:
                self.listening.clear()
                conn.close()

    def _receive(self, conn: connect.Connection) -> None:
        while not self._ending.is_set():
            for note in conn.notifies(timeout=_PATIENCE_SECONDS):
                self._woken(note.channel, note.payload)

    def _pause(self) -> None:
        self._look()
        self._ending.wait(POLL_SECONDS)
