"""running → succeeded | failed | timed_out | cancelled, in batches, and what follows from it.

The transaction is one round trip of several statements, never one statement (all parts of one
statement share a snapshot taken before any lock was waited for): lane lock, finish, settle, admit,
claim, wake. This module sends the first and the third of them; ``worker/batch.py`` puts them
together.

Every write carries the fence. A row that does not come back was not ours any more: its result is
dropped, because somebody else is, or will be, working on that run. What is *not* prevented: the
side effects that a worker caused before it learned that it had lost the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from suimon.core.events import Event
from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.store.payload import Kept

SQL = statements(__package__, "finish.sql")

#: Results up to this size stand on the row; larger ones, up to 16 MiB, are contents.
INLINE_BYTES: Final = 8192
RS: Final = "\x1e"


@dataclass(slots=True)
class Ended:
    """A run that has ended in this worker. ``output`` and ``error`` are JSON texts or empty."""

    id: str
    claim_no: int
    status: str
    output: str
    error: str
    duration_us: int
    fanout_id: int | None = None
    lane: str | None = None
    events: list[Event] | None = None


@dataclass(slots=True)
class Again:
    """A try that failed and has another one coming after ``delay_s`` seconds."""

    id: str
    claim_no: int
    delay_s: float
    how: str
    vertex: str
    error: str


@dataclass(frozen=True, slots=True)
class Settled:
    """What settling fan-outs asks for: wake a pool, end a stopped parent, cancel stragglers."""

    pools: tuple[str, ...] = ()
    stopped_parents: tuple[str, ...] = ()
    stragglers: bool = False


def array(values: Sequence[object]) -> str:
    """A PostgreSQL array literal of values that need no quoting (uuids, numbers, enum words)."""
    return "{" + ",".join(map(str, values)) + "}"


def send(conn: Connection, worker: int, ended: Sequence[Ended]) -> Any:
    """Send the finish of a batch; the cursor holds the ids that were ours."""
    return conn.execute(
        SQL.finish,
        {
            "worker": worker,
            "ids": array([e.id for e in ended]),
            "claims": array([e.claim_no for e in ended]),
            "statuses": array([e.status for e in ended]),
            "durations": array([e.duration_us for e in ended]),
            "outputs": RS.join(e.output if len(e.output) <= INLINE_BYTES else "" for e in ended),
            "errors": RS.join(e.error for e in ended),
        },
        prepare=True,
    )


def send_settle(conn: Connection, fanouts: Sequence[int]) -> Any:
    """Send the settle of the fan-outs whose rows this transaction has locked."""
    return conn.execute(SQL.settle, {"fanouts": sorted(set(fanouts))}, prepare=True)


def settled(cursor: Any) -> Settled:
    """Read the answer of ``send_settle``."""
    pools, parents, stragglers = set(), [], False
    for todo, run_id, pool in cursor.fetchall():
        if todo == "woken":
            pools.add(pool)
        elif todo == "cancelled":
            parents.append(run_id)
        else:
            stragglers = True
    return Settled(tuple(sorted(pools)), tuple(parents), stragglers)


def send_again(conn: Connection, worker: int, worker_name: str, tries: Sequence[Again]) -> Any:
    """Send running → waiting for the next try; the cursor holds the ids that were parked."""
    return conn.execute(
        SQL.retry_later,
        {
            "worker": worker,
            "worker_name": worker_name,
            "ids": array([t.id for t in tries]),
            "claims": array([t.claim_no for t in tries]),
            "delays": [t.delay_s for t in tries],
            "hows": [t.how for t in tries],
            "vertices": [t.vertex for t in tries],
            "errors": RS.join(t.error for t in tries),
        },
        prepare=True,
    )


def send_large(conn: Connection, ended: Sequence[Ended], kept: Kept) -> None:
    """Send, after the finish, the references to the large results of those that were ours."""
    large = [(e.id, e.claim_no, kept[e.output]) for e in ended if len(e.output) > INLINE_BYTES]
    if large:
        ids, claims, contents = zip(*large, strict=True)
        columns = {"ids": list(ids), "claims": list(claims), "contents": list(contents)}
        conn.execute(SQL.refer_outputs, columns)
