"""Who is dead? The judgement of a rescuer, without any clock of another machine.

A worker is judged only by what this watcher has seen itself: the same beat at looks that span three
of that worker's own intervals, with every look in between answered in time. One late or failed look
and everything seen is forgotten: a restart, a failover or a stall of the database makes every beat
look old, and must not start a mass rescue. Pure: time comes in as an argument (seconds on a clock
that counts sleep).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from suimon.run.rescue import Beat

#: Intervals without a new beat after which a worker is taken for dead.
SILENT_INTERVALS: Final = 3


@dataclass(slots=True)
class Watch:
    """One watcher's memory. It looks every ``interval_s``; a look after twice that is late."""

    interval_s: float
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)
    _looked_at: float | None = None

    def forget(self) -> None:
        """A look failed or came late: nothing seen before proves anything."""
        self._seen.clear()
        self._looked_at = None

    def look(
        self, sent_at: float, answered_at: float, beats: Iterable[Beat]
    ) -> list[tuple[int, int]]:
        """Take one look; returns (worker, beat) of those to be buried at that very beat."""
        late = answered_at - sent_at > self.interval_s
        gap = self._looked_at is not None and sent_at - self._looked_at > 2 * self.interval_s
        if late or gap:
            self.forget()
        self._looked_at = sent_at
        suspects: list[tuple[int, int]] = []
        alive: dict[int, tuple[int, float]] = {}
        for beat in beats:
            seen = self._seen.get(beat.worker)
            since = seen[1] if seen is not None and seen[0] == beat.beat else sent_at
            alive[beat.worker] = (beat.beat, since)
            silent_s = SILENT_INTERVALS * max(beat.beat_ms / 1000, self.interval_s)
            if not beat.mine and sent_at - since >= silent_s:
                suspects.append((beat.worker, beat.beat))
        self._seen = alive
        return suspects
