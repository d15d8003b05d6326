"""The states of a run and the sixteen edges between them: the one source.

The schema holds the same table (``suimon.run_edges``) and refuses every other edge; a test proves
both equal. ``docs/states.md`` is made from here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class RunStatus(StrEnum):
    """Where a run is in its life. The names are the enum ``suimon.run_status``."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


TERMINAL: Final = frozenset(
    {RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.CANCELLED}
)

#: (from, to) -> what makes it happen. No other edge exists.
EDGES: Final[dict[tuple[RunStatus, RunStatus], str]] = {
    (RunStatus.QUEUED, RunStatus.RUNNING): "a worker claims it",
    (RunStatus.QUEUED, RunStatus.CANCELLED): "cancelled before it started",
    (RunStatus.QUEUED, RunStatus.TIMED_OUT): "its deadline passed in the queue",
    (RunStatus.RUNNING, RunStatus.SUCCEEDED): "its last step succeeded",
    (
        RunStatus.RUNNING,
        RunStatus.FAILED,
    ): "a step failed for good, or it was interrupted too often",
    (RunStatus.RUNNING, RunStatus.TIMED_OUT): "its last try timed out, or its deadline passed",
    (RunStatus.RUNNING, RunStatus.CANCELLED): "it was asked to stop and did",
    (
        RunStatus.RUNNING,
        RunStatus.WAITING,
    ): "parked: back-off, children, timer, signal, approval, limit",
    (RunStatus.RUNNING, RunStatus.QUEUED): "released, or its worker or slot died",
    (RunStatus.WAITING, RunStatus.QUEUED): "what it waited for has come",
    (RunStatus.WAITING, RunStatus.CANCELLED): "cancelled while it waited",
    (RunStatus.WAITING, RunStatus.TIMED_OUT): "its deadline passed while it waited",
    (RunStatus.SUCCEEDED, RunStatus.QUEUED): "re-merged after a retry below it",
    (RunStatus.FAILED, RunStatus.QUEUED): "an operator's retry",
    (RunStatus.TIMED_OUT, RunStatus.QUEUED): "an operator's retry",
    (RunStatus.CANCELLED, RunStatus.QUEUED): "an operator's retry",
}
