"""→ queued: a run begins to exist.

One statement makes the run and, when a key is given, claims the key; the primary key of
``suimon.idempotency_keys`` is what makes one key one run. Who loses that race looks the winner up
in a second statement. Submit takes no lock: a run of a limited pipeline is born un-admitted, and
``lane.admit`` lets it in after the commit (the sweep does if this process dies in between).

Values never become SQL text; the input is checked JSON before anything is sent.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from suimon.core import clock, suggest, words
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import InputRefused, QueueFull, SuimonError, UnknownPipeline
from suimon.run import lane, quotas, wake
from suimon.run.finish import INLINE_BYTES
from suimon.store import payload
from suimon.store.payload import Kept

SQL = statements(__package__, "submit.sql")

#: Runs of one statement.
BATCH: Final = 5000
#: A key longer than this is refused by the callers; only its hash is stored beside the run's own
#: copy.
KEY_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """What a new run of a pipeline gets."""

    graph_id: int
    pool: str
    lane_limit: int | None
    priority: int
    graph: str
    lane_per: str | None = None
    holds_lane: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One run to be: checked canonical JSON, and a key or none."""

    input: bytes
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Submitted:
    """The answer to one request. ``duplicate``: the run existed; ``pruned``: and is gone by now."""

    id: str
    duplicate: bool = False
    same_input: bool = True
    pruned: bool = False
    status: str = "queued"


def target(conn: Connection, pipeline: str) -> Target:
    """The current graph and live values of a pipeline; UnknownPipeline says "did you mean"."""
    row = conn.execute(SQL.target, {"pipeline": pipeline}).fetchone()
    if row is None:
        raise unknown(conn, pipeline)
    return Target(*row)


def unknown(conn: Connection, pipeline: str) -> UnknownPipeline:
    """The refusal of a name that nothing deployed has."""
    names = [name for (name,) in conn.execute(SQL.names).fetchall()]
    msg = f'there is no pipeline "{pipeline}"'
    return UnknownPipeline(
        msg,
        detail=f"Deployed: {', '.join(names[:20])}." if names else "Nothing is deployed yet.",
        hint=suggest.did_you_mean(pipeline, names) or "Deploy it: suimon deploy PATH",
    )


def uuid7() -> str:
    """A UUIDv7: 48 bits of milliseconds, then random, so that ids sort by time (RFC 9562, 5.7)."""
    raw = bytearray(int(clock.now().timestamp() * 1000).to_bytes(6, "big") + os.urandom(10))
    raw[6] = 0x70 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    h = raw.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def fanout_base() -> str:
    """A fresh base of a fan-out: a UUIDv7 whose low 32 bits are zero."""
    return uuid7()[:28] + "00000000"


def submit(
    conn: Connection,
    pipeline: str,
    requests: Sequence[Request],
    *,
    bounded: bool = True,
    labels: Sequence[str] = (),
) -> list[Submitted]:
    """Submit runs in order; each answer stands at its request's place.

    ``labels`` are those of all of them. Raises UnknownPipeline, QueueFull when the pipeline's
    ``max_queued`` has no room for all that are new, and QuotaExceeded when a quota has not: nothing
    is stored then. Others that submit at the same moment are not seen by ``max_queued``, so that
    bound may be passed by what is under way. ``bounded=False`` asks for no room.
    """
    answers: list[Submitted] = []
    asking: int | None = len(requests) if bounded else None
    # what quotas count is stored whole or not at all; else 5,000 in a transaction are quicker
    size = len(requests) if len(requests) > BATCH and quotas.exist(conn) else BATCH
    for start in range(0, len(requests), size):
        batch = requests[start : start + size]
        answers += _submit_batch(conn, pipeline, batch, asking, labels)
        asking = None  # room for all was there when the first of them were stored
    return answers


def labels_of(conn: Connection, run_id: str) -> list[str]:
    """The labels of a root run."""
    row = conn.execute(SQL.labels_of, {"run": run_id}).fetchone()
    return [] if row is None or row[0] is None else list(row[0])


def large(requests: Sequence[Request]) -> list[bytes]:
    """The inputs that are too large for a row."""
    return [r.input for r in requests if len(r.input) > INLINE_BYTES]


@dataclass(frozen=True, slots=True)
class Born:
    """A run that began to exist, as ``follow`` needs it."""

    id: str
    pool: str
    lane: str | None
    lane_rank: int | None
    lane_limit: int | None


def insert(
    conn: Connection,
    pipeline: str,
    requests: Sequence[Request],
    *,
    asking: int | None,
    labels: Sequence[str] = (),
    kept: Kept = payload.NOTHING,
) -> tuple[list[str], list[Born]]:
    """The statement alone, in the caller's transaction; returns all ids and what was born.

    ``kept`` are the large inputs, which the caller makes ready before its transaction; those that
    are not in it are kept as they are.

    Who is not born lost to an earlier run with its key (see ``existing``), or there was no room for
    ``asking`` more. At most ``BATCH`` requests; ``follow`` comes after the commit.
    """
    ids = [uuid7() for _ in requests] if len(requests) == 1 else sorted(uuid7() for _ in requests)
    params: dict[str, Any] = {
        "pipeline": pipeline,
        "ids": ids,
        "keys": [r.key for r in requests],
        "inputs": [r.input.decode() for r in requests],
        "asking": asking,
        "labels": list(labels) or None,
        "contents": [kept.get(r.input) for r in requests] if kept else None,
    }
    with quotas.telling_busy():
        if kept:  # quotas come before contents, as everywhere
            conn.execute(SQL.lock_quotas, params)
            kept.write(conn)
        born = [Born(*row) for row in conn.execute(SQL.submit, params).fetchall()]
    if kept and len(born) < len(requests):
        kept.drop_unused(conn)
    free = {one.pool for one in born if one.lane is None}
    if free:
        wake.wake(conn, free)
    return ids, born


def follow(conn: Connection, pipeline: str, born: Sequence[Born]) -> None:
    """After the commit: admission of what was born behind lanes."""
    late: dict[str, int] = {}
    limits: dict[str, int | None] = {}
    for one in born:
        if one.lane is not None:
            assert one.lane_rank is not None
            late[one.lane] = min(one.lane_rank, late.get(one.lane, one.lane_rank))
            limits[one.lane] = one.lane_limit
    if any(name != lane.pipeline_lane(pipeline) for name in limits):
        lane.make_rows(conn, [(name, limit, None) for name, limit in limits.items()])
    lane.admit(conn, late, late=late)


def _submit_batch(
    conn: Connection,
    pipeline: str,
    batch: Sequence[Request],
    asking: int | None,
    labels: Sequence[str],
) -> list[Submitted]:
    def act(kept: Kept) -> tuple[list[str], list[Born]]:
        ids: list[str] = []
        born: list[Born] = []
        with transaction(conn):
            for start in range(0, len(batch), BATCH):
                part = batch[start : start + BATCH]
                room_for = asking if start == 0 else None
                some, made = insert(conn, pipeline, part, asking=room_for, labels=labels, kept=kept)
                ids += some
                born += made
                if not born:  # no room for all: then for none (or they exist, and are asked for)
                    ids += [uuid7() for _ in batch[start + BATCH :]]
                    break
        return ids, born

    ids, born = payload.keeping(conn, large(batch), lambda kept: retrying(lambda: act(kept)))
    follow(conn, pipeline, born)
    made = {one.id for one in born}
    if len(made) == len(batch):
        return [Submitted(i) for i in ids]
    answers: list[Submitted | None] = [
        Submitted(i) if i in made else known
        for i, known in zip(ids, existing(conn, pipeline, batch), strict=True)
    ]
    missing = [place for place, answer in enumerate(answers) if answer is None]
    if missing:
        if made or asking is None or no_room(conn, pipeline, len(missing), labels) is not None:
            _say_why(conn, pipeline, len(missing), labels)
        # full for all of them, but some exist already: the new ones alone have room
        new = _submit_batch(
            conn, pipeline, [batch[place] for place in missing], len(missing), labels
        )
        for place, answer in zip(missing, new, strict=True):
            answers[place] = answer
    return [answer for answer in answers if answer is not None]


def existing(
    conn: Connection, pipeline: str, requests: Sequence[Request]
) -> list[Submitted | None]:
    """At each request's place: the run its key has already, or None."""
    params = {
        "pipeline": pipeline,
        "keys": [r.key for r in requests],
        "inputs": [r.input.decode() for r in requests],
    }
    found: list[Submitted | None] = [None] * len(requests)
    for place, run_id, same, status in conn.execute(SQL.existing, params).fetchall():
        found[place - 1] = Submitted(
            str(run_id),
            duplicate=True,
            same_input=same,
            pruned=status is None,
            status=status or "pruned",
        )
    return found


def room(conn: Connection, pipeline: str, labels: Sequence[str] = ()) -> int | None:
    """How many more runs of this pipeline may be submitted now; None: any number."""
    row = conn.execute(SQL.room, {"pipeline": pipeline}).fetchone()
    bounds = [
        None if row is None or row[0] is None else max(row[0] - row[1], 0),
        quotas.left(conn, pipeline, labels),
    ]
    return min((bound for bound in bounds if bound is not None), default=None)


def no_room(
    conn: Connection, pipeline: str, n: int = 1, labels: Sequence[str] = ()
) -> SuimonError | None:
    """Why ``n`` more runs of this pipeline are refused now: QuotaExceeded, QueueFull or
    UnknownPipeline; None: there is room.
    """
    row = conn.execute(SQL.room, {"pipeline": pipeline}).fetchone()
    if row is None:
        return unknown(conn, pipeline)
    # (a quota first: it lasts longer than a queue)
    exceeded = quotas.refusal(conn, pipeline, n, labels)
    if exceeded is None and row[0] is not None and row[1] + n > row[0]:
        return full(pipeline, row[0], row[1])
    return exceeded


def _say_why(conn: Connection, pipeline: str, n: int, labels: Sequence[str]) -> NoReturn:
    """Nothing was born and no key explains it: say which it was."""
    per = target(conn, pipeline).lane_per  # or says what is wrong with the name
    refused = no_room(conn, pipeline, n, labels)
    if refused is not None:
        raise refused
    row = conn.execute(SQL.room, {"pipeline": pipeline}).fetchone()
    if row is not None and row[0] is not None:
        raise full(pipeline, row[0], row[1])
    if per is not None:
        msg = f'the input has no "{per}", which the pipeline\'s concurrency is counted by'
        raise InputRefused(msg, path=f"$.{per}")
    msg = f'pipeline "{pipeline}" vanished while a run was submitted'
    raise UnknownPipeline(msg, hint="Deploy it again: suimon deploy PATH")


def full(pipeline: str, max_queued: int, queued: int) -> QueueFull:
    """The refusal of a pipeline that has as many waiting runs as it may have."""
    has = words.count(queued, "waiting run")
    msg = f'pipeline "{pipeline}" has {has}; its max_queued is {max_queued:,}'
    hint = (
        "Nothing was stored; ask again later. What holds it up: "
        f"suimon runs list --pipeline {pipeline}, then suimon runs why ID"
    )
    return QueueFull(msg, hint=hint)


def in_the_way(
    conn: Connection, pipeline: str, lane_name: str | None = None
) -> tuple[str, str] | None:
    """(id, status) of the oldest unfinished run that a person's start would wait for, if any."""
    row = conn.execute(SQL.in_the_way, {"pipeline": pipeline, "lane": lane_name}).fetchone()
    return None if row is None else (str(row[0]), str(row[1]))
