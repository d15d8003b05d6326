"""Bytes that a run's subprocesses and C code wrote to descriptors 1 and 2, bounded.

Of each descriptor the first 256 KB of a try are kept at once, then a ring of the last 256 KB; a
note says how much was dropped between them. They are bounded apart, since nobody knows in which
order two pipes were written: a flood on one must not wash away what the other said. Bytes that are
not UTF-8 are shown in an escaped form, and a character is torn neither where a read ends nor where
something is dropped. Nobody is blocked and no memory grows, whatever is printed.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from suimon.core.redact import Redactor

HEAD_BYTES: Final = 256 * 1024
TAIL_BYTES: Final = 256 * 1024
#: Pieces of the ring shorter than this are joined with what follows.
_SHORT: Final = 4096


class RawLog:
    """The raw output of one try, each descriptor with bounds of its own."""

    __slots__ = ("_hidden", "_streams")

    def __init__(self, hidden: Redactor | None = None) -> None:
        """`hidden` takes secrets out of the bytes; it may learn more of them."""
        self._hidden = Redactor(raw=True) if hidden is None else hidden
        self._streams: dict[str, _Stream] = {}

    def take(self, stream: str, data: bytes) -> list[str]:
        """Text to be stored now; the rest is kept for the end, or dropped."""
        if stream not in self._streams:
            self._streams[stream] = _Stream(self._hidden)
        now = self._streams[stream].take(data)
        return [_text(now)] if now else []

    def end(self) -> list[tuple[str, str]]:
        """What is left of each: the note about what was dropped, then the end of the output."""
        texts: list[tuple[str, str]] = []
        for name, one in self._streams.items():
            data, dropped = one.end()
            if dropped:
                texts.append(("note", f"... {dropped} bytes of {name} were dropped here ...\n"))
            if data:
                texts.append((name, _text(data)))
        self._streams.clear()
        return texts


class _Stream:
    """One descriptor's bytes: how many of its head have gone, and the ring of its end."""

    __slots__ = (
        "_begun", "_dropped", "_head", "_hidden", "_of", "_tail", "_tail_bytes",
    )  # fmt: skip

    def __init__(self, hidden: Redactor) -> None:
        self._of = hidden
        self._hidden = hidden.stream()
        self._head = 0
        #: the beginning of a character whose end has not come yet
        self._begun = b""
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped = 0

    def take(self, data: bytes) -> bytes:
        """What belongs to the head and ends with a character."""
        if self._of:
            data = self._hidden.feed(data.decode("latin-1")).encode("latin-1")
        return self._take(data)

    def _take(self, data: bytes) -> bytes:
        if self._head < HEAD_BYTES:
            data = self._begun + data
            self._begun = b""
            room = HEAD_BYTES - self._head
            now, later = data[:room], data[room:]
            whole = _whole(now)
            now, rest = now[:whole], now[whole:]
            self._head += len(now)
            if not later:
                self._begun = rest
                return now
            self._head = HEAD_BYTES  # what follows stands behind it, all of it
            self._keep(rest + later)
            return now
        self._keep(data)
        return b""

    def _keep(self, data: bytes) -> None:
        """Into the ring; the oldest make room, the last of them in part."""
        if len(data) > TAIL_BYTES:
            self._dropped += len(data) - TAIL_BYTES
            data = data[-TAIL_BYTES:]
        self._tail_bytes += len(data)
        if self._tail and len(self._tail[-1]) < _SHORT:
            data = self._tail.pop() + data
        self._tail.append(data)
        while (excess := self._tail_bytes - TAIL_BYTES) > 0:
            old = self._tail.popleft()
            kept = old[excess:]
            self._dropped += len(old) - len(kept)
            self._tail_bytes -= len(old) - len(kept)
            if kept:
                self._tail.appendleft(kept)

    def end(self) -> tuple[bytes, int]:
        """What is left, and how many bytes are missing before it."""
        rest = self._take(self._hidden.end().encode("latin-1"))
        data = rest + self._begun + b"".join(self._tail)
        if self._dropped:
            middle = _middle(data)
            return data[middle:], self._dropped + middle
        return data, 0


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _whole(data: bytes) -> int:
    """How many bytes there are before a character that has only begun, if one has."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:  # its middle: the beginning lies before
            continue
        length = 4 if 0xF0 <= byte < 0xF8 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) - back if length > back and byte < 0xF8 else len(data)
    return len(data)


def _middle(data: bytes) -> int:
    """How many bytes at the beginning belong to a character whose beginning is not there."""
    count = 0
    while count < min(3, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count
