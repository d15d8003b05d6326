"""What user code prints, bounded and in order: at most 1 MB a try, the beginning and the end.

`print`, `sys.stdout.write`, `logging` to standard error and `ctx.log` end here. The first 512 KB of
a try go to the worker as they come (gathered for a moment, so that a flood of short lines is not a
flood of messages); after that only the last 512 KB are kept, and sent when the try ends with a note
of how much is missing. Bytes that are not text, NUL and lone surrogates are shown escaped.

Secrets that the slot holds are taken out here, before anything is kept, cut or sent.

Raw descriptors 1 and 2 (subprocesses, C code) do not pass here; the worker reads them itself.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections import deque
from collections.abc import Callable

from suimon.core import clock
from suimon.core.redact import Redactor, Stream
from suimon.worker import wire

HEAD_BYTES = 512 * 1024
TAIL_BYTES = 512 * 1024
GATHER_BYTES = 16 * 1024
GATHER_SECONDS = 0.1


def printable(text: str) -> str:
    """The text as UTF-8 and PostgreSQL can hold it: NUL and lone surrogates as escapes."""
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


class RunLog:
    """The log of one try. Any thread may write."""

    __slots__ = ("_gathered", "_hidden", "_lock", "_ring", "_ring_size", "_sent_at", "_size",
                 "_streams", "dropped", "room", "send", "stream", "token")  # fmt: skip

    def __init__(
        self, token: int, send: Callable[[bytes], None], hidden: Redactor | None = None
    ) -> None:
        """`hidden` takes out secrets, also those that come in two pieces; it may learn more."""
        self.token = token
        self._hidden = hidden
        self._streams: dict[str, Stream] = {}
        self.send = send
        self.room = HEAD_BYTES
        self.dropped = 0
        self.stream = "stdout"
        self._gathered: list[str] = []
        self._size = 0
        self._sent_at = 0.0
        self._ring: deque[tuple[str, str]] = deque()
        self._ring_size = 0
        self._lock = threading.RLock()

    def write(self, stream: str, text: str) -> None:
        """Take a piece of text; it is sent now, soon, or at the end."""
        with self._lock:
            if self._hidden:
                if stream not in self._streams:
                    self._streams[stream] = self._hidden.stream()
                text = self._streams[stream].feed(text)
            self._take(stream, text)

    def _take(self, stream: str, text: str) -> None:
        with self._lock:
            if self.room > 0:
                head, text = text[: self.room], text[self.room :]
                self.room -= _size(head)
                self._gather(stream, head)
                if self.room <= 0:
                    self.flush()
            if text:
                self._keep(stream, text)

    def flush(self) -> None:
        """Send what has been gathered."""
        with self._lock:
            if self._gathered:
                text = printable("".join(self._gathered))
                self._gathered.clear()
                self._size = 0
                self._sent_at = clock.monotonic()
                self.send(wire.log(self.token, self.stream, text))

    def finish(self) -> None:
        """The try has ended: send the rest, the note of what is missing, and the kept end."""
        with self._lock:
            for name, one in self._streams.items():
                self._take(name, one.end())
            self._streams.clear()
            self.flush()
            if self.dropped:
                note = f"{self.dropped} bytes of output were dropped here"
                self.send(wire.log(self.token, "note", note))
            for stream, text in self._ring:
                self._gather(stream, text)
            self.flush()
            self._ring.clear()
            self._ring_size = 0
            self.room = 0

    def _gather(self, stream: str, text: str) -> None:
        if stream != self.stream:
            self.flush()
            self.stream = stream
        self._gathered.append(text)
        self._size += len(text)
        if self._size >= GATHER_BYTES or (
            clock.monotonic() - self._sent_at >= GATHER_SECONDS and "\n" in text
        ):
            self.flush()

    def _keep(self, stream: str, text: str) -> None:
        """Into the ring; the oldest pieces make room, the last of them in part."""
        if len(text) > TAIL_BYTES:
            self.dropped += len(text) - TAIL_BYTES
            text = text[-TAIL_BYTES:]
        ring = self._ring
        if ring and ring[-1][0] == stream and len(ring[-1][1]) < GATHER_BYTES // 4:
            # Short pieces are joined, or a flood of single characters would hold a million tuples.
            before = ring.pop()[1]
            self._ring_size -= _size(before)
            text = before + text
        ring.append((stream, text))
        self._ring_size += _size(text)
        while self._ring_size > TAIL_BYTES:
            excess = self._ring_size - TAIL_BYTES
            oldest_stream, oldest = ring.popleft()
            size = _size(oldest)
            self._ring_size -= size
            rest = oldest[excess:] if size > excess else ""
            self.dropped += size - _size(rest)
            if rest:
                ring.appendleft((oldest_stream, rest))
                self._ring_size += _size(rest)


class Capture(io.TextIOBase):
    """Stands in for `sys.stdout` or `sys.stderr`. Text without a run goes to the descriptor."""

    def __init__(self, stream: str, fd: int, current: Callable[[], RunLog | None]) -> None:
        super().__init__()
        self.stream = stream
        self._fd = fd
        self._current = current
        self.buffer = _Bytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    def write(self, text: str, /) -> int:
        text.encode  # noqa: B018 - bytes are refused here, as by the real one
        if text:
            log = self._current()
            if log is None:
                self._raw(text)
            else:
                log.write(self.stream, text)
        return len(text)

    def flush(self) -> None:
        """Nothing to do: what is gathered goes out within moments, flush or no flush."""

    def close(self) -> None:
        """User code may close it; the next run needs it all the same."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return False

    def _raw(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._fd, text.encode("utf-8", "backslashreplace"))


class _Bytes(io.BufferedIOBase):
    """`sys.stdout.buffer`: bytes that are not UTF-8 are shown as escapes."""

    def __init__(self, text: Capture) -> None:
        super().__init__()
        self._text = text

    def write(self, data: object, /) -> int:
        raw = bytes(data)  # type: ignore[call-overload]
        self._text.write(raw.decode("utf-8", "backslashreplace"))
        return len(raw)

    def flush(self) -> None:
        """As in `Capture.flush`."""

    def close(self) -> None:
        """As in `Capture.close`."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._text.fileno()


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "backslashreplace"))
