"""Connections for requests: at most ``size`` at once, opened when needed, closed when idle.

Nothing is kept between requests but the sockets. A caller is told within five seconds when the
database does not answer, and nobody waits for it in line:

- While the database is *away* every request is refused at once; the pulse, a thread, looks twice
  a second whether it is back. A connect that fails says that it is away.
- A statement that hangs may be slow or may wait for a server that is frozen. When somebody has held
  a connection for longer than ``SLOW_SECONDS``, the pulse asks the database over another one. If
  that is not answered in time either, all sockets are shut: who waited gets an error now.

A socket on which something lies before a request has sent anything was closed by the server
(a restart): such a connection is replaced, not used.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from suimon.core import clock
from suimon.db import connect, migrate
from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.errors import DatabaseUnavailable, SchemaMismatch

log = logging.getLogger("suimon.api")

SQL = statements(__package__, "pool.sql")

SIZE: Final = 10
UNREACHABLE: Final = "the database cannot be reached"
SILENT: Final = "the database does not answer"
SLOW_SECONDS: Final = 1.5
PROBE_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 60.0
#: One statement of a request; longer ones are ended by the server.
STATEMENT_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 2
_LOOK_SECONDS: Final = 0.25
_AGAIN_SECONDS: Final = 0.5


class Pool:
    """Thread-safe. ``connection`` is for one request; ``wrong_schema`` is called at a mismatch."""

    def __init__(
        self,
        url: str,
        *,
        size: int = SIZE,
        statement_s: float = STATEMENT_SECONDS,
        wrong_schema: Callable[[], None] = lambda: None,
    ) -> None:
        self._url, self.size, self._statement_s = _impatient(url), size, statement_s
        self._wrong_schema = wrong_schema
        self._places = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Connection]] = []
        self._busy: dict[int, tuple[float, Connection]] = {}
        self._away: str | None = None
        self._ending = threading.Event()
        self._pulse = threading.Thread(target=self._watch, name="suimon-pulse", daemon=True)
        self._pulse.start()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection in autocommit mode, for one thread; raises DatabaseUnavailable."""
        if not self._places.acquire(timeout=PROBE_SECONDS):
            msg = "all connections are in use"
            raise DatabaseUnavailable(msg, hint="Ask again; or start more servers.")
        try:
            conn = self._take()
            try:
                yield conn
            finally:
                self._give_back(conn)
        finally:
            self._places.release()

    @property
    def away(self) -> bool:
        """The database did not answer when it was last asked."""
        return self._away is not None

    def close(self) -> None:
        """Close what is idle; whatever is in use is closed when it comes back."""
        self._ending.set()
        self._pulse.join(PROBE_SECONDS + 1)
        with self._lock:
            idle, self._idle = self._idle, []
        for _, conn in idle:
            conn.close()

    # ------------------------------------------------------------------ inside

    def _take(self) -> Connection:
        while True:  # each turn drops one idle connection or ends
            with self._lock:
                if self._away is not None:
                    raise _away(self._away)
                conn = self._idle.pop()[1] if self._idle else None
            if conn is None:
                conn = self._open()
            elif _was_closed(conn):
                conn.close()
                continue
            with self._lock:
                self._busy[id(conn)] = (clock.boottime(), conn)
            return conn

    def _give_back(self, conn: Connection) -> None:
        with self._lock:
            self._busy.pop(id(conn), None)
        idle = psycopg.pq.TransactionStatus.IDLE
        if conn.closed or self._ending.is_set() or conn.info.transaction_status != idle:
            conn.close()
            return
        with self._lock:
            self._idle.append((clock.boottime(), conn))

    def _open(self) -> Connection:
        try:
            conn = connect.connect(self._url, name="serve")
        except DatabaseUnavailable as error:
            self._is_away(UNREACHABLE, f"{error.message} ({error.detail})")
            raise _away(UNREACHABLE) from None
        try:
            if not conn.pooled:
                conn.execute(SQL.session, {"timeout": f"{self._statement_s * 1000:.0f}"})
            migrate.check_version(conn)
        except BaseException as error:
            conn.close()
            if isinstance(error, SchemaMismatch):
                self._wrong_schema()
            raise
        return conn

    def _is_away(self, what: str, why: str) -> None:
        with self._lock:
            first = self._away is None
            self._away = what
        if first:
            log.warning("the database is away: %s", why)

    # ------------------------------------------------------------------ the pulse

    def _watch(self) -> None:
        while not self._ending.wait(_AGAIN_SECONDS if self.away else _LOOK_SECONDS):
            self._close_idle()
            now = clock.boottime()
            with self._lock:
                slow = any(now - since > SLOW_SECONDS for since, _ in self._busy.values())
            if not slow and not self.away:
                continue
            if self._answers():
                with self._lock:
                    back, self._away = self._away is not None, None
                if back:
                    log.warning("the database is back")
            else:
                self._break()

    def _answers(self) -> bool:
        """Ask the database over a connection of its own, and wait no longer than PROBE_SECONDS."""
        done = threading.Event()
        asked: list[Connection] = []

        def ask() -> None:
            with contextlib.suppress(DatabaseUnavailable, psycopg.Error):
                conn = connect.connect(self._url, name="serve-probe")
                asked.append(conn)
                try:
                    conn.execute(SQL.probe)
                    done.set()
                finally:
                    conn.close()
            over.set()

        over = threading.Event()
        threading.Thread(target=ask, name="suimon-probe", daemon=True).start()
        over.wait(PROBE_SECONDS)
        if not over.is_set():
            for conn in asked:
                _shut(conn)
        return done.is_set()

    def _break(self) -> None:
        """The database does not answer: whoever waits for it is told now."""
        self._is_away(SILENT, SILENT)
        with self._lock:
            waiting = [conn for _, conn in self._busy.values()]
            idle, self._idle = self._idle, []
        for conn in waiting:
            _shut(conn)
        for _, conn in idle:
            conn.close()

    def _close_idle(self) -> None:
        now = clock.boottime()
        with self._lock:
            old = [conn for at, conn in self._idle if now - at > IDLE_SECONDS]
            self._idle = [(at, conn) for at, conn in self._idle if now - at <= IDLE_SECONDS]
        for conn in old:
            conn.close()


def _impatient(url: str) -> str:
    """The URL with a short time to connect, unless it is shorter already or cannot be read."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return url  # connect says what is wrong with it
    wanted = str(given.get("connect_timeout") or _CONNECT_SECONDS)
    seconds = min(int(wanted), _CONNECT_SECONDS) if wanted.isdigit() else _CONNECT_SECONDS
    return make_conninfo(url, connect_timeout=seconds or _CONNECT_SECONDS)


def _away(what: str) -> DatabaseUnavailable:
    """What callers are told, strangers among them: neither where the database is nor as whom it is
    asked. The server's log says that.
    """
    return DatabaseUnavailable(what, hint="Ask again soon; the server's log says more.")


def _was_closed(conn: Connection) -> bool:
    """Something lies on the socket of an idle connection: the server has ended it."""
    if conn.closed:
        return True
    poll = select.poll()
    poll.register(conn.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _shut(conn: Connection) -> None:
    """End both directions; a thread that waits for an answer sees the end of the stream."""
    with contextlib.suppress(OSError, psycopg.Error):
        twin = socket.socket(fileno=os.dup(conn.fileno()))
        with twin:
            twin.shutdown(socket.SHUT_RDWR)
