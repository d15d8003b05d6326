"""Going silent without missing anybody.

A submitter notifies only when it sees an idle worker, and it looks before it commits: so a worker
that has just said "idle" may have been missed. Therefore: commit the idle flag, take a transaction
id as the mark, and keep trying (3 ms, doubling to 1 s) until no transaction below the mark is open;
then one last claim without the floor, and silence. Whoever could have missed the flag holds an id
below the mark.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_SECONDS: Final = 0.003
LAST_PAUSE_SECONDS: Final = 1.0
#: Idle workers that were not named look after this long: the named one may be dead.
UNNAMED_SECONDS: Final = 1.0


class State(enum.Enum):
    """HUNGRY: claims whenever there is room. PROBING: nothing was there; proving it. SILENT."""

    HUNGRY = "hungry"
    PROBING = "probing"
    SILENT = "silent"


@dataclass(slots=True)
class Idle:
    """Where one worker stands; pure but for the times it is given (seconds)."""

    state: State = State.HUNGRY
    mark: int | None = None
    next_at: float = 0.0
    pause_s: float = FIRST_PAUSE_SECONDS
    flagged: bool = False
    flagged_off_due: bool = False
    look_at: float | None = None
    unfloored: bool = False

    def wake(self) -> None:
        """Somebody said that there is work."""
        self.state = State.HUNGRY
        self.unfloored = True
        self.look_at = None

    def look_later(self, now: float) -> None:
        """Another worker was named; look once after a second (coalesced)."""
        if self.state is State.SILENT and self.look_at is None:
            self.look_at = now + UNNAMED_SECONDS

    def due(self, now: float) -> bool:
        """Whether the look that was armed has come."""
        if self.look_at is not None and now >= self.look_at:
            self.wake()
            return True
        return False

    def nothing_found(self, now: float) -> None:
        """An un-floored claim came back empty: begin to prove it."""
        self.state = State.PROBING
        self.mark = None
        self.pause_s = FIRST_PAUSE_SECONDS
        self.next_at = now

    def probed(self, now: float, *, found: bool, safe: bool) -> None:
        """A probe's answer; ``safe`` was true before its claim."""
        if found:
            self.wake()
        elif safe:
            self.state = State.SILENT
        else:
            self.next_at = now + self.pause_s
            self.pause_s = min(LAST_PAUSE_SECONDS, self.pause_s * 2)
