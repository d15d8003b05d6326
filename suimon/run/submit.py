"""→ queued: a run begins to exist.

One statement makes the run and, when a key is given, claims the key; the primary key of
``suimon.idempotency_keys`` is what makes one key one run. Who loses that race looks the winner up
in a second statement. Submit takes no lock: a run of a limited pipeline is born un-admitted, and
``lane.admit`` lets it in after the commit (the sweep does if this process dies in between).

Values never become SQL text; the input is checked JSON before anything is sent.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from suimon.core import clock, suggest
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import InputRefused, UnknownPipeline
from suimon.run import lane, wake

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
        names = [name for (name,) in conn.execute(SQL.names).fetchall()]
        msg = f'there is no pipeline "{pipeline}"'
        raise UnknownPipeline(
            msg,
            detail=f"Deployed: {', '.join(names[:20])}." if names else "Nothing is deployed yet.",
            hint=suggest.did_you_mean(pipeline, names) or "Deploy it: suimon deploy PATH",
        )
    return Target(*row)


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


def submit(conn: Connection, pipeline: str, requests: Sequence[Request]) -> list[Submitted]:
    """Submit runs in order; each answer stands at its request's place. Raises UnknownPipeline."""
    answers: list[Submitted] = []
    for start in range(0, len(requests), BATCH):
        batch = requests[start : start + BATCH]
        answers += _submit_batch(conn, pipeline, batch)
    return answers


def _submit_batch(conn: Connection, pipeline: str, batch: Sequence[Request]) -> list[Submitted]:
    ids = [uuid7() for _ in batch] if len(batch) == 1 else sorted(uuid7() for _ in batch)
    hashes = [None if r.key is None else hashlib.sha256(r.key.encode()).digest() for r in batch]
    prints = [hashlib.sha256(r.input).digest() for r in batch]
    params: dict[str, Any] = {
        "pipeline": pipeline,
        "ids": ids,
        "key_hashes": hashes,
        "input_hashes": prints,
        "keys": [r.key for r in batch],
        "inputs": [r.input.decode() for r in batch],
    }

    def act() -> list[Any]:
        with transaction(conn):
            rows = conn.execute(SQL.submit, params).fetchall()
            free = {row[1] for row in rows if row[2] is None}
            if free:
                wake.wake(conn, free)
            return rows

    born = retrying(act)
    late: dict[str, int] = {}
    limits: dict[str, int] = {}
    for _, _, name, place, limit in born:
        if name is not None:
            late[name] = min(place, late.get(name, place))
            limits[name] = limit
    if any(name != lane.pipeline_lane(pipeline) for name in limits):
        lane.make_rows(conn, [(name, limit, None) for name, limit in limits.items()])
    lane.admit(conn, late, late=late)
    made = {row[0] if isinstance(row[0], str) else str(row[0]) for row in born}
    if len(made) == len(batch):
        return [Submitted(i) for i in ids]
    return _answers(conn, pipeline, ids, hashes, prints, made)


def _answers(
    conn: Connection,
    pipeline: str,
    ids: Sequence[str],
    hashes: Sequence[bytes | None],
    prints: Sequence[bytes],
    made: set[str],
) -> list[Submitted]:
    """Who is not born lost to an earlier run with its key (or the pipeline has just gone)."""
    wanted = [h for i, h in zip(ids, hashes, strict=True) if i not in made and h is not None]
    rows = conn.execute(SQL.existing, {"pipeline": pipeline, "key_hashes": wanted}).fetchall()
    winners = {bytes(row[0]): row for row in rows}
    answers: list[Submitted] = []
    for run_id, key_hash, print_ in zip(ids, hashes, prints, strict=True):
        if run_id in made:
            answers.append(Submitted(run_id))
            continue
        found = winners.get(key_hash) if key_hash is not None else None
        if found is None:
            per = target(conn, pipeline).lane_per  # or says what is wrong with the name
            if per is not None:
                msg = f'the input has no "{per}", which the pipeline\'s concurrency is counted by'
                raise InputRefused(msg, path=f"$.{per}")
            msg = f'pipeline "{pipeline}" vanished while a run was submitted'
            raise UnknownPipeline(msg, hint="Deploy it again: suimon deploy PATH")
        _, winner, input_hash, status, pruned = found
        answers.append(
            Submitted(
                str(winner),
                duplicate=True,
                same_input=bytes(input_hash) == print_,
                pruned=bool(pruned),
                status=status or "pruned",
            )
        )
    return answers


def in_the_way(
    conn: Connection, pipeline: str, lane_name: str | None = None
) -> tuple[str, str] | None:
    """(id, status) of the oldest unfinished run of this pipeline that a person's start meets."""
    row = conn.execute(SQL.in_the_way, {"pipeline": pipeline, "lane": lane_name}).fetchone()
    return None if row is None else (str(row[0]), str(row[1]))
