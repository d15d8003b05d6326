"""An operator's retry of one step: it and everything after it run again, in the same run.

The run may have ended well or badly. What the steps left behind is forgotten: their results, their
checkpoints, and decisions about approvals among them (the record keeps those). A spawner among them
reads its list anew and makes a new fan-out; the old one with its children is put aside, to be
looked at. Merges above the run open again, up to the root, as in every retry.

All of it is one transaction. A run that has not ended is refused, and so is a spawner some of whose
children have not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from suimon.core import shape
from suimon.core.suggest import did_you_mean
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, InputRefused
from suimon.run import audit, lane, retry, wake
from suimon.run.read import named
from suimon.run.retry import Facts, Plan

SQL = statements(__package__, "again.sql")


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What would run again: the steps of this run in their order, and the merges above it."""

    run: Facts
    steps: tuple[str, ...]
    lists: tuple[str, ...]
    above: Plan

    def to_json(self) -> dict[str, Any]:
        parts = self.above.to_json()
        return {
            "run": self.run.id,
            "steps": list(self.steps),
            "lists_read_again": list(self.lists),
            "merges_again": parts["merges_again"],
        }


def plan(conn: Connection, run_id: str, vertex: str) -> StepPlan:
    """What a retry of this step would do. Raises RunNotFound, InputRefused, Conflict."""
    (run,) = retry.facts(conn, [run_id])
    retry.may_open(conn, [run])
    if run.status in ("queued", "running", "waiting"):
        msg = f"run {run_id} is {run.status}; a step is retried when its run has ended"
        raise Conflict(msg, run_id=run_id, hint=f"End it first: suimon runs cancel {run_id}")
    graph = retry.graph_of(conn, run.graph_id)
    known = shape.vertices(graph)
    if run.vertex is not None:
        msg = f"run {run_id} is a child with one step; retry it as a whole"
        raise InputRefused(msg, path="step", hint=f"suimon runs retry {run_id}")
    if vertex not in known:
        msg = f'pipeline "{run.pipeline}" has no vertex "{vertex}"'
        hint = did_you_mean(vertex, known) or f"It has: {', '.join(list(known)[:20])}"
        raise InputRefused(msg, path="step", hint=hint)
    steps = _steps(graph, vertex)
    lists = [name for name in steps if name in known and _has_list(graph, name)]
    above = Plan(runs=[run])
    retry.add_parents(conn, above)
    return StepPlan(run, tuple(steps), tuple(lists), above)


def apply(conn: Connection, made: StepPlan, *, actor: str, why: str = "") -> None:
    """Do what the plan says. Raises Conflict when the run is not what it was any more."""
    run, parents = made.run, made.above.parents
    lanes = {one.lane for one in [run, *parents] if one.lane is not None}

    def act() -> None:
        with transaction(conn):
            if lanes:
                lane.lock(conn, lanes)
            conn.execute(retry.SQL.keep_roots, {"ids": [run.id]})
            reopened = conn.execute(retry.SQL.reopen, {"ids": [run.id]}).fetchall()
            if not reopened:
                msg = f"run {run.id} has changed meanwhile"
                raise Conflict(msg, run_id=run.id, hint=f"Look: suimon runs show {run.id}")
            forgotten = _forget(conn, run.id, made.steps)
            _put_aside(conn, run.id, made.lists)
            pools = {row[3] for row in reopened if row[2] is None}
            above = {"ids": [parent.id for parent in parents]}
            pools |= {row[0] for row in conn.execute(retry.SQL.look_again, above).fetchall()}
            for parent in parents:  # from the lowest to the root: lock order
                rows = conn.execute(retry.SQL.reopen, {"ids": [parent.id]}).fetchall()
                if rows:
                    conn.execute(retry.SQL.forget_failed_steps, {"ids": [parent.id]})
                pools |= {row[3] for row in rows if row[2] is None}
            ids, names = [r for r, _ in made.above.forget], [v for _, v in made.above.forget]
            conn.execute(retry.SQL.forget_steps, {"ids": ids, "vertices": names})
            detail = {**made.to_json(), "decisions": forgotten, "was": run.status}
            audit.note(conn, "retry_step", [run.id], actor=actor, why=why, detail=detail)
            wake.wake(conn, pools)

    retrying(act)
    retry.restore_lanes(conn, lanes)
    lane.admit(conn, lanes)


def _steps(graph: dict[str, Any], vertex: str) -> list[str]:
    """The vertex and all that needs it, in their order, with the merges nobody wrote."""
    wanted = {vertex} | shape.downstream(graph, vertex)
    steps = [name for name in shape.order(graph) if name in wanted]
    unmerged: Collection[str] = shape.unmerged(graph)
    return steps + [shape.implicit_merge(name) for name in steps if name in unmerged]


def _has_list(graph: dict[str, Any], vertex: str) -> bool:
    """Does this vertex make children: a spawner, another pipeline's start, a task elsewhere?"""
    kind = shape.kind(graph, vertex)
    return kind in (shape.SPAWNER, shape.START) or (
        kind == shape.TASK and shape.in_other_pool(graph, vertex)
    )


def _forget(conn: Connection, run_id: str, steps: Collection[str]) -> list[dict[str, Any]]:
    names = list(steps)
    rows = conn.execute(SQL.forget_approvals, {"run": run_id, "vertices": names}).fetchall()
    ids = [run_id] * len(names)
    conn.execute(retry.SQL.forget_steps, {"ids": ids, "vertices": names})
    conn.execute(retry.SQL.forget_failed_steps, {"ids": [run_id]})
    return [named(("vertex", "decision", "by", "at"), row) for row in rows]


def _put_aside(conn: Connection, run_id: str, vertices: Collection[str]) -> None:
    rows = conn.execute(SQL.lists, {"run": run_id, "vertices": list(vertices)}).fetchall()
    for _, vertex, complete, unsealed in rows:
        if unsealed:
            msg = f'the list of "{vertex}" was cut short; a new one would leave its children behind'
            raise Conflict(msg, run_id=run_id, hint=f"Go on with it: suimon runs retry {run_id}")
        if not complete:
            msg = f'some children of "{vertex}" have not ended'
            raise Conflict(msg, run_id=run_id, hint="Wait for them, or cancel them first.")
    for row in rows:
        conn.execute(SQL.put_aside, {"fanouts": [row[0]]})
