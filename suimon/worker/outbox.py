"""What a worker has to say and has not said yet: the records of its next batch.

Written only by the main thread. A record is put in once and leaves with a batch; a batch that could
not be sent is put back in front. Bound: what a worker holds (at most some thousand runs), and 1 MB
of log text, after which a batch is due.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from suimon.core import clock
from suimon.errors import StoreUnavailable
from suimon.run import rescue
from suimon.run.finish import Again, Ended
from suimon.run.step import LogText, Step
from suimon.worker.batch import Batch
from suimon.worker.held import Held

log = logging.getLogger("suimon.worker")

LOG_BYTES: Final = 1_000_000
LOG_SECONDS: Final = 0.5
#: When a run looks again whose object store did not answer; no try is spent on that.
UNREADABLE_SECONDS: Final = 15.0
#: Longer text is stored in pieces: the driver needs some 90 bytes for each character it escapes.
LOG_PIECE_CHARS: Final = 64 * 1024


@dataclass(slots=True)
class Outbox:
    """The records of the next batch; ``lanes`` and ``fanouts`` are those its runs touch."""

    ended: list[Ended] = field(default_factory=list)
    again: list[Again] = field(default_factory=list)
    progress: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    later: list[tuple[str, int, float, str]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    logs: list[LogText] = field(default_factory=list)
    interrupted: list[tuple[str, int | None]] = field(default_factory=list)
    alone: int = rescue.ALONE_IN_SLOT
    released: list[tuple[str, int]] = field(default_factory=list)
    held_back: list[tuple[str, int, str]] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    lanes: set[str] = field(default_factory=set)
    fanouts: set[int] = field(default_factory=set)
    since: float = 0.0
    log_bytes: int = 0

    @property
    def urgent(self) -> int:
        """Records that somebody waits for; log text alone is not urgent."""
        return (
            len(self.ended) + len(self.later) + len(self.again) + len(self.steps)
            + len(self.interrupted) + len(self.released) + len(self.held_back)
        )  # fmt: skip

    @property
    def frees(self) -> int:
        """Records of runs that leave this worker."""
        return self.urgent - len(self.steps)

    def logs_due(self, now: float) -> bool:
        """Whether log text alone is worth a batch now."""
        if not self.logs and not self.progress:
            return False
        return self.log_bytes > LOG_BYTES or now - self.since > LOG_SECONDS

    def batch(self, worker: int, worker_name: str) -> Batch:
        """The records as a batch."""
        return Batch(
            worker, worker_name, self.ended, self.again, self.steps, self.logs, self.interrupted,
            self.alone, self.released, self.held_back, self.lanes, self.fanouts,
            begun=self.begun, later=self.later,
            progress=[(*fence, *said) for fence, said in self.progress.items()],
        )  # fmt: skip

    def put_back(self, batch: Batch) -> None:
        """A batch was refused as a whole: its records come first again."""
        self.ended[:0], self.again[:0], self.steps[:0] = batch.ended, batch.again, batch.steps
        self.interrupted[:0], self.released[:0] = batch.interrupted, batch.released
        self.held_back[:0], self.later[:0] = batch.held_back, batch.later
        self.begun[:0], self.logs[:0] = batch.begun, batch.logs
        self.lanes |= batch.lanes
        self.fanouts |= batch.fanouts

    # ------------------------------------------------------------------ records

    def end(self, ended: Ended) -> None:
        """A run has ended."""
        self._touch(ended.lane, ended.fanout_id)
        self.ended.append(ended)

    def end_failed(self, held: Held, status: str, error: Any) -> None:
        """A run has ended badly, with this error as JSON value."""
        run, text = held.run, orjson.dumps(error).decode()
        self.end(Ended(run.id, run.claim_no, status, "", text, 0, run.fanout_id, run.lane))

    def end_cancelled(self, held: Held) -> None:
        """A run was asked to stop, and has."""
        self.end_failed(
            held, "cancelled", {"type": "Cancelled", "message": "asked to stop, and stopped"}
        )

    def try_again(self, again: Again) -> None:
        """A try failed; another comes later."""
        self._touch(None, None)
        self.again.append(again)

    def park_later(self, held: Held, delay_s: float, reason: str = "timer") -> None:
        """A task asked to be called again later, or waits for its turn: no try is spent."""
        self._touch(None, None)
        self.later.append((*held.fence, delay_s, reason))

    def could_not(self, held: Held, error: Exception) -> None:
        """The database could not do what this run needs: it ends failed, and the log says why.

        What lies in an object store that does not answer is waited for, at the cost of no try.
        """
        if isinstance(error, StoreUnavailable) and not held.cancel:
            self.park_unreadable(held)
            return
        log.error("run %s: %s: %s", held.run.id, type(error).__name__, error)
        what = {"type": type(error).__name__, "message": str(error)[:2000]}
        self.end_failed(held, "failed", what)

    def park_unreadable(self, held: Held) -> None:
        """What it needs lies in an object store that does not answer: it looks again later."""
        self.park_later(held, UNREADABLE_SECONDS, "unreadable")

    def step(self, step: Step) -> None:
        """A vertex has ended."""
        self._touch(None, None)
        self.steps.append(step)

    def hold_back(self, held: Held, reason: str) -> None:
        """This worker's code has not what the run needs, or the run's pipeline is paused."""
        self._touch(held.run.lane, None)
        self.held_back.append((*held.fence, reason))
        if held.run.begun:
            self.begun.append(held.run.id)

    def release(self, fence: tuple[str, int], *, begun: bool = False) -> None:
        """It never began here: back to the queue, uncounted. ``begun``: by an earlier claim."""
        self._touch(None, None)
        self.released.append(fence)
        if begun:
            self.begun.append(fence[0])

    def interrupt(self, held: Held, *, alone: int = rescue.ALONE_IN_SLOT) -> None:
        """Its slot died while it may have been at work."""
        self._touch(held.run.lane, held.run.fanout_id)
        self.interrupted.append(held.fence)
        self.alone = max(self.alone, alone)

    def say_progress(self, held: Held, done: int, total: int) -> None:
        """How far a run says it is; only the last word counts."""
        if not self.urgent and not self.logs and not self.progress:
            self.since = clock.monotonic()
        self.progress[held.fence] = (done, total)

    def log(self, held: Held, stream: str, text: str) -> None:
        """A piece of log text of the try under way."""
        if not self.urgent and not self.logs:
            self.since = clock.monotonic()
        for start in range(0, len(text), LOG_PIECE_CHARS):
            piece = text[start : start + LOG_PIECE_CHARS]
            self.logs.append(LogText(held.run.id, held.run.claim_no, stream, piece))
        self.log_bytes += len(text)

    def _touch(self, lane: str | None, fanout_id: int | None) -> None:
        if not self.urgent:
            self.since = clock.monotonic()
        if lane is not None:
            self.lanes.add(lane)
        if fanout_id is not None:
            self.fanouts.add(fanout_id)
