"""Bytes that a run's subprocesses and C code wrote to descriptors 1 and 2, bounded.

The first 512 KB of a try are kept at once, then a ring of the last 512 KB; between them a note says
how much was dropped. Bytes that are not UTF-8 are shown in an escaped form. Nobody is blocked and
no memory grows, whatever is printed.
"""

from __future__ import annotations

from collections import deque
from typing import Final

HEAD_BYTES: Final = 512 * 1024
TAIL_BYTES: Final = 512 * 1024


class RawLog:
    """The raw output of one try, both streams together."""

    __slots__ = ("_dropped", "_head", "_tail", "_tail_bytes")

    def __init__(self) -> None:
        self._head = 0
        self._tail: deque[tuple[str, bytes]] = deque()
        self._tail_bytes = 0
        self._dropped = 0

    def take(self, stream: str, data: bytes) -> list[str]:
        """Text to be stored now; the rest is kept for the end, or dropped."""
        room = max(0, HEAD_BYTES - self._head)
        now, later = data[:room], data[room:]
        self._head += len(now)
        if later:
            self._tail.append((stream, later[-TAIL_BYTES:]))
            self._dropped += max(0, len(later) - TAIL_BYTES)
            self._tail_bytes += min(len(later), TAIL_BYTES)
            while self._tail_bytes - len(self._tail[0][1]) >= TAIL_BYTES:
                _, old = self._tail.popleft()
                self._tail_bytes -= len(old)
                self._dropped += len(old)
        return [now.decode("utf-8", "backslashreplace")] if now else []

    def end(self) -> list[tuple[str, str]]:
        """What is left: the note about what was dropped, then the end of the output."""
        texts: list[tuple[str, str]] = []
        if self._dropped:
            texts.append(("note", f"... {self._dropped} bytes of output were dropped here ...\n"))
        texts += [(s, data.decode("utf-8", "backslashreplace")) for s, data in self._tail]
        self._tail.clear()
        return texts
