"""Which pool a pipeline's runs are for, changed live; what waits in the old pool moves after it.

A definition declares the pool, somebody may set another, and from then on a deploy leaves it alone
until the override is taken back. The edit is one row and in force with its commit: whoever starts
runs reads it. Its runs that are there already follow in batches, parents before what they make:
those that run or are parked (they come back to the new pool), those in the queue (in their order,
from the new pool's head on), those that stand in lanes or are held back. Whose spawner or vertex
names a pool itself stays there.

The row says that runs are on their way (``moving_from``) until a pass that began when nobody could
still be reading the old pool has found nothing: ``sweep`` goes on, and looks once more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, InputRefused
from suimon.run import audit, submit, wake

SQL = statements(__package__, "moving.sql")

#: Passes over everything that waits, of one call; the sweep goes on from there.
PASSES: Final = 5
#: Runs of one transaction.
BATCH: Final = 1000
#: Pages of one source in one pass, each of at most 10,000 rows that are walked.
PAGES: Final = 1000
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}", re.ASCII)
_FIRST: Final = "00000000-0000-0000-0000-000000000000"
_LEAST: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class Choice:
    """``edited``: somebody's word, which a deploy leaves alone."""

    pool: str
    declared: str
    edited: bool


def current(conn: Connection, pipeline: str) -> Choice:
    """As it stands. Raises UnknownPipeline."""
    row = conn.execute(SQL.look, {"pipeline": pipeline}).fetchone()
    if row is None:
        raise submit.unknown(conn, pipeline)
    return Choice(*row)


def set_pool(
    conn: Connection,
    pipeline: str,
    pool: str | None,
    *,
    actor: str,
    why: str = "",
    expected: Choice | None = None,
) -> dict[str, Any]:
    """Its runs are for this pool from now on (None: for the declared one again).

    Returns ``{name, pool, declared_pool, pool_edited, moved, workers, warning}``; ``warning`` says
    that nobody serves the pool. Raises UnknownPipeline, InputRefused, and Conflict when it is not
    as ``expected``.
    """
    if pool is not None and not _NAME.fullmatch(pool):
        msg = f'"{pool}" cannot be the name of a pool'
        raise InputRefused(msg, path="pool", hint="Small letters, digits, _ and -: gpu-2")

    def act() -> Choice:
        with transaction(conn):
            row = conn.execute(SQL.lock, {"pipeline": pipeline}).fetchone()
            if row is None:
                raise submit.unknown(conn, pipeline)
            before = Choice(*row)
            if expected not in (None, before):
                msg = f'the pool of pipeline "{pipeline}" has changed meanwhile'
                raise Conflict(msg, hint=f"Look again: suimon pipelines show {pipeline}")
            after = Choice(pool or before.declared, before.declared, pool is not None)
            given = {"pipeline": pipeline, "pool": after.pool, "edited": after.edited}
            conn.execute(SQL.change, given)
            detail = {"from": before.pool, "to": after.pool, "declared": not after.edited}
            target = f"pipeline:{pipeline}"
            audit.note(conn, "set-pool", [target], actor=actor, why=why, detail=detail)
            return after

    after = retrying(act)
    moved = move(conn, pipeline)
    row = conn.execute(SQL.workers, {"pool": after.pool}).fetchone()
    alive = int(row[0]) if row else 0
    warning = None
    if not alive:
        warning = (
            f"no worker of pool {after.pool} is alive: its runs wait until one is; "
            f"start one: suimon worker PATH --pool {after.pool}"
        )
    return {
        "name": pipeline,
        "pool": after.pool,
        "declared_pool": after.declared,
        "pool_edited": after.edited,
        "moved": moved,
        "workers": alive,
        "warning": warning,
    }


def move(conn: Connection, pipeline: str) -> int:
    """Move what waits in a pool that it has left; returns how many runs. Idempotent."""
    with transaction(conn):
        conn.execute(SQL.set_mark, {"pipeline": pipeline})
    total = 0
    for _ in range(PASSES):
        row = conn.execute(SQL.moving, {"pipeline": pipeline}).fetchone()
        if row is None:
            break
        safe = conn.execute(SQL.safe, {"pipeline": pipeline}).fetchone()
        one = _Move(conn, pipeline, str(row[0]), list(row[1]))
        moved = one.all()
        total += moved
        if moved:
            continue
        if safe and safe[0]:
            given = {"pipeline": pipeline, "pool": one.pool, "from": one.away}
            conn.execute(SQL.done, given)
        break
    return total


def sweep(conn: Connection) -> int:
    """The duty: moves that are not known to be finished, at most 1,000 pipelines."""
    names = [row[0] for row in conn.execute(SQL.unfinished).fetchall()]
    return sum(move(conn, name) for name in names)


@dataclass(slots=True)
class _Move:
    """One pass over everything of a pipeline that waits in the pools it is ``away`` from."""

    conn: Connection
    pipeline: str
    pool: str
    away: list[str]
    last: int = 0
    _named: dict[int, str | None] = field(default_factory=dict)

    def all(self) -> int:
        return sum(self._move(found) for found in self._pages())

    def _pages(self) -> Iterator[list[tuple[str, int | None]]]:
        yield from self._held()
        for pool in self.away:
            for priority in range(4):
                yield from self._ready(pool, priority)
            yield from self._held_back(pool)
        for name in self._lanes():
            yield from self._standing(name)

    def _rows(self, statement: Any, **given: Any) -> list[tuple[Any, ...]]:
        return self.conn.execute(statement, {"pipeline": self.pipeline, **given}).fetchall()

    def _held(self) -> Iterator[list[tuple[str, int | None]]]:
        after = _FIRST
        for _ in range(PAGES):
            rows = self._rows(SQL.held, **{"from": self.away}, after=after)
            if not rows:
                return
            after = rows[-1][0]
            yield [row[:2] for row in rows]

    def _ready(self, pool: str, priority: int) -> Iterator[list[tuple[str, int | None]]]:
        after, rank = _FIRST, _LEAST
        for _ in range(PAGES):
            where = {"from": pool, "priority": priority, "rank": rank, "after": after}
            rows = self._rows(SQL.ready, **where)
            if not rows:
                return
            after, rank = rows[-1][0], rows[-1][3]
            ours = [row[:2] for row in rows if row[4]]
            if ours and not self.last:
                given = {"pool": self.pool, "id": ours[0][0]}
                self.last = int(self._rows(SQL.moved_before, **given)[0][0])
            yield ours
            if rows[-1][5] < BATCH * 10:
                return

    def _held_back(self, pool: str) -> Iterator[list[tuple[str, int | None]]]:
        after, reason, rank = _FIRST, "", _LEAST
        for _ in range(PAGES):
            where = {"from": pool, "reason": reason, "rank": rank, "after": after}
            rows = self._rows(SQL.held_back, **where)
            if not rows:
                return
            after, reason, rank = rows[-1][0], rows[-1][2], rows[-1][3]
            yield [row[:2] for row in rows]

    def _lanes(self) -> Iterator[str]:
        after = ""
        for _ in range(PAGES):
            rows = self._rows(SQL.lanes, after=after)
            if not rows:
                return
            after = rows[-1][0]
            yield from (name for name, ours in rows if ours)

    def _standing(self, name: str) -> Iterator[list[tuple[str, int | None]]]:
        after = _LEAST
        for _ in range(PAGES):
            rows = self._rows(SQL.standing, lane=name, after=after)
            if not rows:
                return
            after = rows[-1][2]
            yield [row[:2] for row in rows]

    def _move(self, found: Sequence[tuple[str, int | None]]) -> int:
        """Those of one page that were given no pool by name."""
        new = sorted({f for _, f in found if f is not None and f not in self._named})
        if new:
            self._named |= dict(self._rows(SQL.named_pools, fanouts=new))
        ids = [run for run, fanout in found if fanout is None or self._named[fanout] is None]
        return sum(
            retrying(lambda part=ids[at : at + BATCH]: self._move_some(part))  # type: ignore[misc]
            for at in range(0, len(ids), BATCH)
        )

    def _move_some(self, ids: Sequence[str]) -> int:
        given = {"ids": list(ids), "from": self.away, "pool": self.pool, "last": self.last}
        with transaction(self.conn):
            count, last = self._rows(SQL.move, **given)[0]
            if count:
                wake.wake(self.conn, [self.pool])
        self.last = max(self.last, int(last))
        return int(count)
