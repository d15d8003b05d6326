"""When is a file finished? When two looks at least `settle` apart saw the same. Pure.

Compared are size, time of change, inode and the time of the last change of anything (ctime): a copy
that sets the old time back, or a file that has its final size from the start, still moves one of
them while it is being written. Looks are timed on a clock that never jumps.

What is known to have been taken is remembered as 16 bytes a file, for at most ``MAX_KNOWN`` files;
what is forgotten is asked of the database again, which is the truth. At most ``MAX_PENDING`` files
settle at a time; the others come with the next look, so that memory is bounded for any folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from suimon.triggers.listing import Seen

MAX_KNOWN: Final = 1_000_000
MAX_PENDING: Final = 50_000


class _Pending(NamedTuple):
    seen: Seen
    since: float


class Settling:
    """What one trigger's looks have seen so far."""

    def __init__(self, settle_s: float, order: str = "mtime", *, max_pending: int = MAX_PENDING):
        self.settle_s = settle_s
        self.more = False
        self._order = by_name if order == "name" else by_mtime
        self._max_pending = max_pending
        self._known: set[bytes] = set()
        self._met: set[bytes] = set()
        self._pending: dict[bytes, _Pending] = {}

    def sort(self, files: Iterable[Seen]) -> list[Seen]:
        """Take one look; returns files that nobody has asked the database about, in order."""
        self.more = False
        self._met = set()
        before, self._pending = self._pending, {}
        new: list[Seen] = []
        room = self._max_pending
        for seen in files:
            mark = mark_of(seen)
            if mark in self._known:
                self._met.add(mark)
                continue
            was = before.get(seen.path)
            if was is not None and was.seen == seen:
                self._pending[seen.path] = was
                continue
            new.append(seen)
            if len(new) > 2 * room:
                new = self._cut(new, room)
        return self._cut(new, max(1, room - len(self._pending)))

    def end(self, *, complete: bool) -> None:
        """The look is over: what it met no more need not be remembered, if it saw everything."""
        if complete:
            self._known = self._met
        if len(self._known) > MAX_KNOWN:
            self._known = set()
        self._met = set()

    def wait(self, seen: Seen, now: float) -> None:
        """It is not known: it settles from this look on."""
        self._pending[seen.path] = _Pending(seen, now)

    def learn(self, seen: Seen) -> None:
        """It was taken, here or elsewhere."""
        self._pending.pop(seen.path, None)
        mark = mark_of(seen)
        self._known.add(mark)
        self._met.add(mark)

    def ready(self, now: float) -> list[Seen]:
        """Those that have settled, in the order asked for."""
        found = [each.seen for each in self._pending.values() if now - each.since >= self.settle_s]
        return sorted(found, key=self._order)

    def next_s(self, now: float) -> float | None:
        """Seconds until the first of them may have settled; None: none is waiting."""
        if not self._pending:
            return 0.0 if self.more else None
        first = min(each.since for each in self._pending.values())
        return max(0.0, first + self.settle_s - now)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def _cut(self, new: list[Seen], room: int) -> list[Seen]:
        new.sort(key=self._order)
        self.more = self.more or len(new) > room
        return new[:room]


def by_mtime(seen: Seen) -> Any:
    return seen.mtime_ns, seen.path


def by_name(seen: Seen) -> Any:
    return seen.path


def mark_of(seen: Seen) -> bytes:
    text = b"%d %d %d %d %b\0%b" % (*seen[1:5], seen.tag.encode(), seen.path)
    return hashlib.sha256(text).digest()[:16]
