"""What a run may do next, as data: the planner's answers and the records it reads.

Execute   a TASK: call the function in a slot, record its result as the step
Record    a READ that is used as a value: record this handle as the step, no slot needed
Spawn     a SPAWNER: read the source in a slot, create the children, seal
Merge     park until the fan-out has settled, then record the verdict and the result
Wait      park until a timer, an instant or a signal
Approve   park until people have decided
Start     one run of another pipeline: park until it has ended, or only note its id
Skip      record these steps as skipped, all at once
Finish    the run has succeeded with this output
Fail      the run has failed, because of this vertex
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

#: A step in one of these states is over; anything else is still being worked on.
StepStatus = Literal["succeeded", "failed", "timed_out", "cancelled", "skipped", "open", "deferred"]
BAD: Final = ("failed", "timed_out", "cancelled")


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The stored record of one vertex in one run. `open`: begun or waiting;
    `deferred`: a spawner whose list found no room in the store.
    """

    status: StepStatus
    output: Any = None
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ListSource:
    """The items stand in the run already."""

    items: list[Any]


@dataclass(frozen=True, slots=True)
class ReadSource:
    """The items are the rows of a file, streamed in the slot."""

    path: str
    format: str | None
    options: Mapping[str, Any]
    #: The version that started the run (suimon/read/versions.py), and whether the author wrote the
    #: path himself: one that came with an input may not lead everywhere.
    version: str | None = None
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class TaskSource:
    """The items come from a generator task, streamed in the slot."""

    task: str
    inputs: dict[str, Any]
    config: Mapping[str, Any]
    specials: list[list[Any]]


Source = ListSource | ReadSource | TaskSource


@dataclass(frozen=True, slots=True)
class Execute:
    vertex: str
    task: str
    inputs: dict[str, Any]
    config: Mapping[str, Any]
    specials: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Record:
    vertex: str
    output: Any


@dataclass(frozen=True, slots=True)
class Spawn:
    vertex: str
    source: Source
    shared: dict[str, Any]
    config: Mapping[str, Any]
    specials: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Merge:
    """`vertex` is the step's id; for a merge that nobody wrote it is `<spawner>.merge`."""

    vertex: str
    spawner: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wait:
    """Exactly one of `timer_s`, `until` (an ISO instant in UTC) and `signal`.

    `timeout_s` goes with a signal. The output is `{}`, or the signal's data.
    """

    vertex: str
    timer_s: float | None = None
    until: str | None = None
    signal: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Approve:
    """Ask people. When it is not `required` the output is `NOT_REQUIRED`, at once."""

    vertex: str
    show: Any
    required: bool
    config: Mapping[str, Any]


#: The output of an approval that nobody had to give.
NOT_REQUIRED: Final[Mapping[str, Any]] = {
    "approved": True,
    "decision": "not_required",
    "by": None,
    "at": None,
    "comment": None,
}


@dataclass(frozen=True, slots=True)
class Start:
    """One run of `pipeline`. The output is its output, or with `wait=False` `{"run_id": ...}`."""

    vertex: str
    pipeline: str
    input: Any
    wait: bool
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Skip:
    """Steps whose condition is false, and those that refer to them."""

    vertices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    output: Any


@dataclass(frozen=True, slots=True)
class Fail:
    error: Mapping[str, Any]
    vertex: str | None
    status: Literal["failed", "timed_out", "cancelled"] = "failed"


Action = Execute | Record | Spawn | Merge | Finish | Fail
NextAction = Action | Wait | Approve | Start | Skip
