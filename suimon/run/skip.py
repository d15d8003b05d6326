"""An operator lets something bad be, and what waits for it goes on without it.

A failed run that keeps its lane closed lets the lane go. A failed child is forgiven: its merge does
not count it any more, and when nothing bad is left that counts, the merge and what follows run
again, as after a retry, up to the root. What happened stays as it is: the child is `failed`, the
tally says so, the merge's list of failures names it. A retry of that child takes the word back.

Marking the child and its fan-out is one transaction; the merge is opened in the next ones. Asked
again after a crash, ``skip`` goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, RunNotFound
from suimon.run import audit, lane, retry

SQL = statements(__package__, "skip.sql")


@dataclass(frozen=True, slots=True)
class Skipped:
    """What goes on without the run: its lane, or the merge of its siblings.

    ``bad``: bad ends of siblings that still count; the merge runs again when there are none.
    """

    lane: str | None = None
    vertex: str | None = None
    merges_again: bool = False
    bad: int = 0


def skip(conn: Connection, run_id: str, *, actor: str, why: str = "") -> Skipped:
    """Go on without this run. Raises RunNotFound, and Conflict when nothing waits for it."""
    lanes = let_go(conn, [run_id], actor=actor, why=why)
    child = conn.execute(SQL.child, {"run": run_id}).fetchone()
    if child is None:
        msg = f"there is no run {run_id}"
        raise RunNotFound(msg, hint="List them: suimon runs list")
    _, status, reason, fanout, vertex, _, verdict, expected, parent = child
    waits = fanout is not None and verdict != "succeeded" and status in retry.BAD
    if not waits:
        if lanes:
            return Skipped(lane=lanes[0])
        msg = f"nothing waits for run {run_id} ({status}); there is nothing to skip"
        hint = "A failed run that keeps its lane closed, or a failed child whose merge failed."
        raise Conflict(msg, run_id=run_id, hint=hint)
    if expected is None:
        msg = f'the list of "{vertex}" has not ended; how many may fail is not known yet'
        raise Conflict(
            msg, run_id=run_id, hint=f"Retry its spawner first: suimon runs retry {parent}"
        )
    if reason != "skipped":
        _forgive(conn, run_id, fanout, actor=actor, why=why)
    bad = _still_bad(conn, fanout)
    if bad == 0:
        made = retry.Plan(fanouts={fanout: (parent, vertex, 0, ())})
        retry.add_parents(conn, made)
        retry.merge_again(conn, made)
    return Skipped(lanes[0] if lanes else None, vertex, merges_again=bad == 0, bad=bad)


def _forgive(conn: Connection, run_id: str, fanout: int, *, actor: str, why: str) -> None:
    def act() -> None:
        with transaction(conn):
            marked = conn.execute(SQL.mark, {"run": run_id}).fetchone()
            if marked is None:
                msg = f"run {run_id} was retried or skipped at this moment"
                raise Conflict(msg, run_id=run_id)
            conn.execute(SQL.forgive, {"fanout": fanout, "status": marked[0]})
            detail: dict[str, Any] = {"fanout": fanout, "was": marked[0]}
            audit.note(conn, "skip", [run_id], actor=actor, why=why, detail=detail)

    retrying(act)


def _still_bad(conn: Connection, fanout: int) -> int:
    row = conn.execute(SQL.still_bad, {"fanout": fanout}).fetchone()
    return int(row[0]) if row is not None else 0


def let_go(
    conn: Connection, runs: Sequence[str], *, actor: str, why: str = "", action: str = "skip"
) -> list[str]:
    """Open again every lane that one of these keeps closed, and admit; returns their names."""
    opened = []
    for name, holder in conn.execute(SQL.held_lanes, {"runs": list(runs)}).fetchall():

        def act(name: str = name, holder: str = holder) -> bool:
            with transaction(conn):
                lane.lock(conn, [name])
                if conn.execute(SQL.let_go, {"lane": name, "run": holder}).fetchone() is None:
                    return False
                audit.note(conn, action, [holder], actor=actor, why=why, detail={"lane": name})
                return True

        if retrying(act):
            opened.append(name)
    lane.admit(conn, opened)
    return opened
