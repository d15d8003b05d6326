"""The one place that reads time.

Time is an input everywhere else: a function that needs it takes it as an argument or calls one of
these, and a test moves them with `moved`. Which clock answers which question:

    now()        "what does the wall say": shown to people, written into records. May jump.
    monotonic()  "how long did it take here": durations inside one process. Never jumps back.
    boottime()   "how long was nobody here": counts while the machine sleeps, so a worker that was
                 suspended sees that it was away. What bounds a claim's life is measured with it.

Decisions between machines are made on the database's clock or on counters, never on these.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

_offset_seconds = 0.0


def now() -> datetime:
    """The current instant, in UTC."""
    return datetime.now(UTC) + timedelta(seconds=_offset_seconds)


def monotonic() -> float:
    """Seconds on a clock that never goes back; only differences mean something."""
    return time.monotonic() + _offset_seconds


def monotonic_ns() -> int:
    """The same as `monotonic`, in nanoseconds, for short spans."""
    return time.monotonic_ns() + int(_offset_seconds * 1_000_000_000)


def boottime() -> float:
    """Seconds since this machine started, sleep included; only differences mean something."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) + _offset_seconds


def boottime_ns() -> int:
    """The same as `boottime`, in nanoseconds, for stamps that processes of one machine share."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) + int(_offset_seconds * 1_000_000_000)


@contextmanager
def moved(seconds: float) -> Iterator[None]:
    """All clocks of this process run `seconds` ahead inside the block. For tests."""
    global _offset_seconds
    before = _offset_seconds
    _offset_seconds = before + seconds
    try:
        yield
    finally:
        _offset_seconds = before
