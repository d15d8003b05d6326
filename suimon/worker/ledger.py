"""A thread with a connection, for what a worker reads and writes: requests are taken in order.

The main loop never waits for the database. It asks (``ask``), goes on feeding slots, and finds the
answers when it is woken (``replies``). Every request is safe to send twice: it carries its fence,
so after a lost answer it is simply sent again on a new connection. What such a repetition cannot
see is a claim that was committed and never heard of; therefore ``lost_answers`` counts, and the
main loop compares what the database says this worker holds with what it does hold
(``Worker._reconcile``).

Bound: at most ``MAX_OPEN`` requests wait; the main loop holds back before that.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from suimon.db import connect
from suimon.db.connect import Connection
from suimon.errors import DatabaseUnavailable

log = logging.getLogger("suimon.worker")

MAX_OPEN: Final = 10_000
_PAUSES: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


@dataclass(slots=True)
class _Request:
    work: Callable[[Connection], Any]
    then: Callable[[Any], None]
    failed: Callable[[Exception], None]


class Ledger(threading.Thread):
    """Start it, ``ask`` it, drain ``replies`` whenever ``notify`` was called; ``close`` ends it."""

    def __init__(self, url: str, *, name: str, notify: Callable[[], None]) -> None:
        super().__init__(name=f"suimon-{name}", daemon=True)
        self._url = url
        self._label = name
        self._notify = notify
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._replies: deque[Callable[[], None]] = deque()
        self._ending = threading.Event()
        self._open = 0
        #: How often an answer was lost with its connection.
        self.lost_answers = 0
        self.connected = False

    @property
    def open_requests(self) -> int:
        return self._open

    def ask(
        self,
        work: Callable[[Connection], Any],
        then: Callable[[Any], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Run ``work`` on the connection; ``then`` or ``failed`` is called by ``replies``."""
        self._open += 1
        self._requests.put(_Request(work, then, failed))

    def replies(self) -> int:
        """Call what has come back, in the caller's thread; returns how many."""
        count = 0
        while self._replies:
            self._open -= 1
            count += 1
            self._replies.popleft()()
        return count

    def close(self) -> None:
        """Finish what was asked, then end; a database that is away is not waited for."""
        self._ending.set()
        self._requests.put(None)

    def run(self) -> None:
        conn: Connection | None = None
        while (request := self._requests.get()) is not None:
            conn = self._serve(conn, request)
            self._notify()
        if conn is not None:
            conn.close()

    def _serve(self, conn: Connection | None, request: _Request) -> Connection | None:
        """One request, sent again on a new connection as often as the connection is lost."""
        tries = 0
        while True:
            if conn is None or conn.closed:
                conn = self._connect(tries)
                if conn is None:
                    self._fail(request, DatabaseUnavailable("the worker is leaving"))
                    return None
                tries += 1
            try:
                result = request.work(conn)
            except psycopg.OperationalError as error:
                if not conn.closed and not conn.broken:
                    self._fail(request, error)
                    return conn
                log.warning("%s: the connection broke; nobody knows if it was done", self._label)
                self.connected = False
                self.lost_answers += 1
                conn.close()
            except Exception as error:  # noqa: BLE001  (the caller decides what it means)
                self._fail(request, error)
                return conn
            else:
                self._replies.append(functools.partial(request.then, result))
                return conn

    def _fail(self, request: _Request, error: Exception) -> None:
        self._replies.append(functools.partial(request.failed, error))

    def _connect(self, tries: int) -> Connection | None:
        """Connect, for as long as it takes; None when the worker leaves meanwhile."""
        attempt = tries
        while not self._ending.is_set():
            try:
                conn = connect.connect(self._url, name=self._label)
                connect.hot(conn)
            except (DatabaseUnavailable, psycopg.Error) as error:
                if attempt == 0:
                    log.warning("%s: %s; trying again", self._label, error)
                self._ending.wait(_PAUSES[min(attempt, len(_PAUSES) - 1)])
                attempt += 1
                continue
            self.connected = True
            return conn
        return None
