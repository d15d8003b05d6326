"""Why a run does not run: the one closed list.

A reason is stored on the row when the engine *parks* a run; for rows that merely stand in the queue
the SQL function ``suimon.reason_of`` derives it, so that a stopped pool costs no writes. A reason
is a word, or a word, a colon and the name of who holds it (``no_worker:gpu``). A pause is derived
and, on a run that was claimed before it was seen, stored.

Each says three things of itself: what is so, who holds the run, and what ends it. ``run/why.py``
fills in names, numbers and times where it knows them; a reason that it knows nothing more of is
told as it stands here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Reason:
    """``{name}`` is what stands behind the colon. ``stored``: on the row, by whoever parks it."""

    says: str
    held_by: str
    ends: str
    stored: bool = False

    @property
    def named(self) -> bool:
        """Whether a name stands behind the colon."""
        return "{name}" in self.says + self.held_by + self.ends


REASONS: Final[dict[str, Reason]] = {
    "retry": Reason(
        "its last try failed",
        "the pause before its next try",
        "that time has come",
        stored=True,
    ),
    "children": Reason(
        "it waits for its children",
        "its children",
        "they have ended",
        stored=True,
    ),
    "timer": Reason(
        "it waits for a time to come",
        "its own timer",
        "that time has come",
        stored=True,
    ),
    "signal": Reason(
        "it waits for the signal {name}",
        "whoever is to send it",
        "it is sent: suimon signal RUN {name}",
        stored=True,
    ),
    "approval": Reason(
        "it waits for a decision about {name}",
        "who is to decide",
        "somebody decides: suimon approvals list",
        stored=True,
    ),
    "cancelling": Reason(
        "it was asked to stop",
        "what is below it",
        "all of that has stopped",
        stored=True,
    ),
    "limit": Reason(
        "it waits for its turn at the destination {name}",
        "the limits of {name}",
        "its turn comes: suimon limits show {name}",
        stored=True,
    ),
    "held": Reason(
        "nobody may call the destination {name} now",
        "whoever holds {name}",
        "it is released, or its time has come: suimon limits show {name}",
        stored=True,
    ),
    "quota": Reason(
        "the quota {name} has nothing left",
        "the quota {name}",
        "it renews, or is raised: suimon quotas list",
        stored=True,
    ),
    "storage": Reason(
        "the payload store or the disk is nearly full",
        "the marks of the store",
        "there is room: suimon storage",
        stored=True,
    ),
    "unreadable": Reason(
        "what it reads lies in an object store that does not answer",
        "that store",
        "it answers; the run looks again soon",
        stored=True,
    ),
    "no_code": Reason(
        "no live worker of its pool has the function {name}",
        "the workers of its pool, whose code lacks it",
        "a worker with that code is started",
        stored=True,
    ),
    "pruning": Reason(
        "it has ended and is being removed",
        "its pipeline's keep",
        "it is gone",
        stored=True,
    ),
    "paused": Reason(
        "{name} is paused",
        "whoever paused it",
        "it is resumed: suimon paused",
    ),
    "lane_held": Reason(
        "run {name} failed and keeps the lane closed",
        "run {name}",
        "somebody retries, cancels or skips that run",
    ),
    "lane": Reason(
        "others of its lane are before it",
        "those of its lane that are admitted",
        "those before it have ended",
    ),
    "no_slot": Reason(
        "no slot of pool {name} is free for it",
        "the runs at work there",
        "one of them ends, or a worker is started: suimon worker PATH --pool {name}",
    ),
    "no_worker": Reason(
        "no worker of pool {name} is alive",
        "nobody",
        "one is started: suimon worker PATH --pool {name}",
    ),
}


def of(reason: str) -> Reason:
    """The entry of a stored or derived reason, with its name; an unknown word is a defect.

    >>> of("no_worker:gpu").says
    'no worker of pool gpu is alive'
    """
    word, _, name = reason.partition(":")
    found = REASONS[word]
    return Reason(
        found.says.format(name=name),
        found.held_by.format(name=name),
        found.ends.format(name=name),
        found.stored,
    )


def explain(reason: str) -> str:
    """What is so, and what ends it; for those who know nothing more.

    >>> explain("no_worker:gpu")
    'no worker of pool gpu is alive, until one is started: suimon worker PATH --pool gpu'
    """
    found = of(reason)
    return f"{found.says}, until {found.ends}"


def label(reason: str) -> tuple[str, str]:
    """(word, name) for counting: a name that is a run's id is left out.

    >>> label("limit:crm"), label("lane_held:0199"), label("retry")
    (('limit', 'crm'), ('lane_held', ''), ('retry', ''))
    """
    word, _, name = reason.partition(":")
    return word, "" if word == "lane_held" else name
