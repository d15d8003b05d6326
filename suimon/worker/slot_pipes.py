"""One slot's pipes from the worker's side. Nothing in here ever blocks the worker."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import deque

from suimon.worker import wire

PIPE_BYTES = 1024 * 1024
READ_BYTES = 1024 * 1024


class SlotHandle:
    """One slot's pipes from the worker's side, and the buffers that keep them non-blocking."""

    __slots__ = (
        "_lines",
        "_outgoing",
        "_waiting",
        "closed",
        "err_fd",
        "from_fd",
        "no",
        "out_fd",
        "pid",
        "to_fd",
    )

    def __init__(self, no: int, *, to_fd: int, from_fd: int, out_fd: int, err_fd: int) -> None:
        self.no = no
        self.pid: int | None = None
        self.to_fd, self.from_fd, self.out_fd, self.err_fd = to_fd, from_fd, out_fd, err_fd
        self.closed = False
        self._outgoing: deque[memoryview] = deque()
        self._waiting = 0
        self._lines = wire.LineBuffer()
        for fd in (to_fd, from_fd, out_fd, err_fd):
            os.set_blocking(fd, False)

    @property
    def wants_write(self) -> bool:
        """Whether bytes wait for the slot; then watch `to_fd` for writing and `flush`."""
        return self._waiting > 0

    @property
    def backlog(self) -> int:
        """Bytes the slot has not taken. The buffer refuses nothing, because half a line would be
        worse than a long one: the worker bounds it by giving no runs while this is above zero.
        """
        return self._waiting

    def send(self, data: bytes) -> None:
        """Pass whole lines on, or keep them for `flush`. To a closed or dead slot: dropped."""
        if self.closed:
            return
        self._outgoing.append(memoryview(data))
        self._waiting += len(data)
        self.flush()

    def flush(self) -> bool:
        """Write what the pipe takes now; True when nothing waits any more."""
        while self._outgoing:
            first = self._outgoing[0]
            try:
                written = os.write(self.to_fd, first)
            except BlockingIOError:
                return False
            except OSError:
                # The slot is dead; its exit is reported by the guardian, not here.
                self._outgoing.clear()
                self._waiting = 0
                return True
            self._waiting -= written
            if written == len(first):
                self._outgoing.popleft()
            else:
                self._outgoing[0] = first[written:]
        return True

    def read_lines(self) -> list[bytes] | None:
        """The whole lines that have come, at most 1 MiB a call; None at the end of the pipe."""
        data = self.read_raw(self.from_fd)
        if data is None:
            return None
        return self._lines.feed(data) if data else []

    def read_raw(self, fd: int) -> bytes | None:
        """Bytes from `from_fd`, `out_fd` or `err_fd`; empty if none wait, None at the end."""
        try:
            return os.read(fd, READ_BYTES) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def close(self) -> None:
        """Close the pipes. Unregister them from the selector before."""
        if not self.closed:
            self.closed = True
            self._outgoing.clear()
            self._waiting = 0
            for fd in (self.to_fd, self.from_fd, self.out_fd, self.err_fd):
                with contextlib.suppress(OSError):
                    os.close(fd)


def open_pipe() -> tuple[int, int]:
    """A pipe with as much room as the system grants: 1 MiB, or what it has by default."""
    read, write = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return read, write
