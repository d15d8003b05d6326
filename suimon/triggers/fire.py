"""All doors end here: what arrived becomes a run, or waits, or is a dead letter.

``arrive`` stores deliveries, ``deliver`` turns the oldest of one trigger into runs. Both are
idempotent: a key has one delivery and one run, by two constraints of the database. ``start_now`` is
for calls that want an answer (webhooks): delivery and run in one transaction.

Deliveries of one trigger keep their order: see ``deliver``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from suimon.core import door
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, QueueFull, SuimonError
from suimon.run import pause as pauses
from suimon.run import submit
from suimon.run.finish import INLINE_BYTES
from suimon.run.submit import Born, Request
from suimon.store import payload
from suimon.store.payload import Kept

SQL = statements(__package__, "fire.sql")

#: Deliveries of one statement, of ``arrive`` and of ``deliver`` alike.
BATCH: Final = 500
#: Calls of one trigger that are kept behind a pause or behind older ones; the next is refused.
WAITING_MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class Trigger:
    """A row of ``suimon.triggers``."""

    id: int
    pipeline: str
    name: str
    kind: str
    spec: dict[str, Any]
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """One thing that arrived. ``input`` is canonical JSON, ``source`` what people call it."""

    input: bytes
    source: str
    key: str | None = None
    detail: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a call; ``reason``: why there is no run yet."""

    delivery_id: str
    run_id: str | None
    duplicate: bool = False
    same_input: bool = True
    reason: str | None = None


class _RaceLostError(Exception):
    """A delivery with this key was stored at the same moment."""


def live(conn: Connection, kinds: Sequence[str]) -> list[Trigger]:
    """The triggers of these kinds that are part of a current graph."""
    return [Trigger(*row) for row in conn.execute(SQL.live, {"kinds": list(kinds)}).fetchall()]


def trigger(conn: Connection, trigger_id: int) -> Trigger | None:
    row = conn.execute(SQL.by_id, {"trigger": trigger_id}).fetchone()
    return None if row is None else Trigger(*row)


# ------------------------------------------------------------------------------------- arrival


def arrive(conn: Connection, to: Trigger, arrivals: Sequence[Arrival]) -> int:
    """Store what arrived, in its order; known keys pass by. Returns how many are new."""
    new = 0
    for start in range(0, len(arrivals), BATCH):
        batch = arrivals[start : start + BATCH]
        large = [a.input for a in batch if len(a.input) > INLINE_BYTES]

        def act(kept: Kept, batch: Sequence[Arrival] = batch) -> int:
            return retrying(lambda: _arrive(conn, to, batch, kept))

        new += payload.keeping(conn, large, act)
    return new


def _arrive(conn: Connection, to: Trigger, batch: Sequence[Arrival], kept: Kept) -> int:
    params = {
        "trigger": to.id,
        "pipeline": to.pipeline,
        "ids": sorted(submit.uuid7() for _ in batch),
        "keys": [a.key for a in batch],
        "sources": [a.source[:500] for a in batch],
        "inputs": [a.input.decode() for a in batch],
        "details": [None if a.detail is None else _text(a.detail) for a in batch],
        "contents": [kept.get(a.input) for a in batch] if kept else None,
    }
    with transaction(conn):
        kept.write(conn)
        stored = len(conn.execute(SQL.arrive, params).fetchall())
        if stored:
            conn.execute(SQL.tell_keepers)
    return stored


def start_now(conn: Connection, to: Trigger, arrival: Arrival) -> Answer:
    """The delivery and its run, in one transaction.

    Behind a pause, or behind an older delivery that waits, it waits too and there is no run yet.
    Raises QueueFull (QuotaExceeded too) and InputRefused: nothing is stored then.
    """
    goal = submit.target(conn, to.pipeline)
    door.check_input(orjson.loads(goal.graph), orjson.loads(arrival.input))
    pauses.check(conn, to.pipeline)

    large = [arrival.input] if len(arrival.input) > INLINE_BYTES else []

    def act(kept: Kept) -> tuple[Answer, list[Born]]:
        with transaction(conn):
            return _start_now(conn, to, arrival, kept)

    for _ in range(3):  # who loses a race finds the winner's delivery the next time
        try:
            answer, born = payload.keeping(conn, large, lambda kept: retrying(lambda: act(kept)))
        except _RaceLostError:
            continue
        submit.follow(conn, to.pipeline, born)
        return answer
    msg = f'the delivery "{arrival.source}" met another one with its key three times'
    raise Conflict(msg, hint="Send it again.")


def _start_now(
    conn: Connection, to: Trigger, arrival: Arrival, kept: Kept
) -> tuple[Answer, list[Born]]:
    request = Request(arrival.input, arrival.key)
    delivery = submit.uuid7()
    if arrival.key is not None and (known := _known(conn, to, arrival)) is not None:
        return known, []
    pause = conn.execute(SQL.pause_of, {"trigger": to.id}).fetchone()
    why = f"paused:{pause[0]}" if pause and pause[0] else None
    if why is None and conn.execute(SQL.any_waiting, {"trigger": to.id}).fetchone():
        refused = submit.no_room(conn, to.pipeline)
        if refused is not None:  # or it would take call after call while the oldest waits
            raise refused
        why = "older deliveries wait"
    if why is not None:
        if conn.execute(SQL.many_waiting, {"trigger": to.id, "most": WAITING_MOST}).fetchone():
            msg = f'{WAITING_MOST:,} deliveries of "{to.name}" wait already'
            hint = "Nothing was stored; ask again later. Why they wait: suimon deliveries list"
            raise QueueFull(msg, hint=hint)
        if not _store(conn, to, arrival, delivery, "waiting", None, why=why):
            return _lost(conn, to, arrival), []
        if kept:
            kept.write(conn)
            payload.refer(conn, [(delivery, "delivery", kept[arrival.input])])
        conn.execute(SQL.tell_keepers)
        return Answer(delivery, None, reason=why), []
    ids, born = submit.insert(conn, to.pipeline, [request], asking=1, kept=kept)
    if born:
        if not _store(conn, to, arrival, delivery, "delivered", ids[0]):
            raise _RaceLostError  # the run is rolled back with this transaction
        return Answer(delivery, ids[0]), born
    return _lost(conn, to, arrival), []


def _known(conn: Connection, to: Trigger, arrival: Arrival) -> Answer | None:
    """The answer to a key that has its delivery or its run already.

    The run is asked for first: who commits both in between is then seen with its delivery.
    """
    (run,) = submit.existing(conn, to.pipeline, [Request(arrival.input, arrival.key)])
    found = conn.execute(SQL.by_key, {"trigger": to.id, "key": arrival.key}).fetchone()
    if found is None and run is None:
        return None
    none = (None, None, "delivered", None, None, None)
    delivery, run_id, state, why, inline, content = found or none
    if run is not None:
        return Answer(delivery or run.id, run.id, duplicate=True, same_input=run.same_input)
    stored = payload.text(conn, inline, content)
    same = stored is None or orjson.loads(stored) == orjson.loads(arrival.input)
    reason = {"waiting": why, "delivered": None}.get(state, state)
    return Answer(delivery, run_id, duplicate=True, same_input=same, reason=reason)


def _lost(conn: Connection, to: Trigger, arrival: Arrival) -> Answer:
    """Another call with this key came first, or the pipeline is full."""
    known = _known(conn, to, arrival) if arrival.key is not None else None
    if known is not None:
        return known
    raise full(conn, to.pipeline)


def full(conn: Connection, pipeline: str) -> SuimonError:
    """Why a pipeline took no run: what it meets now, or what it has just met."""
    refused = submit.no_room(conn, pipeline)
    if refused is not None:
        return refused
    row = conn.execute(submit.SQL.room, {"pipeline": pipeline}).fetchone()
    return submit.full(pipeline, *((row[0] or 0, row[1]) if row else (0, 0)))


def _store(
    conn: Connection,
    to: Trigger,
    arrival: Arrival,
    delivery: str,
    state: str,
    run: str | None,
    *,
    why: str | None = None,
) -> bool:
    """The delivery's row; False: its key has one already. The run has the input of a delivered."""
    text = arrival.input.decode() if state == "waiting" else "{}"
    params = {
        "id": delivery,
        "trigger": to.id,
        "state": state,
        "run": run,
        "duplicate": False,
        "key": arrival.key,
        "source": arrival.source[:500],
        "code": why.partition(":")[0] if why else None,
        "why": why,
        "input": text,
        "detail": None if arrival.detail is None else _text(arrival.detail),
    }
    return conn.execute(SQL.store_one, params).fetchone() is not None


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()


def retry_after(conn: Connection, pipeline: str) -> int:
    """Seconds after which a caller that met a full pipeline may ask again, from 1 to 300."""
    row = conn.execute(SQL.oldest_queued, {"pipeline": pipeline}).fetchone()
    return int(min(max(row[0] or 1.0 if row else 1.0, 1.0), 300.0))
