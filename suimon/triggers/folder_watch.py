"""The rounds of one FILE trigger, without threads: what a look at the folder leads to, and when the
next one is due.

A listing is due after a hint, when something has settled, and else every 30 seconds where hints
come, or every `interval` where none do; never more often than ten times what a listing takes. Files
that are to be moved are looked at while runs of this trigger are open, more and more slowly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from suimon.core import clock, words
from suimon.db.connect import Connection
from suimon.triggers import file_moves, file_rules, files, listing, mounts, stores
from suimon.triggers.fire import Trigger
from suimon.triggers.hints import Hints
from suimon.triggers.listing import Report, Seen
from suimon.triggers.settling import Settling

log = logging.getLogger("suimon.files")

#: Between two listings where the kernel gives hints.
SLOW_SECONDS: Final = 30.0
#: A listing may take this part of the time at most; after a hint, half of it.
SHARE: Final = 10
#: A file whose content cannot be read is tried again after that time.
AGAIN_SECONDS: Final = 10.0
WARN_AGAIN_SECONDS: Final = 3600.0
MAX_WARNED: Final = 1_000
_FIRST_MOVES_S: Final = 0.5
_LAST_MOVES_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Tools:
    """What a round needs: a connection for a moment, somebody to wake, this machine's name."""

    use: Callable[[], AbstractContextManager[Connection]]
    wake: Callable[[], None]
    host: str


class FolderWatch:
    """One trigger as one process watches it."""

    def __init__(self, trigger: Trigger, tools: Tools) -> None:
        self.trigger = trigger
        self._tools = tools
        self._bucket: stores.Bucket | None = None
        if file_rules.is_address(str(trigger.spec["path"])):
            self._bucket = stores.bucket(trigger.spec)
            self.rules = self._bucket.rules
        else:
            self.rules = file_rules.of_spec(trigger.spec)
        self._settling = Settling(self.rules.settle_s, self.rules.order)
        self._hints = Hints(tools.wake)
        self._inodes = True
        self._watched = False
        self._cost_s = 0.0
        self._listed_at: float | None = None
        self._list_at = float("-inf")
        self._moves = self.rules.done is not None or self.rules.failed is not None
        self._moves_at = float("-inf")
        self._moves_pause = _FIRST_MOVES_S
        self._note = trigger.note
        self._report = Report()
        self._move_troubles: dict[str, str] = {}
        self._warned: dict[str, float] = {}

    def close(self) -> None:
        self._hints.close()

    def calm_s(self, now: float) -> float:
        """A hint is followed at once, but a folder where much happens is not listed always."""
        if self._listed_at is None:
            return 0.0
        return max(0.0, self._listed_at + max(0.1, self._cost_s * SHARE / 2) - now)

    def round(self, *, hinted: bool = False, nudged: bool = False) -> float:
        """Do what is due; in how many seconds the next round is."""
        now = clock.monotonic()
        if hinted or now >= self._list_at:
            self._list()
        if self._moves and (nudged or clock.monotonic() >= self._moves_at):
            self._move()
        self._tell()
        now = clock.monotonic()
        due = min(self._list_at, self._moves_at if self._moves else float("inf"))
        return max(0.0, due - now)

    # ------------------------------------------------------------------ listing

    def _list(self) -> None:
        began = clock.monotonic()
        report = Report()
        new = [s for s in self._settling.sort(self._look(report)) if self._readable(s, report)]
        self._cost_s = clock.monotonic() - began
        with_others = self._watch(report)
        for start in range(0, len(new), files.BATCH):
            batch = new[start : start + files.BATCH]
            with self._tools.use() as conn:
                known = files.known(conn, self.trigger, batch, by_content=self.rules.by_content)
            for seen in batch:
                if seen in known:
                    self._settling.learn(seen)
                else:
                    self._settling.wait(seen, began)
        self._settling.end(complete=report.complete)
        ready = self._settling.ready(began)
        for start in range(0, len(ready), files.BATCH):
            self._take(ready[start : start + files.BATCH], report)
        self._report = report
        self._warn(report)
        now = clock.monotonic()
        self._listed_at = now
        self._list_at = now + self._pause_s(now, at_once=with_others)

    def _readable(self, seen: Seen, report: Report) -> bool:
        if self._bucket is not None or listing.is_readable(seen.path):
            return True
        report.trouble(seen.path, listing.UNREADABLE)
        return False

    def _look(self, report: Report) -> Iterator[Seen]:
        if self._bucket is not None:
            return self._bucket.look(report)
        kind = mounts.kind_of(self.rules.base)
        self._inodes = mounts.has_inodes(kind)
        told = self.rules.mode == "auto" and mounts.is_told(kind)
        self._watched = told or self.rules.mode == "watch"
        return listing.look(self.rules, report, inodes=self._inodes)

    def _watch(self, report: Report) -> bool:
        """Watch the folders that were listed. True: newly watched, so they are listed once more."""
        if not self._watched:
            return False
        return self._hints.watch(report.folders)

    def _pause_s(self, now: float, *, at_once: bool) -> float:
        if at_once:
            return 0.0
        hints = self._watched and self._hints.alive
        interval = max(self.rules.interval_s, self._cost_s * SHARE)
        pause = max(SLOW_SECONDS, interval) if hints else interval
        settles = self._settling.next_s(now)
        if settles is None:
            return pause
        return min(pause, max(settles + 0.01, self._cost_s))

    # ------------------------------------------------------------------ taking

    def _take(self, ready: Sequence[Seen], report: Report) -> None:
        """Store one batch of files that have settled."""
        found: list[tuple[Seen, str]] = []
        for seen in ready:
            key = self._key(seen, report)
            if key is not None:
                found.append((seen, key))
            else:
                self._settling.wait(seen, clock.monotonic() + AGAIN_SECONDS)
        if not found:
            return
        with self._tools.use() as conn:
            new = files.take(conn, self.trigger, self.rules, found, host=self._tools.host)
        for seen, _ in found:
            self._settling.learn(seen)
        if new:
            came = words.count(new, "file")
            log.info("%s: %s arrived for %s", self.trigger.name, came, self.trigger.pipeline)
            self._moves_at, self._moves_pause = float("-inf"), _FIRST_MOVES_S

    def _key(self, seen: Seen, report: Report) -> str | None:
        """The key of its run; None: it cannot be read, or is another one by now."""
        if not self.rules.by_content:
            return seen.version
        try:
            make = self._bucket.content_key if self._bucket is not None else files.content_key
            key = make(seen)
        except Exception as error:  # noqa: BLE001 - OSError, or whatever a store's client raises
            report.trouble(seen.path, getattr(error, "strerror", None) or str(error))
            return None
        return key

    # ------------------------------------------------------------------ moving

    def _move(self) -> None:
        with self._tools.use() as conn:
            left, troubles = file_moves.round(conn, self.trigger, self.rules, self._tools.host)
        self._move_troubles = troubles
        if not left:
            self._moves_at, self._moves_pause = float("inf"), _FIRST_MOVES_S
            return
        self._moves_at = clock.monotonic() + self._moves_pause
        self._moves_pause = min(self._moves_pause * 2, _LAST_MOVES_S)

    # ------------------------------------------------------------------ telling

    def _tell(self) -> None:
        """The trigger's note says what hinders it; written when it has changed."""
        troubles = {**self._report.troubles, **self._move_troubles}
        lines = [f"{path}: {reason}" for path, reason in sorted(troubles.items())[:10]]
        if len(troubles) > 10:
            lines.append(f"and {len(troubles) - 10} more")
        empty = sorted(p for p, why in self._report.left_out.items() if why == listing.EMPTY)
        if empty:
            more = f" and {len(empty) - 3} more" if len(empty) > 3 else ""
            lines.append(f"empty, so skipped: {', '.join(empty[:3])}{more}")
        if self._watched and self._hints.problem:
            lines.append(f"not watched, only listed: {self._hints.problem}")
        note = "; ".join(lines)[: files.NOTE_CHARACTERS] or None
        if note != self._note:
            with self._tools.use() as conn:
                files.set_note(conn, self.trigger, note)
            self._note = note

    def _warn(self, report: Report) -> None:
        """Each path at most once an hour, or a folder full of them would fill the log."""
        now = clock.monotonic()
        for path, reason in report.troubles.items():
            if now - self._warned.get(path, float("-inf")) < WARN_AGAIN_SECONDS:
                continue
            if len(self._warned) >= MAX_WARNED:
                self._warned.clear()
            self._warned[path] = now
            log.warning(
                '%s of %s: "%s" is not taken: %s',
                self.trigger.name, self.trigger.pipeline, path, reason,
            )  # fmt: skip
