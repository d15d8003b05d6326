"""What people and programs see of a run: the run itself, its counts, steps, tries and errors.

Nothing here writes, and everything is bounded. The counts of a fan-out are its tally's, so that a
run with a million children is shown as fast as one with ten. Large inputs and results are fetched
from payloads.

The JSON forms (``to_json``) are what ``--json`` prints and ``Client`` gives: names may be added,
not changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from suimon.core.states import TERMINAL, RunStatus
from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.errors import InputRefused, RunNotFound
from suimon.store import payload

SQL = statements(__package__, "read.sql")

PREFIX_DIGITS: Final = 6


def as_json(value: Any) -> Any:
    """Instants as ISO text in UTC; all else as it is."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    return value


def named(names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    """A row as an object, its instants as text."""
    return {name: as_json(value) for name, value in zip(names, row, strict=True)}


def parsed(text: str | None) -> Any:
    """A stored JSON text as a value; what is absent is None.

    Who submits by SQL can store what PostgreSQL takes and no reader does (1e400): that is its text.
    """
    try:
        return None if text is None else orjson.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True, slots=True)
class Counts:
    """A fan-out's tally. ``expected`` is None until its list has ended; ``made`` exist already."""

    expected: int | None
    made: int
    succeeded: int
    failed: int
    timed_out: int
    cancelled: int
    running: int

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.timed_out + self.cancelled

    def to_json(self) -> dict[str, Any]:
        return {
            "total": self.expected if self.expected is not None else self.made,
            "expected": self.expected,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "timed_out": self.timed_out,
            "cancelled": self.cancelled,
            "running": self.running,
            "unfinished": max(0, self.made - self.ended),
        }


@dataclass(frozen=True, slots=True)
class Fanout:
    """One fan-out of a run."""

    id: int
    vertex: str
    generation: int
    base: str
    counts: Counts
    state: str
    verdict: str | None
    allowed: int | None
    tolerate: tuple[str, ...]
    cancelling: bool
    lane_limit: int | None
    created_at: datetime
    settled_at: datetime | None

    def to_json(self) -> dict[str, Any]:
        return {
            "vertex": self.vertex,
            "state": self.state,
            "verdict": self.verdict,
            "counts": self.counts.to_json(),
            "tolerate": list(self.tolerate),
            "allowed_failures": self.allowed,
            "concurrency": self.lane_limit,
            "cancelling": self.cancelling,
            "created_at": as_json(self.created_at),
            "settled_at": as_json(self.settled_at),
        }


@dataclass(frozen=True, slots=True)
class Run:
    """One run as it stands now. ``counts`` is the sum over its fan-outs, None without any."""

    id: str
    pipeline: str
    status: str
    reason: str | None
    attempt: int
    input: Any
    output: Any
    error: dict[str, Any] | None
    counts: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    since: datetime | None  # when the engine parked it, or put it back, last
    parent_id: str | None
    root_id: str
    pool: str
    worker: str | None
    vertex: str | None
    position: int | None
    item_key: str | None
    idempotency_key: str | None
    labels: list[str] | None
    interruptions: int
    cancel_requested: bool
    duration_us: int | None
    wake_at: datetime | None
    deadline_at: datetime | None
    lane: str | None
    priority: int
    graph_hash: str
    fanouts: tuple[Fanout, ...]

    @property
    def ended(self) -> bool:
        """Succeeded, failed, timed out or cancelled."""
        return RunStatus(self.status) in TERMINAL

    def to_json(self) -> dict[str, Any]:
        parts = {name: as_json(getattr(self, name)) for name in self.__slots__}
        parts["fanouts"] = [one.to_json() for one in self.fanouts]
        return parts


def resolve(conn: Connection, given: str) -> str:
    """The whole id of a run, from it or from a beginning of at least six digits that is unique."""
    digits = given.strip().lower().replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{1,32}", digits) or len(digits) < PREFIX_DIGITS:
        msg = f'"{given}" is no run id'
        hint = f"Give the id or its first digits, at least {PREFIX_DIGITS}."
        raise InputRefused(msg, path="id", hint=hint)
    bounds = {"low": digits.ljust(32, "0"), "high": digits.ljust(32, "f")}
    found = [row[0] for row in conn.execute(SQL.by_prefix, bounds).fetchall()]
    if len(found) == 1:
        return str(found[0])
    if found:
        count = "more than 10" if len(found) > 10 else str(len(found))
        msg = f'{count} runs begin with "{given}"'
        raise RunNotFound(msg, detail=", ".join(found[:5]), hint="Give more digits.")
    msg = f"there is no run {given}"
    raise RunNotFound(msg, hint="List them: suimon runs list")


def ended(conn: Connection, ids: Sequence[str]) -> set[str]:
    """Those of these runs that have ended, or are gone; one statement for all of them."""
    rows = conn.execute(SQL.unfinished, {"ids": list(ids)}).fetchall()
    return set(ids) - {str(row[0]) for row in rows}


def run(conn: Connection, run_id: str, *, values: bool = True) -> Run:
    """One run with everything that stands on it. Raises RunNotFound, StoreUnavailable.

    ``values`` False: without what is large, which its object store may not give now.
    """
    return _run_and_graph(conn, run_id, values=values)[0]


def _run_and_graph(
    conn: Connection, run_id: str, *, values: bool = True
) -> tuple[Run, dict[str, Any]]:
    cursor = conn.execute(SQL.run, {"id": run_id})
    row = cursor.fetchone()
    if row is None:
        msg = f"there is no run {run_id}"
        raise RunNotFound(msg, hint="List them: suimon runs list")
    assert cursor.description is not None
    parts = dict(zip([column.name for column in cursor.description], row, strict=True))
    graph = orjson.loads(parts.pop("graph"))
    del parts["claim_no"]
    for name in ("input", "output"):
        content = parts.pop(f"{name}_content")
        wanted = content if values else None
        parts[name] = parsed(payload.text(conn, parts[name], wanted))
    parts["error"] = parsed(parts["error"])
    below = fanouts(conn, run_id) if parts["vertex"] is None else ()
    return Run(**parts, counts=_sum(below), fanouts=below), graph


def fanouts(conn: Connection, run_id: str) -> tuple[Fanout, ...]:
    """The fan-outs of a run, oldest first; at most 100."""
    found = []
    for row in conn.execute(SQL.fanouts, {"id": run_id}).fetchall():
        (
            ident,
            vertex,
            generation,
            base,
            expected,
            succeeded,
            failed,
            timed_out,
            cancelled,
            state,
            verdict,
            allowed,
            tolerate,
            cancelling,
            _,
            lane_limit,
            created_at,
            settled_at,
            made,
            running,
        ) = row
        counts = Counts(expected, made, succeeded, failed, timed_out, cancelled, running)
        found.append(
            Fanout(
                ident,
                vertex,
                generation,
                base,
                counts,
                state,
                verdict,
                allowed,
                tuple(tolerate),
                cancelling,
                lane_limit,
                created_at,
                settled_at,
            )
        )
    return tuple(found)


def _sum(below: Sequence[Fanout]) -> dict[str, Any] | None:
    if not below:
        return None
    each = [one.counts.to_json() for one in below]
    total = {name: sum(one[name] for one in each) for name in each[0] if name != "expected"}
    known = [one["expected"] for one in each]
    return {"total": total["total"], "expected": None if None in known else sum(known), **total}


def steps(conn: Connection, run_id: str) -> list[dict[str, Any]]:
    """What has ended in a run with more than one vertex, in the order in which it ended.

    Large results are there as long as they have 16 MiB together; of the others ``output_bytes``
    says how large they are.
    """
    names = ("vertex", "status", "attempt", "duration_us", "ended_at", "error", "output")
    rows = conn.execute(SQL.steps, {"id": run_id}).fetchall()
    fit = payload.within_page(row[8] or 0 for row in rows)
    large = payload.read(conn, (row[7] for row in rows[:fit]))
    found = []
    for row in rows:
        one = named(names, row[:7])
        raw = large.get(row[7])
        text = one["output"] if raw is None else raw.decode()
        one |= {"error": parsed(one["error"]), "output": parsed(text)}
        if row[7] is not None:
            one["output_bytes"] = row[8]
        found.append(one)
    return found


def attempts(conn: Connection, run_id: str) -> list[dict[str, Any]]:
    """The tries that did not end their step, newest first; at most 100."""
    names = ("attempt", "vertex", "how", "worker", "began_at", "ended_at", "error")
    found = []
    for row in conn.execute(SQL.attempts, {"id": run_id}).fetchall():
        one = named(names, row)
        found.append({**one, "error": parsed(one["error"])})
    return found


def grouped_errors(conn: Connection, fanout: Fanout) -> list[dict[str, Any]]:
    """The bad ends of a fan-out by kind, the most frequent first; at most 20 kinds."""
    names = (
        "status",
        "type",
        "message",
        "count",
        "first_position",
        "example",
        "first_key",
        "first_run_id",
    )
    rows = conn.execute(SQL.grouped_errors, {"fanout": fanout.id}).fetchall()
    return [named(names, row) for row in rows]


def durations(conn: Connection, fanout: Fanout) -> dict[str, Any] | None:
    """p50, p95, p99 and max of the children's time in a slot, in microseconds."""
    made = fanout.counts.made
    row = conn.execute(SQL.durations, {"base": fanout.base, "made": made}).fetchone()
    if row is None or not row[1]:
        return None
    return {
        **dict(zip(("p50_us", "p95_us", "p99_us", "max_us"), row[0], strict=True)),
        "measured": row[1],
    }


def slowest_now(conn: Connection, fanout: Fanout) -> list[dict[str, Any]]:
    """The children that have been running for the longest time, at most 5."""
    names = ("id", "position", "item_key", "attempt", "started_at", "running_for_s", "worker")
    rows = conn.execute(SQL.slowest_now, {"fanout": fanout.id}).fetchall()
    return [named(names, row) for row in rows]


def show(conn: Connection, run_id: str) -> dict[str, Any]:
    """Everything ``runs show`` tells: the run, its steps, tries, and each fan-out's statistics."""
    one, graph = _run_and_graph(conn, run_id)
    document = one.to_json()
    document["steps"] = steps(conn, run_id)
    document["attempts"] = attempts(conn, run_id)
    # a child that is one task has its parent's graph, and of that its own vertex
    vertices = graph["vertices"].items()
    document["vertices"] = {n: v["type"] for n, v in vertices if one.vertex in (None, n)}
    for fanout, shown in zip(one.fanouts, document["fanouts"], strict=True):
        shown["errors"] = grouped_errors(conn, fanout)
        shown["durations"] = durations(conn, fanout)
        shown["slowest_now"] = slowest_now(conn, fanout)
    return document
