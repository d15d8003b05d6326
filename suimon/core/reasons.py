"""Why a run does not run: the one closed list.

A reason is stored on the row when the engine *parks* a run; for rows that merely stand in the queue
the SQL function ``suimon.reason_of`` derives it, so that a stopped pool costs no writes. A reason
is a word, or a word, a colon and the name of who holds it (``no_worker:gpu``). A pause is derived
and, on a run that was claimed before it was seen, stored.
"""

from __future__ import annotations

from typing import Final

#: Reason -> the sentence for people; ``{name}`` is what stands behind the colon.
STORED: Final[dict[str, str]] = {
    "retry": "its last try failed; it waits for the next one",
    "children": "it waits for its children",
    "timer": "it waits for a time to come",
    "signal": "it waits for the signal {name}; send it: suimon signal RUN {name}",
    "approval": "it waits for somebody to decide {name}; see: suimon approvals list",
    "cancelling": "it was asked to stop and waits until all below it have stopped",
    "limit": "it waits for its turn at the destination {name}; see: suimon limits show {name}",
    "unreadable": "what it reads lies in an object store that does not answer; it looks again soon",
    "held": "nobody may call the destination {name} now; see: suimon limits show {name}",
    "quota": "the quota {name} has nothing left; see: suimon quotas list",
    "storage": "the payload store or the disk is nearly full; see: suimon storage",
    "pruning": "it has ended and is being removed, as its pipeline's keep says",
    "no_code": "no live worker of its pool has the function {name}; start a worker with that code",
}

DERIVED: Final[dict[str, str]] = {
    "lane_held": "run {name} failed and keeps the lane closed; retry, cancel or skip it",
    "paused": "{name} is paused; who paused it, and how it goes on: suimon paused",
    "lane": "others of its lane are before it",
    "no_slot": "all slots of pool {name} are busy; it is next in order",
    "no_worker": "no worker of pool {name} is alive; start one: suimon worker PATH --pool {name}",
}

ALL: Final[dict[str, str]] = {**STORED, **DERIVED}


def explain(reason: str) -> str:
    """The sentence for a stored or derived reason; a word that is not in the list is a defect.

    >>> explain("no_worker:gpu")
    'no worker of pool gpu is alive; start one: suimon worker PATH --pool gpu'
    """
    word, _, name = reason.partition(":")
    return ALL[word].format(name=name)
