"""Errors that nobody raised: what the engine itself writes into a run, a step or a try.

A run's `error` is `{type, message, ...}`. What user code raised keeps its own type; these are the
engine's words for ends that no code was there to raise. Those with a code are stable; scripts and
documents may rely on them, as on the codes of `suimon/errors.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Failure:
    """What one stored type means; `code` is None where the type says enough."""

    code: str | None
    about: str


#: type → what it means.
STORED: Final[dict[str, Failure]] = {
    "Cancelled": Failure(None, "it was asked to stop, and stopped"),
    "ChildEnded": Failure(None, "the one child that it started ended badly, without an error"),
    "DeadlinePassed": Failure(None, "its `deadline`, which is for all tries together, has passed"),
    "Interrupted": Failure(
        None, "of a try: its worker or slot died while it may have been at work"
    ),
    "InternalError": Failure(
        "SUI-5005", "a defect of the engine ended this run; the log says more"
    ),
    "MemoryLimit": Failure(
        None, "its slot used more memory than the worker allows; it may be retried"
    ),
    "MergeFailed": Failure("SUI-5003", "more children ended badly than the merge tolerates"),
    "NotApproved": Failure(None, "an approval was refused, or nobody decided in time"),
    "NotStored": Failure(
        "SUI-4005", "PostgreSQL refused to store the result; the run failed alone"
    ),
    "Poisoned": Failure(
        "SUI-5004", "its worker or slot died too often while it was there; not retried"
    ),
    "SignalTimedOut": Failure(None, "the signal that it waited for did not come in time"),
    "StepFailed": Failure(None, "a step ended badly and left no error of its own"),
    "TimedOut": Failure(None, "a try took longer than its `timeout`, and its slot was ended"),
    "TimeoutError": Failure(
        None, "an `async def` task took longer than its `timeout`, and was cancelled"
    ),
    "UnknownDestination": Failure(
        "SUI-3006", "it calls a destination that is not declared, or not any more"
    ),
}
