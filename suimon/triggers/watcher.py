"""The threads that notice files: one for each FILE trigger, in processes that keep the doors.

A share that hangs holds up its own trigger and no other. The connection is shared, opened when
there is something to ask or to store, and silent otherwise: while nothing changes in the folders,
the database hears nothing. Changed triggers come with the sweep and with the notification of a
deploy (``reload``).

    round:  list → ask what is known → let the rest settle → store what has settled → move what ran

Whatever goes wrong in a round is told and tried again; the thread ends only when it is closed.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import threading
from collections.abc import Iterator, Sequence
from typing import Final

import psycopg

from suimon.core import clock
from suimon.db import connect
from suimon.db.connect import Connection
from suimon.errors import SuimonError
from suimon.triggers import files, fire
from suimon.triggers.fire import Trigger
from suimon.triggers.folder_watch import FolderWatch, Tools
from suimon.triggers.host_lock import HostLock

log = logging.getLogger("suimon.files")

#: Threads of one process.
MAX_WATCHES: Final = 500
_TOO_MANY: Final = (
    f"not watched: {MAX_WATCHES} other FILE triggers are, which is the bound of one process; with "
    "recursive one trigger takes all folders below its own"
)
#: How often a process that does not list looks whether it has to; it asks the kernel only.
LOCK_SECONDS: Final = 1.0
_FIRST_PAUSE_S: Final = 0.5
_LAST_PAUSE_S: Final = 30.0


class FileWatcher:
    """All FILE triggers of one process. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._desk = _Desk(url)
        self._lock = threading.Lock()
        self._threads: dict[int, _Thread] = {}
        self._closed = False

    def reload(self, conn: Connection) -> None:
        """Look which FILE triggers there are, and watch these; of the others, say so."""
        found = fire.live(conn, ("FILE",))
        self.watch(found)
        for trigger in found[MAX_WATCHES:]:
            files.set_note(conn, trigger, _TOO_MANY)

    def watch(self, triggers: Sequence[Trigger]) -> None:
        """Watch these triggers and no others; one whose options have changed begins anew."""
        wanted = {each.id: each for each in triggers[:MAX_WATCHES]}
        with self._lock:
            if self._closed:
                return
            for number, thread in list(self._threads.items()):
                now = wanted.get(number)
                if now is None or now.spec != thread.trigger.spec or not thread.is_alive():
                    thread.close()
                    del self._threads[number]
            for number, trigger in wanted.items():
                if number in self._threads:
                    self._threads[number].nudge()
                else:
                    self._threads[number] = _Thread(self._url, self._desk, trigger)
                    self._threads[number].start()

    def close(self) -> None:
        """End all threads; one that hangs in a share that hangs is left behind."""
        with self._lock:
            self._closed = True
            threads = list(self._threads.values())
            self._threads.clear()
        for thread in threads:
            thread.close()
        for thread in threads:
            thread.join(timeout=2.0)
        self._desk.close()


class _Desk:
    """One connection for all threads of a process, opened when it is needed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._conn: Connection | None = None

    @contextlib.contextmanager
    def use(self) -> Iterator[Connection]:
        with self._lock:
            try:
                if self._conn is None or self._conn.closed:
                    self._conn = connect.connect(self._url, name="files")
                yield self._conn
            except psycopg.OperationalError:
                if self._conn is not None:
                    self._conn.close()
                    self._conn = None
                raise

    def close(self) -> None:
        with self._lock:
            if self._conn is not None:
                self._conn.close()
                self._conn = None


class _Thread(threading.Thread):
    """One trigger: holds the machine's lock, runs its rounds, waits for the next."""

    def __init__(self, url: str, desk: _Desk, trigger: Trigger) -> None:
        super().__init__(name=f"suimon-files-{trigger.id}", daemon=True)
        self.trigger = trigger
        self._desk = desk
        self._host_lock = HostLock(url, trigger.id)
        self._ending = threading.Event()
        self._woken = threading.Event()
        self._hinted = False
        self._nudged = False
        self._pause = _FIRST_PAUSE_S

    def close(self) -> None:
        self._ending.set()
        self._woken.set()

    def nudge(self) -> None:
        """Files may have to be moved; the folder need not be listed."""
        self._nudged = True
        self._woken.set()

    def _hint(self) -> None:
        self._hinted = True
        self._woken.set()

    def run(self) -> None:
        watch: FolderWatch | None = None
        while not self._ending.is_set():
            if not self._host_lock.take():
                self._ending.wait(LOCK_SECONDS)
                continue
            self._woken.clear()
            hinted, self._hinted = self._hinted, False
            nudged, self._nudged = self._nudged, False
            try:
                if watch is None:
                    tools = Tools(self._desk.use, self._hint, platform.node() or "localhost")
                    watch = FolderWatch(self.trigger, tools)
                wait_s = watch.round(hinted=hinted, nudged=nudged)
                self._pause = _FIRST_PAUSE_S
            except Exception as error:  # noqa: BLE001 - nothing may end the watching
                self._hinted = True
                self._failed(error, begun=watch is not None)
                continue
            self._woken.wait(wait_s)
            if self._hinted:
                self._ending.wait(watch.calm_s(clock.monotonic()))
        if watch is not None:
            watch.close()
        self._host_lock.release()

    def _failed(self, error: Exception, *, begun: bool) -> None:
        """Tell it, and wait before the next try; a watch that cannot begin says so in the note."""
        expected = isinstance(error, SuimonError | psycopg.Error | OSError)
        first = str(error).partition("\n")[0] or type(error).__name__
        log.warning(
            "%s of %s: %s; tried again in %.1f s",
            self.trigger.name, self.trigger.pipeline, first, self._pause,
            exc_info=None if expected else error,
        )  # fmt: skip
        if not begun and not isinstance(error, psycopg.Error):
            with contextlib.suppress(psycopg.Error, SuimonError), self._desk.use() as conn:
                files.set_note(conn, self.trigger, first)
        self._ending.wait(self._pause)
        self._pause = min(self._pause * 2, _LAST_PAUSE_S)
