"""An operator's retry: one run, the selected, all failed children, below a settled merge too.

What is undone is undone all the way up: the fan-out of a retried child opens again, its parent goes
back to ``queued`` with the merge and everything after it forgotten, and so does every merge above,
up to the root. The order keeps a merge from running before all are re-opened: one transaction holds
the fan-outs and re-opens the parents; then the children follow in batches of 500; last the hold is
lifted. A hold ends by itself a minute after its last batch, so a crash leaves nothing shut.

``plan`` says beforehand what would run again; ``apply`` does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from suimon.core import shape
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, RunNotFound
from suimon.run import claim, finish, lane, wake

SQL = statements(__package__, "retry.sql")

BATCH: Final = 500
DEPTH: Final = 64
BAD: Final = ("failed", "timed_out", "cancelled")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a retry must know of one run."""

    id: str
    status: str
    parent_id: str | None
    root_id: str
    fanout_id: int | None
    lane: str | None
    pipeline: str
    pool: str
    graph_id: int
    vertex: str | None
    spawned_by: str | None
    #: not 1: of a list that a retry of its spawner has replaced
    generation: int


@dataclass(slots=True)
class Plan:
    """What would run again: single runs, bad children of fan-outs, and the merges above them."""

    runs: list[Facts] = field(default_factory=list)
    #: fan-out id → (its parent, its vertex, children that would run again, the states meant)
    fanouts: dict[int, tuple[str, str, int, tuple[str, ...]]] = field(default_factory=dict)
    #: parents whose merge runs again, from the lowest to the root
    parents: list[Facts] = field(default_factory=list)
    forget: list[tuple[str, str]] = field(default_factory=list)

    @property
    def children(self) -> int:
        return sum(n for _, _, n, _ in self.fanouts.values())

    def to_json(self) -> dict[str, Any]:
        """What ``--dry-run`` prints."""
        return {
            "runs": [r.id for r in self.runs],
            "fanouts": [
                {"fanout": f, "run": parent, "vertex": vertex, "children": n}
                for f, (parent, vertex, n, _) in self.fanouts.items()
            ],
            "children": self.children,
            "merges_again": [
                {
                    "run": p.id,
                    "pipeline": p.pipeline,
                    "steps": [v for r, v in self.forget if r == p.id],
                }
                for p in self.parents
            ],
        }


def plan(conn: Connection, ids: Sequence[str], *, failed_children: bool = False) -> Plan:
    """What a retry of these runs would do. Raises RunNotFound, Conflict (nothing to retry)."""
    made = Plan()
    runs = facts(conn, ids)
    may_open(conn, runs)
    for run in runs:
        if failed_children:
            _add_children(conn, made, run, BAD, depth=0)
            if not made.fanouts:
                msg = f"run {run.id} has no failed children"
                raise Conflict(msg, hint=f"See them: suimon runs children {run.id}")
            if run.status in BAD and _cut_short(conn, run):
                made.runs.append(run)
        else:
            _add_run(conn, made, run)
    add_parents(conn, made)
    return made


def apply(conn: Connection, made: Plan, *, actor: str, why: str = "") -> int:
    """Do what the plan says; returns how many runs went back to ``queued``, merges not counted."""
    parents = [p for p in made.parents if p.id not in {r.id for r in made.runs}]
    _open_parents(conn, made, parents)
    done = 0
    singles = [r.id for r in made.runs]
    for start in range(0, len(singles), BATCH):
        batch = made.runs[start : start + BATCH]
        done += _reopen(conn, [r.id for r in batch], {r.lane for r in batch if r.lane is not None})
    for fanout, (_, _, _, statuses) in made.fanouts.items():
        done += _reopen_children(conn, fanout, statuses)
    _lift(conn, made)
    for run in [*made.runs[:100], *made.parents[:100]]:
        detail = orjson.dumps({"why": why, **_part(made, run)}).decode()
        conn.execute(
            SQL.note, {"actor": actor, "action": "retry", "target": run.id, "detail": detail}
        )
    return done


def _part(made: Plan, run: Facts) -> dict[str, Any]:
    """What is done to this run itself; each run of the act has a record of its own."""
    steps = [vertex for owner, vertex in made.forget if owner == run.id]
    lists = {v: n for owner, v, n, _ in made.fanouts.values() if owner == run.id}
    return {
        **({"steps_again": steps} if steps else {}),
        **({"children_again": lists} if lists else {}),
    }


def merge_again(conn: Connection, made: Plan) -> None:
    """The merges of the plan and what follows them, no child: their arithmetic has changed."""
    _open_parents(conn, made, made.parents)
    _lift(conn, made)


# --------------------------------------------------------------------------- planning


def may_open(conn: Connection, runs: Sequence[Facts]) -> None:
    """Raises Conflict when one of these is being removed, or is of a list that was replaced."""
    row = conn.execute(SQL.pruning, {"ids": [r.id for r in runs]}).fetchone()
    if row is not None:
        msg = f"run {row[0]} is being removed, as its pipeline's keep says"
        raise Conflict(msg, run_id=row[0], hint="Start it anew: suimon runs rerun, or suimon run")
    for run in runs:
        if run.generation != 1:
            msg = f'run {run.id} is of an earlier list of "{run.spawned_by}", which was read again'
            hint = f"Its children now: suimon runs children {run.parent_id}"
            raise Conflict(msg, run_id=run.id, hint=hint)


def facts(conn: Connection, ids: Sequence[str]) -> list[Facts]:
    """What a retry must know of these runs, in the order given. Raises RunNotFound."""
    found = {row[0]: Facts(*row) for row in conn.execute(SQL.facts, {"ids": list(ids)}).fetchall()}
    missing = [i for i in ids if i not in found]
    if missing:
        msg = f"there is no run {missing[0]}"
        raise RunNotFound(msg, hint="List them: suimon runs list")
    return [found[i] for i in ids]


def _add_run(conn: Connection, made: Plan, run: Facts) -> None:
    if run.status not in BAD:
        msg = f"run {run.id} is {run.status}; there is nothing to retry"
        hint = "Only a run that ended failed, timed_out or cancelled is retried."
        raise Conflict(msg, hint=hint)
    for row in conn.execute(SQL.fanouts_of, {"ids": [run.id]}).fetchall():
        if row[4] == "failed" and run.status != "cancelled":
            msg = f"run {run.id} failed because of its children; alone it would only fail again"
            raise Conflict(msg, hint=f"Retry them: suimon runs retry {run.id} --failed-children")
    made.runs.append(run)
    if run.status == "cancelled":
        _add_children(conn, made, run, ("cancelled",), depth=0)


def _add_children(
    conn: Connection, made: Plan, run: Facts, statuses: tuple[str, ...], *, depth: int
) -> None:
    """Every fan-out below this run with children in these states, the lowest ones first.

    A child that only merges again is a parent, no child of the count.
    """
    if depth > DEPTH:
        return
    for fanout, parent, vertex, *_ in conn.execute(SQL.fanouts_of, {"ids": [run.id]}).fetchall():
        count, after = 0, -1
        while True:
            rows = conn.execute(
                SQL.bad_children, {"fanout": fanout, "after": after, "statuses": list(statuses)}
            ).fetchall()
            if not rows:
                break
            count += len(rows)
            after = rows[-1][2]
            for child in facts(conn, [r[0] for r in rows if r[4]]):
                known = len(made.fanouts)
                _add_children(conn, made, child, statuses, depth=depth + 1)
                count -= len(made.fanouts) > known
        if count:
            made.fanouts[fanout] = (parent, vertex, count, statuses)


def _cut_short(conn: Connection, run: Facts) -> bool:
    """Whether this run's spawner never sealed: then it is retried with its children."""
    rows = conn.execute(SQL.fanouts_of, {"ids": [run.id]}).fetchall()
    return any(row[5] is None for row in rows)


def add_parents(conn: Connection, made: Plan) -> None:
    """Every run above what is retried, up to the root, and the steps it will do again."""
    graphs: dict[int, dict[str, Any]] = {}
    seen: set[str] = set()
    below: list[tuple[str | None, str | None]] = [(r.parent_id, r.spawned_by) for r in made.runs]
    below += [(parent, vertex) for parent, vertex, _, _ in made.fanouts.values()]
    for _ in range(DEPTH):
        level = [(p, v) for p, v in below if p is not None and v is not None]
        if not level:
            break
        below = []
        for parent in facts(conn, sorted({p for p, _ in level})):
            graph = _graph(conn, graphs, parent.graph_id)
            for vertex in sorted({v for p, v in level if p == parent.id}):
                again = shape.affected_by_remerge(graph, vertex)
                made.forget += [(parent.id, step) for step in again]
            if parent.id not in seen:
                seen.add(parent.id)
                made.parents.append(parent)
                below.append((parent.parent_id, parent.spawned_by))
    made.forget = list(dict.fromkeys(made.forget))  # steps after two spawners come twice


def graph_of(conn: Connection, graph_id: int) -> dict[str, Any]:
    """The graph with this number."""
    return _graph(conn, {}, graph_id)


def _graph(conn: Connection, known: dict[int, dict[str, Any]], graph_id: int) -> dict[str, Any]:
    if graph_id not in known:
        row = conn.execute(claim.SQL.graphs, {"ids": [graph_id]}).fetchone()
        assert row is not None
        known[graph_id] = orjson.loads(row[2])
    return known[graph_id]


# ------------------------------------------------------------------------------------------ doing


def _open_parents(conn: Connection, made: Plan, parents: Sequence[Facts]) -> None:
    """Hold the fan-outs, forget the steps, re-open the parents that had ended: one transaction."""
    lanes = {p.lane for p in [*parents, *made.runs] if p.lane is not None}
    held = sorted({*made.fanouts, *(r.fanout_id for r in made.runs if r.fanout_id is not None)})

    def act() -> set[str]:
        with transaction(conn):
            if lanes:
                lane.lock(conn, lanes)
            conn.execute(SQL.hold, {"fanouts": held})
            conn.execute(SQL.keep_roots, {"ids": [p.id for p in parents]})
            may_open(conn, parents)
            behind = conn.execute(SQL.look_again, {"ids": [p.id for p in parents]}).fetchall()
            pools: set[str] = {row[0] for row in behind}
            ids = [r for r, _ in made.forget]
            conn.execute(SQL.forget_steps, {"ids": ids, "vertices": [v for _, v in made.forget]})
            for parent in parents:  # from the lowest to the root: lock order
                # one that ran when the plan was made may have ended since: its state now counts
                rows = conn.execute(SQL.reopen, {"ids": [parent.id]}).fetchall()
                if rows:
                    conn.execute(SQL.forget_failed_steps, {"ids": [parent.id]})
                pools |= {row[3] for row in rows if row[2] is None}
            wake.wake(conn, pools)
            return pools

    retrying(act)
    lane.admit(conn, lanes)


def _reopen(conn: Connection, ids: Sequence[str], lanes: set[str]) -> int:
    def act() -> int:
        with transaction(conn):
            if lanes:
                lane.lock(conn, lanes)
            conn.execute(SQL.keep_roots, {"ids": list(ids)})
            conn.execute(SQL.forget_failed_steps, {"ids": list(ids)})
            conn.execute(SQL.unseal, {"ids": list(ids)})
            rows = conn.execute(SQL.reopen, {"ids": list(ids)}).fetchall()
            wake.wake(conn, {row[3] for row in rows if row[2] is None})
            return len(rows)

    done = retrying(act)
    restore_lanes(conn, lanes)
    lane.admit(conn, lanes)
    return done


def restore_lanes(conn: Connection, lanes: set[str]) -> None:
    """Make again the rows of lanes that somebody waits in and that were dropped meanwhile."""
    lane.make_rows(conn, _lost_lanes(conn, lanes))


def _lost_lanes(conn: Connection, lanes: set[str]) -> list[tuple[str, int | None, str | None]]:
    """A spawn's lane was dropped after its fan-out had settled; its limit stands on its runs."""
    found = conn.execute(SQL.lane_limits, {"lanes": sorted(lanes)}).fetchall()
    return [(row[0], row[1], str(row[2]) if row[2] is not None else None) for row in found]


def _reopen_children(conn: Connection, fanout: int, statuses: tuple[str, ...]) -> int:
    done, after = 0, -1
    while True:
        rows = conn.execute(
            SQL.bad_children, {"fanout": fanout, "after": after, "statuses": list(statuses)}
        ).fetchall()
        if not rows:
            return done
        after = rows[-1][2]
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            done += _reopen(conn, [r[0] for r in batch], {r[3] for r in batch if r[3] is not None})


def _lift(conn: Connection, made: Plan) -> None:
    held = sorted({*made.fanouts, *(r.fanout_id for r in made.runs if r.fanout_id is not None)})

    def act() -> None:
        with transaction(conn):
            conn.execute(SQL.lock_fanouts, {"fanouts": held})
            conn.execute(SQL.lift, {"fanouts": held})
            follows = finish.settled(finish.send_settle(conn, held))
            wake.wake(conn, follows.pools)

    if held:
        retrying(act)
