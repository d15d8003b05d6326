"""inotify as a hint: something in these folders has changed, so a listing is due. Never the truth.

Only the folders that were listed are watched, each by itself: a recursive watch would follow links
out of them. What the kernel drops (its queue is bounded), and what happens before a new folder is
watched, the listing finds. Where nothing can be watched (no inotify, limits of the system) there
are no hints, and the folder is listed more often.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

log = logging.getLogger("suimon.files")

_GATHER_MS: Final = 200
_STEP_MS: Final = 100
_LOOK_MS: Final = 60_000

Folder = tuple[bytes, int, int]


class Hints:
    """Watches one set of folders at a time."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._folders: list[Folder] = []
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None
        self.problem: str | None = None

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def watch(self, folders: Sequence[Folder]) -> bool:
        """Watch these folders. True: they are others than before, so a listing is due."""
        if not folders:
            self.close()
            return False
        if sorted(folders) == self._folders and (self.alive or self.problem):
            return False
        self.close()
        self._folders = sorted(folders)
        self.problem = None
        try:
            # its class itself: watchfiles.watch begins to watch at some later moment
            from watchfiles._rust_notify import RustNotify

            paths = [path.decode("utf-8", "strict") for path, _, _ in folders]
            watcher = RustNotify(paths, False, False, 0, False, True)  # noqa: FBT003
        except Exception as error:  # noqa: BLE001 - whatever it is, the listing goes on without
            self.problem = str(error).splitlines()[0] if str(error) else type(error).__name__
            return False
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._listen, args=(watcher, self._stop), name="suimon-inotify", daemon=True
        )
        self._thread.start()
        return True

    def close(self) -> None:
        if self._stop is not None:
            self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2.0)
        self._thread, self._stop, self._folders = None, None, []

    def _listen(self, watcher: object, stop: threading.Event) -> None:
        try:
            with watcher:  # type: ignore[attr-defined]
                while not stop.is_set():
                    changes = watcher.watch(_GATHER_MS, _STEP_MS, _LOOK_MS, stop)  # type: ignore[attr-defined]
                    if changes in ("stop", "signal"):
                        return
                    if changes != "timeout":
                        self._tell()
        except Exception as error:  # noqa: BLE001 - a hint that ends is no failure: listings go on
            log.debug("inotify ended: %s", error)
            self.problem = str(error).partition("\n")[0] or type(error).__name__
            self._tell()
