"""What turns at destinations are made of: places, the right to call, and who asks for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suimon.worker.held import Held


@dataclass(slots=True)
class Lease:
    """A place among the calls at once. ``until``: a call may begin before; then it is renewed."""

    token: int
    until: float
    expires: float
    run: str | None = None
    told: str | None = None  # the run that the database knows
    since: float = 0.0  # in use since, or idle since
    used_until: float = math.inf  # a call that takes longer has failed, whatever its slot says
    free_at: float = 0.0

    def use(self, run: str, *, now: float) -> None:
        """A call begins."""
        self.run, self.since, self.used_until = run, now, math.inf


@dataclass(slots=True)
class Turn:
    """The right to call, of one try; ``lease`` None: under another turn, or nothing to hold."""

    number: int
    name: str
    token: int
    lease: Lease | None
    ends_by: float = math.inf


@dataclass(slots=True)
class Waiter:
    """Who asks: a run that is ready for its slot (no question), or code in a slot."""

    held: Held
    token: int
    since: float
    places: bool
    question: int | None = None
    under: Turn | None = None
    brief: bool = False  # one call, which ends by its timeout

    @property
    def flow(self) -> str:
        """Its fan-out, or its pipeline."""
        run = self.held.run
        return run.pipeline if run.fanout_id is None else str(run.fanout_id)
