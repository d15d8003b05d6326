"""The door for people and programs: what they bring is checked here, before anything is stored.

Command line and client ask through these functions, so that both refuse the same things in the
same words: JSON that PostgreSQL could not keep, an input that lacks a field the graph reads, a key
that is no key. What is refused leaves no trace in the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from suimon.core import clock, door, jsonsafe
from suimon.core import labels as labelling
from suimon.core.states import TERMINAL, RunStatus
from suimon.db.connect import Connection
from suimon.errors import Conflict, InputRefused, RunNotFound
from suimon.run import lane, pressure, read, submit
from suimon.run.submit import Request, Submitted

#: Runs of one ``start_many``; whoever has more calls again.
MANY: Final = 100_000
FIRST_PAUSE_SECONDS: Final = 0.01
LAST_PAUSE_SECONDS: Final = 0.5


def start(
    conn: Connection,
    pipeline: str,
    value: Any,
    *,
    key: str | None = None,
    queue: bool = True,
    labels: Sequence[str] = (),
) -> Submitted:
    """Start one run. With ``queue=False`` a pipeline whose limit is used up is a Conflict."""
    goal = submit.target(conn, pipeline)
    graph = orjson.loads(goal.graph)
    _check_labels(graph, labels)
    request = _request(graph, value, key)
    if not queue and goal.lane_limit is not None:
        in_the_way = submit.in_the_way(conn, pipeline, _lane_of(goal, pipeline, value))
        # looked for after what is in the way: that may be this key's run, born at this moment
        if in_the_way is not None and not _known(conn, pipeline, key):
            run_id, status = in_the_way
            msg = f'pipeline "{pipeline}" has an unfinished run: {run_id} ({status})'
            hint = "Start it behind that one: --queue. Or look: suimon runs why " + run_id
            raise Conflict(msg, run_id=run_id, hint=hint)
    _check_room(conn, pipeline, [request])
    return submit.submit(conn, pipeline, [request], labels=labels)[0]


def _check_room(conn: Connection, pipeline: str, requests: Sequence[Request]) -> None:
    """What is large is refused while the store is full, unless its key has its run already."""
    large = [one for one in requests if len(one.input) > pressure.LARGE_BYTES]
    largest = max((len(one.input) for one in large), default=0)
    if pressure.refuses(conn, largest) and None in submit.existing(conn, pipeline, large):
        raise pressure.refusal(conn, largest)


def _lane_of(goal: submit.Target, pipeline: str, value: Any) -> str | None:
    """The lane of this very input, where the pipeline has one for each value of a field."""
    key = door.lane_key(orjson.loads(goal.graph), value)
    return None if key is None else f"{lane.pipeline_lane(pipeline)}:{key[:200]}"


def start_many(
    conn: Connection,
    pipeline: str,
    values: Sequence[Any],
    *,
    keys: Sequence[str | None] | None = None,
    labels: Sequence[str] = (),
) -> list[Submitted]:
    """Start many runs of one pipeline, in order; all inputs are checked before the first is
    stored.
    """
    if len(values) > MANY:
        msg = f"{len(values):,} runs at once; at most {MANY:,} are accepted"
        raise InputRefused(msg, path="$", hint="Submit them in several calls.")
    if keys is not None and len(keys) != len(values):
        msg = f"{len(values)} inputs and {len(keys)} keys"
        raise InputRefused(msg, path="keys", hint="Give one key for each input, or none at all.")
    goal = submit.target(conn, pipeline)
    graph = orjson.loads(goal.graph)
    _check_labels(graph, labels)
    named = keys if keys is not None else [None] * len(values)
    requests = [_request(graph, value, key) for value, key in zip(values, named, strict=True)]
    _check_room(conn, pipeline, requests)
    return submit.submit(conn, pipeline, requests, labels=labels)


def _check_labels(graph: dict[str, Any], labels: Sequence[str]) -> None:
    wrong = labelling.fault(labels)
    if wrong is None and labels:  # together with the pipeline's own
        wrong = labelling.fault(labelling.canonical([*graph.get("labels", ()), *labels]))
    if wrong is not None:
        msg = f"the labels {wrong}"
        raise InputRefused(msg, path="labels")


def wait(
    conn: Connection,
    run_id: str,
    *,
    timeout_s: float | None = None,
    each: Callable[[], None] | None = None,
) -> str | None:
    """The status with which a run ended, or None when the time is over; the run goes on then.

    ``each`` is called after every look. Looks come every 10 ms at first and every 500 ms at last.
    """
    give_up_at = None if timeout_s is None else clock.monotonic() + timeout_s
    pause = FIRST_PAUSE_SECONDS
    while True:  # bounded by give_up_at, or by the caller's patience
        row = conn.execute(read.SQL.status, {"id": run_id}).fetchone()
        if row is None:
            msg = f"there is no run {run_id}"
            raise RunNotFound(msg, hint="List them: suimon runs list")
        if RunStatus(row[0]) in TERMINAL:
            return str(row[0])
        if each is not None:
            each()
        left = pause if give_up_at is None else min(pause, give_up_at - clock.monotonic())
        if left <= 0:
            return None
        time.sleep(left)
        pause = min(pause * 1.3, LAST_PAUSE_SECONDS)


def _request(graph: dict[str, Any], value: Any, key: str | None) -> Request:
    text = jsonsafe.dumps(value, what="input")
    door.check_input(graph, value if isinstance(value, dict) else orjson.loads(text))
    return Request(text, None if key is None else _checked_key(key))


def _checked_key(key: str) -> str:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        size = -1
    if not 0 < size <= submit.KEY_BYTES or "\x00" in key:
        msg = "the idempotency key cannot be used"
        hint = f"1 to {submit.KEY_BYTES} bytes of UTF-8 without NUL; for more, take a hash."
        raise InputRefused(msg, path="idempotency_key", hint=hint)
    return key


def _known(conn: Connection, pipeline: str, key: str | None) -> bool:
    """Whether this key has its run already: then that run is the answer, and nothing is in the
    way.
    """
    if key is None:
        return False
    return submit.existing(conn, pipeline, [Request(b"{}", _checked_key(key))])[0] is not None
