"""A pipeline's bounds, live: how many runs at a time, how many may wait, when its triggers pause.
And a running spawn's: how many of its children at a time.

A pipeline declares them, somebody may edit them, and from then on a deploy leaves them as they are.
An edit may name what it expects to replace: who was overtaken by somebody else is told, and nothing
is changed. A limit that was raised lets runs in at once; one that was lowered takes nobody's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from suimon.core.suggest import one_of
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, InputRefused, NotThere
from suimon.run import audit, lane, pause, submit

SQL = statements(__package__, "limits.sql")

MOST: Final = 1_000_000
NAMES: Final = ("concurrency", "max_queued", "pause_after")


@dataclass(frozen=True, slots=True)
class Limits:
    """None: unlimited, or never."""

    concurrency: int | None
    max_queued: int | None
    pause_after: int | None

    def to_json(self) -> dict[str, int | None]:
        return asdict(self)


def current(conn: Connection, pipeline: str) -> Limits:
    """As they stand. Raises UnknownPipeline."""
    row = conn.execute(SQL.current, {"pipeline": pipeline}).fetchone()
    if row is None:
        raise submit.unknown(conn, pipeline)
    return Limits(*row[:3])


def change(
    conn: Connection,
    pipeline: str,
    wanted: Mapping[str, int | None],
    *,
    actor: str,
    why: str = "",
    expected: Limits | None = None,
) -> Limits:
    """Change those that are named; returns all of them as they are now.

    Raises UnknownPipeline, InputRefused, and Conflict when they are not what was ``expected``.
    """
    audit.must_change(wanted, NAMES)
    for name, value in wanted.items():
        if name not in NAMES or (value is not None and not 1 <= value <= MOST):
            msg = f'"{name}" cannot be {value}'
            raise InputRefused(msg, path=name, hint=f"A whole number from 1 to {MOST:,}, or none.")

    def act() -> tuple[Limits, list[str]]:
        with transaction(conn):
            row = conn.execute(SQL.lock, {"pipeline": pipeline}).fetchone()
            if row is None:
                raise submit.unknown(conn, pipeline)
            before = Limits(*row)
            if expected not in (None, before):
                msg = f'the limits of pipeline "{pipeline}" have changed meanwhile'
                raise Conflict(msg, hint=f"Look again: suimon pipelines limits {pipeline}")
            after = replace(before, **dict(wanted))
            lanes = _change(conn, pipeline, after, moved=after.concurrency != before.concurrency)
            detail: dict[str, Any] = {"from": before.to_json(), "to": after.to_json()}
            target = f"pipeline:{pipeline}"
            audit.note(conn, "limits", [target], actor=actor, why=why, detail=detail)
            return after, lanes

    after, lanes = retrying(act)
    lane.admit(conn, lanes)
    pause.look_again(conn, pipeline)
    return after


def _change(conn: Connection, pipeline: str, after: Limits, *, moved: bool) -> list[str]:
    """Returns the lanes that have another limit now."""
    row = conn.execute(SQL.change, {"pipeline": pipeline, **after.to_json()}).fetchone()
    assert row is not None
    if not moved:
        return []
    name, per = lane.pipeline_lane(pipeline), row[0] is not None
    if not per and after.concurrency is not None:
        lane.make_rows(conn, [(name, after.concurrency, None)])
    given = {"lane": name, "per": per, "concurrency": after.concurrency}
    return [str(row[0]) for row in conn.execute(SQL.change_lanes, given).fetchall()]


# ------------------------------------------------------------------------------------ a spawn


def of_spawn(conn: Connection, run_id: str, vertex: str) -> int | None:
    """How many children of this spawner may live at once. Raises NotThere, Conflict."""
    return _spawn_lane(conn, run_id, vertex)[1]


def change_spawn(
    conn: Connection,
    run_id: str,
    vertex: str,
    limit: int | None,
    *,
    actor: str,
    why: str = "",
    expected: int | None = -1,
) -> int | None:
    """Change it while it runs (None: any number); returns what it was.

    Raised, children are let in at once; lowered, it takes nobody's place. ``expected`` (unless -1)
    is what it replaces. Raises NotThere, InputRefused, and Conflict: it has settled, its children
    were made without a limit of their own, or it is not what was expected.
    """
    if limit is not None and not 1 <= limit <= MOST:
        msg = f'"concurrency" cannot be {limit}'
        hint = f"A whole number from 1 to {MOST:,}, or none."
        raise InputRefused(msg, path="concurrency", hint=hint)
    name, _ = _spawn_lane(conn, run_id, vertex)

    def act() -> int | None:
        with transaction(conn):
            row = conn.execute(SQL.lock_lane, {"lane": name}).fetchone()
            if row is None:
                raise _settled(vertex)
            before: int | None = row[0]
            if expected not in (-1, before):
                msg = f'the limit of "{vertex}" has changed meanwhile'
                raise Conflict(msg, hint=f"Look again: suimon runs show {run_id}")
            conn.execute(SQL.change_lane, {"lane": name, "concurrency": limit})
            detail: dict[str, Any] = {"vertex": vertex, "from": before, "to": limit}
            audit.note(conn, "limits", [run_id], actor=actor, why=why, detail=detail)
            return before

    before = retrying(act)
    lane.admit(conn, [name])
    return before


def _spawn_lane(conn: Connection, run_id: str, vertex: str) -> tuple[str, int | None]:
    row = conn.execute(SQL.spawn_lane, {"run": run_id, "vertex": vertex}).fetchone()
    if row is None:
        names = [one[0] for one in conn.execute(SQL.spawners, {"run": run_id}).fetchall()]
        msg = f'"{vertex}" of run {run_id} has spawned nothing'
        raise NotThere(msg, hint=one_of(vertex, names) if names else None)
    _, name, limit, state = row
    if state != "open":
        raise _settled(vertex)
    if name is None:
        msg = f'the children of "{vertex}" were made without a limit of their own'
        hint = "A spawn with concurrency= has one. A pipeline's: suimon pipelines limits NAME"
        raise Conflict(msg, hint=hint)
    return str(name), limit


def _settled(vertex: str) -> Conflict:
    return Conflict(f'"{vertex}" has settled: nothing is left to limit')
