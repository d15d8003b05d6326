"""A question to people: asked once, decided once, in whatever process.

Who votes locks the run's row first, as whoever parks it does (``run/wait.py``). A retry that opens
a merge again forgets the questions behind it: what people saw is not true any more, and the run
asks anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, RunNotFound
from suimon.run import wait
from suimon.run.spawn import Holder

SQL = statements(__package__, "approvals.sql")


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about an approval, by whom and when."""

    decision: str
    by: str | None
    at: datetime | None
    comment: str | None

    def to_json(self) -> dict[str, Any]:
        """As the vertex's output."""
        return {
            "approved": self.decision in ("approved", "not_required"),
            "decision": self.decision,
            "by": self.by,
            "at": self.at.isoformat() if self.at is not None else None,
            "comment": self.comment,
        }


def ask(
    conn: Connection,
    holder: Holder,
    vertex: str,
    *,
    pipeline: str,
    show: bytes,
    required: bool,
    title: str | None,
    role: str | None,
    quorum: int,
    expires_s: float | None,
) -> Decision | float | None:
    """An APPROVAL vertex: its decision, or the seconds until it expires (None: never), parked.

    Raises LostRunError.
    """
    question = {
        "run": holder.run_id, "vertex": vertex, "pipeline": pipeline, "title": title, "role": role,
        "show": show.decode(), "quorum": quorum, "expires_s": expires_s, "required": required,
    }  # fmt: skip

    def act() -> Decision | float | None:
        with transaction(conn):
            wait.fence(conn, holder)
            row = conn.execute(SQL.ask, question).fetchone()
            assert row is not None
            if row[0] is not None:
                return Decision(*row[:4])
            expired = conn.execute(SQL.expire, {"run": holder.run_id, "vertex": vertex}).fetchone()
            if expired is not None:
                return Decision(*expired)
            return None if row[4] is None else float(row[4])

    return retrying(act)


def decide(
    conn: Connection,
    run_id: str,
    vertex: str,
    *,
    approve: bool,
    by: str,
    comment: str | None = None,
) -> tuple[str | None, int]:
    """Vote on an approval. Returns (the decision if it is complete, votes so far).

    Raises RunNotFound, and Conflict when it was decided already (naming the decision), has expired,
    or this person has voted.
    """

    def act() -> tuple[str | None, int]:
        with transaction(conn):
            wait.lock_run(conn, run_id)
            row = conn.execute(SQL.lock_approval, {"run": run_id, "vertex": vertex}).fetchone()
            _may_vote(run_id, vertex, row, approve=approve, by=by)
            voted = conn.execute(
                SQL.vote,
                {"run": run_id, "vertex": vertex, "approve": approve, "by": by, "comment": comment},
            ).fetchone()
            assert voted is not None
            if voted[0] is not None:
                wait.wake_it(conn, run_id)
            return voted[0], int(voted[3])

    return retrying(act)


def _may_vote(run_id: str, vertex: str, row: Any, *, approve: bool, by: str) -> None:
    if row is None:
        msg = f'run {run_id} asks for no approval "{vertex}" (not yet, or not any more)'
        raise RunNotFound(msg, hint="List what waits: suimon approvals list")
    decision, decided_by, decided_at, _, votes, _, expired = row
    if decision is not None:
        when = f"{decided_at:%Y-%m-%d %H:%M:%S} UTC"
        msg = f'"{vertex}" of run {run_id} was {decision} by {decided_by} at {when}'
        raise Conflict(msg, hint="An approval is decided once.")
    if expired:
        msg = f'"{vertex}" of run {run_id} has expired'
        raise Conflict(msg, hint="Once the run has ended, a retry asks anew: suimon runs retry RUN")
    if approve and any(vote["by"] == by for vote in votes):
        msg = f'{by} has voted on "{vertex}" already; it needs other people'
        raise Conflict(msg, hint="One vote a person counts towards the quorum.")


def listed(
    conn: Connection, *, run_id: str | None = None, all_: bool = False
) -> list[dict[str, Any]]:
    """Open approvals (or all), oldest first; at most 500."""
    cursor = conn.execute(SQL.listed, {"run": run_id, "all": all_})
    assert cursor.description is not None
    names = [column.name for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
