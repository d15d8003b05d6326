"""The slot's two pipes: whole lines out, commands in.

Results, logs and chunks come from several threads (user code, the asyncio loop, the reader), so a
line is written under one lock and never mixed with another. When the worker is gone there is
nobody to work for: the slot ends at once with everything below it.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import Any

from suimon.worker import processes, wire

READ_BYTES = 256 * 1024
WORKER_GONE = 3


class Output:
    """Writes lines to the worker, blocking while its pipe is full."""

    __slots__ = ("_fd", "_lock")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # Re-entrant: a signal handler of user code may print while this thread is writing.
        self._lock = threading.RLock()

    def write(self, line: bytes) -> None:
        """One or more whole lines."""
        try:
            with self._lock:
                written = os.write(self._fd, line)
                while written < len(line):
                    written += os.write(self._fd, memoryview(line)[written:])
        except OSError:
            leave(WORKER_GONE)


class Commands:
    """Reads the worker's lines in a thread of its own, so that user code cannot delay them."""

    def __init__(
        self,
        fd: int,
        obey: Callable[[str, Any], None],
        tick: Callable[[], float | None],
    ) -> None:
        """`obey` gets each command; `tick` runs after each read or when its own answer, seconds,
        has passed without one. None: nothing to do until the next command.
        """
        self._fd = fd
        self._obey = obey
        self._tick = tick
        self._thread = threading.Thread(target=self._read, name="suimon-commands", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _read(self) -> None:
        buffer = wire.LineBuffer()
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while True:
            seconds = self._tick()
            if not poll.poll(None if seconds is None else seconds * 1000):
                continue
            try:
                data = os.read(self._fd, READ_BYTES)
            except OSError:
                data = b""
            if not data:
                leave(WORKER_GONE)
            for line in buffer.feed(data):
                self._obey(*wire.command(line))


def leave(code: int) -> None:
    """End this process now, with all below it, whatever its threads are doing."""
    try:
        processes.kill_below(os.getpid())
    finally:
        os._exit(code)
