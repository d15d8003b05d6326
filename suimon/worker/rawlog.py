"""Bytes that a run's subprocesses and C code wrote to descriptors 1 and 2, bounded.

The first 512 KB of a try are kept at once, then a ring of the last 512 KB; between them a note says
how much was dropped. Bytes that are not UTF-8 are shown in an escaped form, and a character is torn
neither where a read ends nor where something is dropped. Nobody is blocked and no memory grows,
whatever is printed: a piece of the ring counts with what Python needs to hold it.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from typing import Final

HEAD_BYTES: Final = 512 * 1024
TAIL_BYTES: Final = 512 * 1024
#: Pieces of the ring shorter than this are joined with what follows.
_SHORT: Final = 4096
#: What a piece takes beside its bytes.
_PIECE_BYTES: Final = 128


class RawLog:
    """The raw output of one try, both streams together."""

    __slots__ = ("_begun", "_dropped", "_head", "_tail", "_tail_bytes")

    def __init__(self) -> None:
        self._head = 0
        #: stream → the beginning of a character whose end has not come yet
        self._begun: dict[str, bytes] = {}
        self._tail: deque[tuple[str, bytes]] = deque()
        self._tail_bytes = 0
        self._dropped = 0

    def take(self, stream: str, data: bytes) -> list[str]:
        """Text to be stored now; the rest is kept for the end, or dropped."""
        data = self._begun.pop(stream, b"") + data
        room = max(0, HEAD_BYTES - self._head)
        now, later = data[:room], data[room:]
        whole = _whole(now)
        now, rest = now[:whole], now[whole:]
        self._head += len(now)
        if later:
            self._head = HEAD_BYTES  # what follows stands behind it, all of it
            self._keep(stream, rest + later)
        elif rest:
            self._begun[stream] = rest
        return [_text(now)] if now else []

    def _keep(self, stream: str, data: bytes) -> None:
        """Into the ring; the oldest make room, the last of them in part."""
        if len(data) > TAIL_BYTES:
            self._dropped += len(data) - TAIL_BYTES
            data = data[-TAIL_BYTES:]
        if self._tail and self._tail[-1][0] == stream and len(self._tail[-1][1]) < _SHORT:
            before = self._tail.pop()[1]
            self._tail_bytes -= len(before) + _PIECE_BYTES
            data = before + data
        self._tail.append((stream, data))
        self._tail_bytes += len(data) + _PIECE_BYTES
        while self._tail_bytes > TAIL_BYTES + _PIECE_BYTES:
            excess = self._tail_bytes - TAIL_BYTES - _PIECE_BYTES
            oldest, old = self._tail.popleft()
            self._tail_bytes -= len(old) + _PIECE_BYTES
            kept = old[excess:] if len(old) > excess + _PIECE_BYTES else b""
            self._dropped += len(old) - len(kept)
            if kept:
                self._tail.appendleft((oldest, kept))
                self._tail_bytes += len(kept) + _PIECE_BYTES

    def end(self) -> list[tuple[str, str]]:
        """What is left: the note about what was dropped, then the end of the output."""
        texts = [(stream, _text(data)) for stream, data in self._begun.items()]
        pieces = [
            (stream, b"".join(data for _, data in run))
            for stream, run in groupby(self._tail, key=lambda piece: piece[0])
        ]
        if self._dropped:
            if pieces:
                stream, data = pieces[0]
                middle = _middle(data)
                self._dropped += middle
                pieces[0] = (stream, data[middle:])
            texts.append(("note", f"... {self._dropped} bytes of output were dropped here ...\n"))
        texts += [(stream, _text(data)) for stream, data in pieces if data]
        self._tail.clear()
        self._begun.clear()
        self._tail_bytes = 0
        return texts


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
