"""What an operator does to single runs, each with its record of who and why.

``rerun``     a new run of the same input: the old one stays as it is, the record links both
``priority``  a run, or a run with everything below it, moves to the head of another priority
``cancel``    asks runs to stop; one that is over and keeps its lane closed lets it go
``decide``    votes on an approval; ``signal`` sends a run a named message

The record is written in the transaction of the act. Retries are ``retry.py``'s, those of a step
``again.py``'s, acts on many runs ``many.py``'s, going on without one ``skip.py``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from suimon.core import jsonsafe, shape
from suimon.core.suggest import did_you_mean
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, InputRefused, RunNotFound
from suimon.run import approvals, audit, doors, skip, wait, wake
from suimon.run import cancel as cancelling
from suimon.store import payload

SQL = statements(__package__, "operate.sql")

PRIORITIES: Final = range(4)
#: Levels of fan-outs below a run.
DEPTH: Final = 64
_FIRST_ID: Final = "0" * 32


# --------------------------------------------------------------------------------- a new run


def rerun(
    conn: Connection, run_id: str, *, actor: str, why: str = "", same_graph: bool = False
) -> str:
    """Start a new run with the input of this one; returns its id.

    It gets the current graph (whose door checks the input again), or with ``same_graph`` the one
    the old run was pinned to, and the old one's labels. It has no idempotency key: the old run
    keeps that. Raises RunNotFound, Conflict for a child and for a run that is being removed.
    """
    row = conn.execute(SQL.original, {"run": run_id}).fetchone()
    if row is None:
        msg = f"there is no run {run_id}"
        raise RunNotFound(msg, hint="List them: suimon runs list")
    pipeline, status, parent, graph_id, pruning, inline, content, labels = row
    text = payload.text(conn, inline, content)
    if parent is not None:
        msg = f"run {run_id} is a child of run {parent}; a new run of it would belong to nobody"
        raise Conflict(msg, run_id=parent, hint=f"Retry it: suimon runs retry {run_id}")
    if pruning or text is None:
        msg = f"the input of run {run_id} is being removed, as its pipeline's keep says"
        raise Conflict(msg, run_id=run_id, hint=f"Start one by hand: suimon run {pipeline}")
    value = jsonsafe.loads_stored(text, what="input")

    def act() -> str:
        with transaction(conn):
            made = doors.start(conn, pipeline, value, labels=labels or ()).id
            if same_graph:
                conn.execute(SQL.pin, {"run": made, "graph_id": graph_id})
            detail = {"of": run_id, "new": made, "was": status, "same_graph": same_graph}
            audit.note(conn, "rerun", [run_id, made], actor=actor, why=why, detail=detail)
            return made

    return retrying(act)


# --------------------------------------------------------------------------------- priority


@dataclass(frozen=True, slots=True)
class Moved:
    """How many runs have another priority now, and how many of them stand in the queue."""

    runs: int
    queued: int


def set_priority(
    conn: Connection,
    run_id: str,
    priority: int,
    *,
    actor: str,
    why: str = "",
    below: bool = True,
    expected: int | None = None,
) -> Moved:
    """Move a run to the head of another priority, with everything unfinished below it.

    What is queued and admitted gets its new place at once, what waits or runs when it enters the
    queue again. Children that a spawner is creating in this moment may still get the old one. In
    batches of 1,000; asked again after a crash, it goes on. Raises RunNotFound, and Conflict when
    it is over, or has another priority than the ``expected`` one.
    """
    if priority not in PRIORITIES:
        msg = f"there is no priority {priority}"
        raise InputRefused(msg, path="priority", hint="0 goes first, then 1, 2 and 3.")
    status, before, _, _ = _alive(conn, run_id)
    detail = {"from": before, "to": priority, "below": below, "was": status}
    moved = _move(conn, [run_id], priority, 0, expected)
    if below:
        moved = _move_below(conn, run_id, run_id, priority, moved, depth=0)
    if moved.runs == 0:
        msg = f"run {run_id} is over: {status}"
        raise Conflict(msg, run_id=run_id, hint="Priority is for runs that are not over.")
    detail |= {"runs": moved.runs, "queued": moved.queued}
    audit.note(conn, "priority", [run_id], actor=actor, why=why, detail=detail)
    return moved


def _move_below(
    conn: Connection, low: str, high: str, priority: int, moved: Moved, *, depth: int
) -> Moved:
    """Everything below the runs of this range, from the top down."""
    if depth > DEPTH:
        return moved
    after = (_FIRST_ID, 0)
    while True:  # each page begins after the one before
        where = {"low": low, "high": high, "after_parent": after[0], "after": after[1]}
        rows = conn.execute(SQL.fanouts_between, where).fetchall()
        if not rows:
            return moved
        for fanout, parent, base in rows:
            after = (parent, fanout)
            first, last = base[:28] + "00000000", base[:28] + "7fffffff"
            start = first
            while ids := [
                row[0]
                for row in conn.execute(SQL.unfinished, {"low": start, "high": last}).fetchall()
            ]:
                step = _move(conn, ids, priority, moved.queued)
                moved = Moved(moved.runs + step.runs, moved.queued + step.queued)
                start = ids[-1][:28] + f"{int(ids[-1][28:], 16) + 1:08x}"
            moved = _move_below(conn, first, last, priority, moved, depth=depth + 1)


def _move(
    conn: Connection,
    ids: Sequence[str],
    priority: int,
    before: int,
    expected: int | None = None,
) -> Moved:
    def act() -> Moved:
        with transaction(conn):
            if expected is not None:
                row = conn.execute(SQL.lock_priority, {"run": ids[0]}).fetchone()
                if row is not None and row[0] != expected:
                    msg = f"run {ids[0]} has priority {row[0]}, not {expected}"
                    raise Conflict(msg, run_id=ids[0])
            where = {"ids": list(ids), "priority": priority, "before": before}
            rows = conn.execute(SQL.set_priority, where).fetchall()
            wake.wake(conn, [row[0] for row in rows])
            return Moved(sum(row[1] for row in rows), sum(row[2] for row in rows))

    return retrying(act)


# --------------------------------------------------------------------------------- cancel


def cancel(conn: Connection, ids: Sequence[str], *, actor: str, why: str = "") -> cancelling.Asked:
    """Ask these runs (at most 1,000) to stop; a failed one lets go the lane it keeps closed."""
    actor = audit.checked(actor)
    asked = cancelling.request(conn, ids, why=why or f"cancelled by {actor}")
    lanes = skip.let_go(conn, ids, actor=actor, why=why, action="cancel")
    if asked.asked:
        detail: dict[str, Any] = {"asked": asked.asked, "over": asked.over}
        audit.note(conn, "cancel", ids, actor=actor, why=why, detail=detail)
    return cancelling.Asked(asked.asked + len(lanes), asked.over - len(lanes))


def _alive(conn: Connection, run_id: str) -> tuple[str, int, str | None, str]:
    row = conn.execute(SQL.alive, {"run": run_id}).fetchone()
    if row is None:
        msg = f"there is no run {run_id}"
        raise RunNotFound(msg, hint="List them: suimon runs list")
    return str(row[0]), int(row[1]), row[2], str(row[3])


# --------------------------------------------------------------------------------- people's words


def decide(
    conn: Connection,
    run_id: str,
    vertex: str,
    *,
    approve: bool,
    actor: str,
    comment: str | None = None,
) -> tuple[str | None, int]:
    """Vote on an approval, with its record; returns (the decision if it is complete, votes).

    Raises RunNotFound, and Conflict when it was decided already (naming the decision), has expired,
    or this person has voted.
    """
    name = audit.checked(actor)
    action = "approve" if approve else "reject"

    def act() -> tuple[str | None, int]:
        with transaction(conn):
            answer = approvals.decide(
                conn, run_id, vertex, approve=approve, by=name, comment=comment
            )
            detail = {"vertex": vertex, "decision": answer[0], "votes": answer[1]}
            audit.note(conn, action, [run_id], actor=name, why=comment or "", detail=detail)
            return answer

    return retrying(act)


def signal(conn: Connection, run_id: str, name: str, data: bytes, *, actor: str) -> bool:
    """Send a signal (checked JSON), with its record; False: the run had one of that name.

    Raises RunNotFound, Conflict when the run has ended, InputRefused when no vertex of the run's
    graph waits for a signal of that name: it would be kept and never heard.
    """
    row = conn.execute(SQL.graph_of, {"run": run_id}).fetchone()
    if row is not None:
        heard = _heard(orjson.loads(row[0]))
        if name not in heard:
            msg = f'no vertex of run {run_id} waits for a signal "{name}"'
            hint = did_you_mean(name, heard) or f"It waits for: {', '.join(heard) or 'none'}"
            raise InputRefused(msg, path="name", hint=hint)
    by = audit.checked(actor)

    def act() -> bool:
        with transaction(conn):
            kept = wait.send_signal(conn, run_id, name, data, by=by)
            if kept:
                audit.note(conn, "signal", [run_id], actor=by, detail={"name": name})
            return kept

    return retrying(act)


def _heard(graph: dict[str, Any]) -> list[str]:
    configs = [shape.vertices(graph)[one].get("config") or {} for one in shape.vertices(graph)]
    return sorted({str(config["signal"]) for config in configs if "signal" in config})
