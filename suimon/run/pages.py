"""Lists, a page at a time: the children of a fan-out, log text, runs, pipelines.

A page has at most ``PAGE`` rows; one filtered by state walks at most ``WINDOW`` positions and says
where to go on. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.errors import InputRefused
from suimon.run import deploy, destinations, submit
from suimon.run.read import Fanout, fanouts, named, parsed, run
from suimon.store import payload

SQL = statements(__package__, "pages.sql")

PAGE: Final = 1000
WINDOW: Final = 100_000
LAST_POSITION: Final = 2**31 - 1
BAD: Final = frozenset({"failed", "timed_out", "cancelled"})
LAST_ID: Final = "f" * 32

_CHILD: Final = (
    "id",
    "position",
    "item_key",
    "status",
    "reason",
    "attempt",
    "duration_us",
    "started_at",
    "finished_at",
    "error",
    "input",
    "output",
)


_RUN: Final = (
    "id", "pipeline", "status", "reason", "attempt", "created_at", "started_at", "finished_at",
    "error", "idempotency_key", "labels",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Page:
    """Rows, and the position to go on from; None: there is no more."""

    rows: tuple[dict[str, Any], ...]
    next: int | None


def fanout_of(conn: Connection, run_id: str, vertex: str | None) -> Fanout:
    """The fan-out that is meant: the named one, or the only one. Raises InputRefused."""
    found = fanouts(conn, run_id)
    chosen = [one for one in found if vertex in (None, one.vertex)]
    if len(chosen) == 1:
        return chosen[0]
    if not found:
        run(conn, run_id)  # says so when there is no such run
        msg = f"run {run_id} has no children"
        raise InputRefused(msg, path="id")
    names = ", ".join(one.vertex for one in found)
    msg = (
        f"run {run_id} has several fan-outs"
        if vertex is None
        else f'run {run_id} has no fan-out "{vertex}"'
    )
    raise InputRefused(msg, path="vertex", hint=f"Name one of: {names}.")


def children(
    conn: Connection,
    fanout: Fanout,
    *,
    first: int = 0,
    statuses: Sequence[str] = (),
    limit: int = 100,
    whole: bool = False,
) -> Page:
    """A page of a fan-out's children in item order, from position ``first`` on.

    Inputs and results above 8 KB are not in it: ``input_bytes`` and ``output_bytes`` say how large
    they are. With ``whole`` they are, and the page ends where they have 16 MiB together.
    """
    limit = max(1, min(limit, PAGE))
    last = LAST_POSITION if not statuses else min(LAST_POSITION, first + WINDOW - 1)
    where = {"base": fanout.base, "fanout": fanout.id, "first": first, "last": last, "n": limit + 1}
    if not statuses:
        rows = conn.execute(SQL.children, where).fetchall()
        return _page(conn, rows, limit, None, whole=whole)
    where["statuses"] = list(statuses)
    only_bad = BAD.issuperset(statuses)
    statement = SQL.bad_positions if only_bad else SQL.positions_by_status
    positions = [row[0] for row in conn.execute(statement, where).fetchall()]
    rows = conn.execute(SQL.children_at, {"base": fanout.base, "positions": positions}).fetchall()
    more = None if only_bad or last + 1 >= fanout.counts.made else last + 1
    return _page(conn, rows, limit, more, whole=whole)


def _page(
    conn: Connection,
    rows: Sequence[Sequence[Any]],
    limit: int,
    beyond: int | None,
    *,
    whole: bool,
) -> Page:
    large: dict[bytes, bytes] = {}
    if whole:
        limit = min(limit, payload.within_page((r[13] or 0) + (r[15] or 0) for r in rows))
        large = payload.read(conn, (digest for r in rows[:limit] for digest in (r[12], r[14])))
    found = []
    for row in rows[:limit]:
        one = named(
            (*_CHILD, "input_content", "input_bytes", "output_content", "output_bytes"), row
        )
        for name in ("input", "output"):
            raw = large.get(one.pop(f"{name}_content"))
            one[name] = parsed(one[name] if raw is None else raw.decode())
        one["error"] = parsed(one["error"])
        found.append(one)
    return Page(tuple(found), rows[limit][1] if len(rows) > limit else beyond)


def logs(
    conn: Connection, run_id: str, *, after: tuple[int, int] = (-1, -1), limit: int = 1000
) -> list[dict[str, Any]]:
    """Log text in order of tries, in pieces as they were stored; ``(claim_no, seq)`` of the last
    goes on.
    """
    names = ("claim_no", "seq", "stream", "at", "text")
    where = {
        "id": run_id,
        "after_claim": after[0],
        "after_seq": after[1],
        "n": max(1, min(limit, PAGE)),
    }
    return [named(names, row) for row in conn.execute(SQL.logs, where).fetchall()]


def runs(
    conn: Connection,
    *,
    pipeline: str | None = None,
    statuses: Sequence[str] = (),
    labels: Sequence[str] = (),
    before: str | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Runs that nobody spawned, newest first, with all of these labels; ``before`` is the last id
    of the page before.
    """
    where = {
        "pipeline": pipeline,
        "statuses": list(statuses) or None,
        "labels": list(labels) or None,
        "before": before or LAST_ID,
        "n": max(1, min(limit, PAGE)),
    }
    return [listed_run(row) for row in conn.execute(SQL.runs, where).fetchall()]


def listed_run(row: Sequence[Any]) -> dict[str, Any]:
    """A row of a list of runs."""
    return named(_RUN, row)


def pipelines(conn: Connection, *, after: str = "", limit: int = PAGE) -> list[dict[str, Any]]:
    """What is deployed, at most 1,000, by name; ``after`` is the last name before."""
    names = (
        "name",
        "pool",
        "concurrency",
        "priority",
        "deployed_at",
        "hash",
        "last_status",
        "last_at",
    )
    where = {"after": after, "n": max(1, min(limit, PAGE))}
    rows = conn.execute(SQL.pipelines, where).fetchall()
    return [named(names, row) for row in rows]


def pipeline(conn: Connection, name: str) -> dict[str, Any]:
    """One deployed pipeline with its graph, its settings live and as ``declared``, and those of the
    destinations that its vertices name. Raises UnknownPipeline with "did you mean".
    """
    names = (
        "name",
        "pool",
        "concurrency",
        "max_queued",
        "pause_after",
        "priority",
        "deployed_at",
        "edited_at",
        "pool_edited_at",
        "hash",
        "graph",
        "versions",
    )
    row = conn.execute(SQL.pipeline, {"name": name}).fetchone()
    if row is None:
        raise submit.unknown(conn, name)
    one = named(names, row)
    graph = orjson.loads(one["graph"])
    called = {v.get("config", {}).get("destination") for v in graph["vertices"].values()}
    found = [d for d in destinations.listed(conn) if d["name"] in called]
    declared = deploy.declared(graph)
    return {**one, "graph": graph, "declared": declared, "destinations": found}
