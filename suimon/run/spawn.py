"""A fan-out: opening it, storing its children chunk by chunk, sealing it.

The list is read as a stream in the slot; each chunk becomes child runs in a transaction of its own
that begins by locking the parent under its fence. Child i has the id base + i, so the primary key
itself is the item's idempotency key, and a re-delivered spawner that had not sealed reads its list
from the start again: what exists is re-attached, what never started is created, and a list that has
changed is refused (``ItemsChanged``). After the seal the source is never read again.

Zero items, or children that have all ended before the seal: the seal's own settle sees it. Nobody
else would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import DuplicateKeys, ItemsChanged
from suimon.run import finish, lane, wake

SQL = statements(__package__, "spawn.sql")

#: Rows of one page of a merge's stream.
PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Child:
    """What is the same for all children of a fan-out. ``vertex``: None if they are a pipeline."""

    pipeline: str
    graph_id: int
    vertex: str | None
    pool: str
    priority: int
    max_interruptions: int
    lane: str | None
    lane_limit: int | None
    own_lane: bool
    lane_per: str | None = None
    holds_lane: bool = False
    follows: bool = False  # no pool was named for them: it may be changed live


@dataclass(frozen=True, slots=True)
class Policy:
    """How the merge of this fan-out will judge; see ``core/tolerance.py``."""

    tolerate: tuple[str, ...] = ()
    max_failures: int | None = None
    max_failure_ratio: str | None = None
    fail_fast: bool = False
    stragglers: str = "cancel"
    grace_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Fanout:
    """An open fan-out as its spawner sees it."""

    id: int
    base: str
    state: str
    expected: int | None
    lane: str | None
    cancelling: bool


@dataclass(frozen=True, slots=True)
class FanoutState:
    """A fan-out as its merge sees it; ``settled_for_s`` seconds have passed since the settle."""

    parent_id: str
    vertex: str
    id: int
    base: str
    expected: int | None
    succeeded: int
    failed: int
    timed_out: int
    cancelled: int
    state: str
    verdict: str | None
    allowed: int | None
    stragglers: str
    cancelling: bool
    complete: bool
    settled_for_s: float


@dataclass(frozen=True, slots=True)
class Holder:
    """Who writes: the claim of the parent."""

    run_id: str
    claim_no: int
    worker: int


class LostRunError(Exception):
    """The parent is not ours any more, or was asked to stop; nothing was written."""


def fence(conn: Connection, holder: Holder) -> str:
    """Lock the parent under its fence; returns its root. Raises LostRunError."""
    row = conn.execute(
        SQL.fence, {"parent": holder.run_id, "worker": holder.worker, "claim_no": holder.claim_no}
    ).fetchone()
    if row is None or row[1]:
        raise LostRunError(holder.run_id)
    return str(row[0])


def _pool_now(conn: Connection, holder: Holder, child: Child) -> str:
    """The fence, and the pool of the children that are about to be made."""
    if not child.follows:
        fence(conn, holder)
        return child.pool
    row = conn.execute(
        SQL.fence_and_pool,
        {
            "parent": holder.run_id,
            "worker": holder.worker,
            "claim_no": holder.claim_no,
            "bare": child.vertex is not None,
            "pipeline": child.pipeline,
        },
        prepare=True,
    ).fetchone()
    if row is None or row[1]:
        raise LostRunError(holder.run_id)
    return str(row[2] or child.pool)


def open_fanout(
    conn: Connection,
    holder: Holder,
    *,
    vertex: str,
    base: str,
    policy: Policy,
    limit: int | None,
    shared: str | None,
) -> Fanout:
    """Make the fan-out of this vertex, or find the one an earlier try made.

    ``limit`` is how many of its children may live at once; None: no lane of its own. Raises
    LostRunError.
    """

    def act() -> Fanout:
        with transaction(conn):
            conn.execute(SQL.lock_earlier, {"parent": holder.run_id, "vertex": vertex})
            root = fence(conn, holder)
            small = shared is None or len(shared) <= finish.INLINE_BYTES
            if shared is not None and not small:
                finish.keep_payloads(conn, [(holder.run_id, f"shared:{vertex}", shared)])
            row = conn.execute(
                SQL.open,
                {
                    "parent": holder.run_id,
                    "root": root,
                    "vertex": vertex,
                    "base": base,
                    "tolerate": list(policy.tolerate),
                    "max_failures": policy.max_failures,
                    "max_failure_ratio": policy.max_failure_ratio,
                    "fail_fast": policy.fail_fast,
                    "stragglers": policy.stragglers,
                    "shared": shared if small else None,
                },
            ).fetchone()
            assert row is not None
            found = Fanout(*row)
            if limit is not None:
                named = conn.execute(SQL.name_lane, {"fanout": found.id}).fetchone()
                assert named is not None
                found = replace(found, lane=str(named[0]))
                conn.execute(SQL.make_flow, {"root": root})
        if found.lane is not None:
            lane.make_rows(conn, [(found.lane, limit, root)])
        return found

    return retrying(act)


def sub_lane(conn: Connection, run_id: str, wanted: str) -> str:
    """The lane a child really gets: under the place of an ancestor that already stands in it."""
    for ancestor, held in conn.execute(SQL.ancestor_lanes, {"run": run_id}).fetchall():
        if held == wanted:
            return f"{wanted}/{ancestor}"
    return wanted


def chunk(
    conn: Connection,
    holder: Holder,
    fanout: Fanout,
    child: Child,
    *,
    root_id: str,
    first: int,
    n: int,
    hashes: str,
    keys: Sequence[str] | None,
    items: str,
) -> tuple[int, bool]:
    """Store one chunk; ``items`` are JSON texts separated by RS, ``hashes`` an array literal.

    Returns (children created, whether the spawner should stop). Raises LostRunError and
    ItemsChanged; both leave nothing of this chunk behind.
    """
    place: Mapping[str, Any] = {"base": fanout.base, "first": first, "hashes": hashes}

    def act() -> tuple[int, bool]:
        with transaction(conn):
            pool = _pool_now(conn, holder, child)
            with conn.pipeline():
                born = conn.execute(
                    SQL.chunk,
                    {
                        **place,
                        "root": root_id,
                        "parent": holder.run_id,
                        "fanout": fanout.id,
                        "items": items,
                        "keys": list(keys) if keys is not None else None,
                        "ranks": n if child.lane is None else 0,
                        **asdict(child),
                        "pool": pool,
                    },
                    prepare=True,
                )
                state = conn.execute(SQL.state, {"fanout": fanout.id}, prepare=True)
                if child.lane is None:
                    wake.wake(conn, [pool])
            created = born.fetchone()
            now = state.fetchone()
            assert created is not None
            assert now is not None
            if created[0] < n:  # some stood there already: they must be of this very list
                check = {**place, "fanout": fanout.id}
                differs = conn.execute(SQL.check, check, prepare=True).fetchone()
                if differs is not None:
                    raise _changed(differs[0])
            return int(created[0]), now[0] != "open" or bool(now[1])

    created, stop = retrying(act)
    if child.lane is not None:
        # also for a chunk that is read again: who stored it may have died before it came to this
        lanes = [child.lane]
        if child.lane_per is not None:
            span = {"base": fanout.base, "first": first, "n": n}
            lanes = [row[0] for row in conn.execute(SQL.lanes_of, span).fetchall()]
            lane.make_rows(conn, [(name, child.lane_limit, None) for name in lanes])
        lane.admit(conn, lanes)
    return created, stop


def seal(
    conn: Connection, holder: Holder, fanout: Fanout, *, n: int, keyed: bool
) -> tuple[int | None, finish.Settled]:
    """The list has ended after ``n`` items: fix what is expected, and settle if all have ended.

    Returns (failures allowed, what follows). Raises LostRunError, ItemsChanged (the list has become
    shorter) and DuplicateKeys (20 of them named).
    """

    def act() -> tuple[int | None, finish.Settled]:
        with transaction(conn):
            conn.execute(SQL.lock, {"fanout": fanout.id})
            fence(conn, holder)
            beyond = conn.execute(SQL.beyond, {"base": fanout.base, "n": n}).fetchone()
            if beyond is not None:
                raise _shorter(n, beyond[0])
            if keyed:
                twice = conn.execute(SQL.duplicates, {"base": fanout.base, "n": n}).fetchall()
                if twice:
                    raise _duplicates(twice)
            row = conn.execute(SQL.seal, {"fanout": fanout.id, "n": n}).fetchone()
            follows = finish.settled(finish.send_settle(conn, [fanout.id]))
            return (None if row is None else row[0]), follows

    return retrying(act)


def of_parents(conn: Connection, ids: Sequence[str]) -> list[FanoutState]:
    """The fan-outs of these runs."""
    return [
        FanoutState(*row) for row in conn.execute(SQL.of_parents, {"ids": list(ids)}).fetchall()
    ]


def visible_to(conn: Connection, run_id: str, own_fanout: int | None, fanout: int) -> str | None:
    """The base of a fan-out that this run may read: its own, or one of its parent's."""
    params = {"run": run_id, "own_fanout": own_fanout, "fanout": fanout}
    row = conn.execute(SQL.visible, params).fetchone()
    return None if row is None else str(row[0])


def shared_of(conn: Connection, fanouts: Sequence[int]) -> dict[int, str | None]:
    """Fan-out → the JSON text of its shared inputs."""
    found = conn.execute(SQL.shared, {"ids": sorted(set(fanouts))}).fetchall()
    return {int(i): text for i, text in found}


def first_failures(
    conn: Connection, fanout: int
) -> list[tuple[int, str | None, str, str | None, str]]:
    """(position, key, state, error JSON, run id) of the first 20 children that ended badly."""
    return [tuple(row) for row in conn.execute(SQL.first_failures, {"fanout": fanout}).fetchall()]


def page(
    conn: Connection, fanout: int, base: str, which: str, after: int, limit: int
) -> list[tuple[Any, ...]]:
    """A page of a merge's stream in item order, at most 1,000 rows; ``after``: -1 at the start."""
    n = max(1, min(limit, PAGE))
    if which == "failed":
        params: dict[str, Any] = {"fanout": fanout, "after": after, "n": n}
        return conn.execute(SQL.failed_page, params).fetchall()
    if after < 0:
        return conn.execute(SQL.succeeded_first_page, {"base": base, "n": n}).fetchall()
    return conn.execute(SQL.succeeded_page, {"base": base, "after": after, "n": n}).fetchall()


def _changed(position: int) -> ItemsChanged:
    msg = f"the item at position {position} is not the one it was when its child was made"
    return ItemsChanged(
        msg,
        detail="A spawner that is read again must meet the same list: its children exist already.",
        hint="Put the old list back and retry this run, or start a new run with the new list.",
    )


def _shorter(n: int, last: int) -> ItemsChanged:
    msg = f"the list ended after {n} items, but children up to position {last} exist"
    return ItemsChanged(
        msg,
        detail="It was longer when this spawner read it before.",
        hint="Put the old list back and retry this run, or start a new run with the new list.",
    )


def _duplicates(rows: Sequence[tuple[Any, ...]]) -> DuplicateKeys:
    named = "; ".join(f'"{key}" at {", ".join(map(str, at[:5]))}' for key, at, _ in rows[:20])
    more = "" if len(rows) < 20 else " (the first 20)"
    msg = f"{len(rows)} item keys stand more than once in the list{more}: {named}"
    return DuplicateKeys(
        msg,
        hint="Make the key unique, or leave key= out: without it each position is its own item.",
    )
