"""Retention: finished runs go by age and by number, as their pipeline's ``keep`` says.

Nothing is pruned for a pipeline without ``keep``. A run goes when it is older than ``age`` (counted
from its end) or when ``count`` newer ones have ended; unfinished runs never go, and neither does
one that holds its lane. Only roots are judged: children go with their root.

First the root is marked, from when on a retry is refused. Then everything below it goes from the
leaves up, in batches of at most 500 runs, each a transaction of its own; its row goes last. A crash
leaves a marked root, and the next turn goes on with it. A child that still runs (it outlived the
grace of its merge) is left alone, and so is everything above it, until it has ended.

Idempotency keys stay: a file that still lies in the inbox is not run again (``pruned: true``).
Audit records stay too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from suimon.core import clock
from suimon.db.connect import Connection, retrying
from suimon.db.statements import statements
from suimon.outbox import retention
from suimon.run import pressure, quotas

SQL = statements(__package__, "prune.sql")

#: How long one turn of the duty works; what is left is done ten seconds later.
TURN_SECONDS: Final = 5.0
#: Levels of fan-outs below a root.
DEPTH: Final = 64
#: Roots that a preview counts of one pipeline.
PREVIEW: Final = 100_000
_FIRST_ID: Final = "0" * 32
_LAST_ID: Final = "f" * 32
_LARGE: Final = (
    ("drop_artifacts", 200),
    ("drop_payloads", 500),
    ("drop_logs", 2000),
    ("drop_checkpoints", 500),
)


@dataclass(frozen=True, slots=True)
class Keep:
    """What one pipeline says: an age in seconds, a number of runs, or both."""

    pipeline: str
    age_s: float | None
    count: int | None


@dataclass(slots=True)
class Pruned:
    """What has gone. ``left``: time was up, or something below a root still runs."""

    roots: int = 0
    runs: int = 0
    waits: int = 0
    left: bool = False
    by_pipeline: dict[str, int] = field(default_factory=dict)


class _TimeUpError(Exception):
    """The turn is over; what is left is found again by its marks."""


class _Turn:
    """One pass, with the time it may take and somebody who is told."""

    def __init__(
        self, conn: Connection, seconds: float | None, each: Callable[[Pruned], None] | None
    ) -> None:
        self.conn = conn
        self.done = Pruned()
        self._each = each
        self._until = None if seconds is None else clock.monotonic() + seconds

    def look(self) -> None:
        """Tell, and stop when the time is up."""
        if self._each is not None:
            self._each(self.done)
        if self._until is not None and clock.monotonic() >= self._until:
            raise _TimeUpError


def duty(conn: Connection) -> int:
    """One turn of the duty: runs, then what ended at the doors, each at most ``TURN_SECONDS``
    long; returns how many went.
    """
    done = prune(conn, seconds=TURN_SECONDS)
    rows, left = retention.prune(conn, seconds=TURN_SECONDS)
    if done.left or left:
        conn.execute(SQL.again_soon)
    pressure.prune_again(conn)
    return done.runs + rows


def prune(
    conn: Connection,
    *,
    pipeline: str | None = None,
    seconds: float | None = None,
    each: Callable[[Pruned], None] | None = None,
) -> Pruned:
    """Remove what may go, oldest first; ``each`` is called between batches.

    What an earlier turn has marked comes first, whatever its pipeline says now.
    """
    turn = _Turn(conn, seconds, each)
    try:
        _finish_marked(turn)
        for keep in policies(conn, pipeline):
            for ids in _leaving(conn, keep):
                marked = _mark(conn, ids)
                turn.done.by_pipeline[keep.pipeline] = turn.done.by_pipeline.get(
                    keep.pipeline, 0
                ) + len(marked)
                for root in marked:
                    _drop_root(turn, root)
    except _TimeUpError:
        turn.done.left = True
    if turn.done.runs:
        pressure.look(conn)  # there may be room now for who was deferred
    return turn.done


def policies(conn: Connection, pipeline: str | None = None) -> list[Keep]:
    """Every pipeline whose current graph has ``keep``."""
    return [Keep(*row) for row in conn.execute(SQL.policies, {"pipeline": pipeline}).fetchall()]


def preview(conn: Connection, pipeline: str | None = None) -> list[dict[str, Any]]:
    """What would go, by pipeline: roots (at most 100,000 counted) and their direct children."""
    found = []
    for keep in policies(conn, pipeline):
        roots = children = 0
        for ids in _leaving(conn, keep):
            roots += len(ids)
            row = conn.execute(SQL.children_of, {"ids": ids}).fetchone()
            children += int(row[0]) if row else 0
            if roots >= PREVIEW:
                break
        found.append(
            {
                "pipeline": keep.pipeline,
                "keep_s": keep.age_s,
                "keep_count": keep.count,
                "roots": roots,
                "children": children,
            }
        )
    return found


def unlimited(conn: Connection) -> list[str]:
    """Pipelines that keep everything; at most 1,000."""
    return [row[0] for row in conn.execute(SQL.without_policy).fetchall()]


# ------------------------------------------------------------------------------- who goes


def _leaving(conn: Connection, keep: Keep) -> Iterator[list[str]]:
    """Pages of roots that may go by age, then of those that are too many; at most 1,000 each."""
    if keep.age_s is not None:
        row = conn.execute(SQL.id_at, {"age_s": keep.age_s}).fetchone()
        assert row is not None
        yield from _pages(conn, keep.pipeline, str(row[0]), keep.age_s)
    if keep.count is not None:
        where = {"pipeline": keep.pipeline, "kept": keep.count}
        row = conn.execute(SQL.beyond, where).fetchone()
        if row is not None:
            # those that are too old have been told above
            for ids in _pages(conn, keep.pipeline, str(row[0]), None):
                old = _too_old(conn, keep, ids)
                if fresh := [one for one in ids if one not in old]:
                    yield fresh


def _pages(conn: Connection, pipeline: str, last: str, age_s: float | None) -> Iterator[list[str]]:
    after = _FIRST_ID
    while True:  # each page begins after the one before, up to `last`
        where = {"pipeline": pipeline, "after": after, "last": last, "age_s": age_s}
        rows = conn.execute(SQL.page, where).fetchall()
        if not rows:
            return
        after = rows[-1][0]
        if ids := [row[0] for row in rows if row[1]]:
            yield ids


def _too_old(conn: Connection, keep: Keep, ids: Sequence[str]) -> set[str]:
    """Which of these an age has judged already, so that a preview counts nobody twice."""
    if keep.age_s is None:
        return set()
    rows = conn.execute(
        SQL.page,
        {"pipeline": keep.pipeline, "after": _before(ids[0]), "last": ids[-1], "age_s": keep.age_s},
    ).fetchall()
    return {row[0] for row in rows if row[1]}


def _before(run_id: str) -> str:
    """The id just below this one."""
    return f"{int(run_id.replace('-', ''), 16) - 1:032x}"


def _mark(conn: Connection, ids: Sequence[str]) -> list[str]:
    rows = retrying(lambda: conn.execute(SQL.mark, {"ids": list(ids)}).fetchall())
    quotas.free_all(conn)  # afterwards nobody can tell what they did not use
    return sorted(str(row[0]) for row in rows)


# ------------------------------------------------------------------------------- from the leaves up


def _finish_marked(turn: _Turn) -> None:
    after = _FIRST_ID
    while rows := turn.conn.execute(SQL.marked, {"after": after}).fetchall():
        for (root,) in rows:
            _drop_root(turn, root)
            after = root


def _drop_root(turn: _Turn, root: str) -> None:
    _drop_below(turn, root, root, depth=0)
    alone = turn.conn.execute(SQL.first_ended, {"low": root, "high": root}).fetchone()
    if alone is not None:
        _drop_runs(turn, [root])
        turn.done.roots += 1
        turn.look()
    else:  # something below it still runs
        turn.done.waits += 1
        turn.done.left = True


def _drop_below(turn: _Turn, low: str, high: str, *, depth: int) -> None:
    """Every fan-out whose parent is in this range of ids, with all that is below it."""
    assert depth <= DEPTH, "fan-outs are nested deeper than they can be"
    after = (_FIRST_ID, 0)
    while True:  # each page begins after the one before
        where = {"low": low, "high": high, "after_parent": after[0], "after": after[1]}
        rows = turn.conn.execute(SQL.fanouts_between, where).fetchall()
        if not rows:
            return
        for fanout, parent, base, _vertex in rows:
            after = (parent, fanout)
            first, last = base[:28] + "00000000", base[:28] + "7fffffff"
            _drop_below(turn, first, last, depth=depth + 1)
            _drop_children(turn, first, last)
            turn.conn.execute(SQL.drop_fanout, {"fanout": fanout})


def _drop_children(turn: _Turn, low: str, high: str) -> None:
    rows = turn.conn.execute(SQL.first_ended, {"low": low, "high": high}).fetchall()
    while rows:
        ids = [str(row[0]) for row in rows]
        _drop_runs(turn, ids)
        turn.look()
        rows = turn.conn.execute(SQL.next_ended, {"after": ids[-1], "high": high}).fetchall()


def _drop_runs(turn: _Turn, ids: Sequence[str]) -> None:
    """These runs with all that is kept of them, the large things first and piece by piece."""
    given = {"ids": list(ids)}
    for name, limit in _LARGE:
        while _drop_large(turn.conn, name, given) >= limit:
            turn.look()
    turn.done.runs += retrying(lambda: turn.conn.execute(SQL.drop_runs, given).rowcount)


def _drop_large(conn: Connection, name: str, given: dict[str, list[str]]) -> int:
    """One bounded statement; it takes contents along, which others may hold just then."""
    return retrying(lambda: conn.execute(SQL[name], given).rowcount)
