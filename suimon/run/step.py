"""What happened at each vertex of a run with more than one, and what a run says while it works.

A step is written under the fence and committed before the run goes on: what is recorded as done is
not done again by a rescue. Log lines go in the same transaction, before the finish, so a worker
that lost the run adds nothing to its log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suimon.core.events import Event
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.run import finish, spawn
from suimon.store import payload
from suimon.store.payload import Kept

SQL = statements(__package__, "step.sql")


@dataclass(slots=True)
class Step:
    """The end of one vertex. ``output`` and ``error`` are JSON texts or empty."""

    id: str
    claim_no: int
    vertex: str
    status: str
    duration_us: int
    output: str
    error: str
    events: list[Event] | None = None


@dataclass(slots=True)
class LogText:
    """A piece of log of one try; stream is log, stdout, stderr or note."""

    id: str
    claim_no: int
    stream: str
    text: str


def send(conn: Connection, worker: int, steps: Sequence[Step]) -> Any:
    """Send the record of a batch of steps; the cursor holds (run id, vertex) of those stored."""
    return conn.execute(
        SQL.record,
        {
            "worker": worker,
            "ids": finish.array([s.id for s in steps]),
            "claims": finish.array([s.claim_no for s in steps]),
            "vertices": [s.vertex for s in steps],
            "statuses": [s.status for s in steps],
            "durations": finish.array([s.duration_us for s in steps]),
            "outputs": finish.RS.join(
                s.output if len(s.output) <= finish.INLINE_BYTES else "" for s in steps
            ),
            "errors": finish.RS.join(s.error for s in steps),
        },
        prepare=True,
    )


def send_large(conn: Connection, steps: Sequence[Step], kept: Kept) -> None:
    """Send, after the record, the references to the large results of those that were ours."""
    large = [s for s in steps if len(s.output) > finish.INLINE_BYTES]
    if large:
        columns = {
            "ids": [s.id for s in large],
            "claims": [s.claim_no for s in large],
            "vertices": [s.vertex for s in large],
            "contents": [kept[s.output] for s in large],
        }
        conn.execute(SQL.refer_outputs, columns)


def skip(conn: Connection, *, holder: spawn.Holder, vertices: Sequence[str]) -> None:
    """Record vertices whose condition is false; raises LostRunError."""

    def act() -> None:
        with transaction(conn):
            spawn.fence(conn, holder)
            conn.execute(
                SQL.skip,
                {"run": holder.run_id, "claim_no": holder.claim_no, "vertices": list(vertices)},
            )

    retrying(act)


def send_logs(conn: Connection, worker: int, logs: Sequence[LogText]) -> None:
    """Send log text; PostgreSQL stores no NUL, so it is shown as its escape."""
    conn.execute(
        SQL.keep_logs,
        {
            "worker": worker,
            "ids": finish.array([t.id for t in logs]),
            "claims": finish.array([t.claim_no for t in logs]),
            "streams": [t.stream for t in logs],
            "bodies": [t.text.replace("\0", "\\x00") for t in logs],
        },
    )


def checkpoint(conn: Connection, run_id: str, vertex: str, name: str) -> str | None:
    """The JSON text that a part of this task left, or None."""
    row = conn.execute(SQL.checkpoint, {"run": run_id, "vertex": vertex, "name": name}).fetchone()
    return None if row is None else str(row[0])


def keep_checkpoint(
    conn: Connection, holder: spawn.Holder, vertex: str, name: str, value: str
) -> None:
    """Remember a part of a task, under the fence; raises LostRunError."""

    def act() -> None:
        with transaction(conn):
            spawn.fence(conn, holder)
            conn.execute(SQL.keep_checkpoint, {**_place(holder, vertex, name), "value": value})

    retrying(act)


def keep_part(
    conn: Connection,
    holder: spawn.Holder,
    vertex: str,
    name: str,
    part: int,
    body: bytes,
    *,
    last: bool,
) -> None:
    """Store one part of an artifact, under the fence; raises LostRunError."""

    def act(kept: Kept) -> None:
        with transaction(conn):
            spawn.fence(conn, holder)
            place = _place(holder, vertex, name)
            kept.write(conn)
            conn.execute(SQL.keep_part, {**place, "part": part, "sha256": kept[body]})
            if last:  # an earlier try may have written a longer file
                conn.execute(SQL.drop_parts, {**place, "part": part + 1})

    payload.keeping(conn, [body], lambda kept: retrying(lambda: act(kept)))


def _place(holder: spawn.Holder, vertex: str, name: str) -> dict[str, Any]:
    return {"run": holder.run_id, "vertex": vertex, "name": name, "claim_no": holder.claim_no}


def send_progress(conn: Connection, worker: int, said: Sequence[tuple[str, int, int, int]]) -> None:
    """Send how far runs say they are: (id, claim_no, done, total)."""
    conn.execute(
        SQL.keep_progress,
        {
            "worker": worker,
            "ids": finish.array([i for i, _, _, _ in said]),
            "claims": finish.array([c for _, c, _, _ in said]),
            "dones": finish.array([d for _, _, d, _ in said]),
            "totals": finish.array([t for _, _, _, t in said]),
        },
    )


def of_runs(
    conn: Connection, ids: Sequence[str]
) -> list[tuple[str, str, str, str | None, str | None]]:
    """(run id, vertex, status, output JSON, error JSON) of every recorded step of these runs."""
    rows = conn.execute(SQL.of_runs, {"ids": list(ids)}).fetchall()
    large = payload.read(conn, (row[4] for row in rows))
    return [
        (str(r), str(v), str(s), o if content is None else large[content].decode(), e)
        for r, v, s, o, content, e in rows
    ]
