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
from typing import Any

from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import DuplicateKeys, ItemsChanged
from suimon.run import finish, lane, pressure, quotas, wake
from suimon.store import payload
from suimon.store.payload import Kept

SQL = statements(__package__, "spawn.sql")


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
    watched: bool = False  # room in the store has to be asked for


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


@dataclass(frozen=True, slots=True)
class List:
    """What is known of the list that a chunk belongs to: the bytes that its large items will take
    (None: unknown), and whether its step was deferred before.
    """

    vertex: str
    ahead: int | None = None
    deferred: bool = False


class LostRunError(Exception):
    """The parent is not ours any more, or was asked to stop; nothing was written."""


class DeferredError(Exception):
    """The store has no room for this fan-out; its step says so, and when the next try comes."""

    def __init__(self, later_s: float) -> None:
        super().__init__(later_s)
        self.later_s = later_s


def fence(conn: Connection, holder: Holder) -> str:
    """Lock the parent under its fence; returns its root. Raises LostRunError."""
    row = conn.execute(SQL.fence, _claim_of(holder)).fetchone()
    if row is None or row[1]:
        raise LostRunError(holder.run_id)
    return str(row[0])


def _fence_and_pool(conn: Connection, holder: Holder, child: Child) -> tuple[str, bool]:
    """The same for a chunk: its children's pool, and whether room in the store has to be asked."""
    params = {
        **_claim_of(holder), "follows": child.follows, "bare": child.vertex is not None,
        "pipeline": child.pipeline,
    }  # fmt: skip
    row = conn.execute(SQL.fence_and_pool, params, prepare=True).fetchone()
    if row is None or row[1]:
        raise LostRunError(holder.run_id)
    return str(row[3] or child.pool), bool(row[2])


def _claim_of(holder: Holder) -> dict[str, Any]:
    return {"parent": holder.run_id, "worker": holder.worker, "claim_no": holder.claim_no}


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

    small = shared is None or len(shared) <= finish.INLINE_BYTES

    def act(kept: Kept) -> Fanout:
        with transaction(conn):
            conn.execute(SQL.lock_earlier, {"parent": holder.run_id, "vertex": vertex})
            root = fence(conn, holder)
            if shared is not None and not small:
                kept.write(conn)
                payload.refer(conn, [(holder.run_id, f"shared:{vertex}", kept[shared])])
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

    large = [] if small or shared is None else [shared]
    return payload.keeping(conn, large, lambda kept: retrying(lambda: act(kept)))


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
    total: int | None = None,
    list_: List | None = None,
) -> tuple[int, bool]:
    """Store one chunk; ``items`` are JSON texts separated by RS, ``hashes`` an array literal.

    ``total`` comes with the first chunk of a list whose length is known: quotas reserve all of it.
    ``list_`` None: a single child, which always has room. Returns (children created, whether the
    spawner should stop). Raises LostRunError, ItemsChanged, QuotaExceeded and DeferredError; each
    leaves nothing of this chunk behind.
    """
    given = {
        "base": fanout.base, "first": first, "hashes": hashes, "root": root_id,
        "parent": holder.run_id, "fanout": fanout.id, "items": items,
        "keys": list(keys) if keys is not None else None,
        "ranks": n if child.lane is None else 0, **asdict(child),
    }  # fmt: skip
    listed = items.split(finish.RS) if len(items) > finish.INLINE_BYTES else []
    large = [one for one in listed if len(one) > finish.INLINE_BYTES]

    def act(kept: Kept) -> tuple[int, bool]:
        later_s = None
        with transaction(conn):
            pool, watch = _fence_and_pool(conn, holder, child)
            if list_ is not None and (watch or list_.deferred):
                spawner, last = _spawner(holder, fanout, list_), first + n - 1
                later_s = pressure.admit(conn, spawner, last=last, items=items, ahead=list_.ahead)
            if later_s is None:
                contents = [kept.get(one) for one in listed] if kept else None
                now = {**given, "contents": contents, "pool": pool}
                return _store(conn, now, n, total, kept)
        raise DeferredError(later_s)  # what was deferred is committed

    created, stop = payload.keeping(conn, large, lambda kept: retrying(lambda: act(kept)))
    if child.lane is not None:
        # also for a chunk that is read again: who stored it may have died before it came to this
        lanes = [child.lane]
        if child.lane_per is not None:
            span = {"base": fanout.base, "first": first, "n": n}
            lanes = [row[0] for row in conn.execute(SQL.lanes_of, span).fetchall()]
            lane.make_rows(conn, [(name, child.lane_limit, None) for name in lanes])
        lane.admit(conn, lanes)
    return created, stop


def _store(
    conn: Connection, given: Mapping[str, Any], n: int, total: int | None, kept: Kept
) -> tuple[int, bool]:
    """The chunk itself, in the caller's transaction and under its fence."""
    with quotas.telling_busy(), conn.pipeline():
        counted = quotas.send_chunk(
            conn, given["root"], given["fanout"], given["pipeline"],
            first=given["first"], n=n, total=total,
        )  # fmt: skip
        kept.write(conn)  # after the quotas, as everywhere
        born = conn.execute(SQL.chunk, given, prepare=True)
        state = conn.execute(SQL.state, {"fanout": given["fanout"]}, prepare=True)
        if given["lane"] is None:
            wake.wake(conn, [given["pool"]])
    quotas.check(counted.fetchone(), position=given["first"])
    created = born.fetchone()
    now = state.fetchone()
    assert created is not None
    assert now is not None
    if created[0] < n:  # some stood there already: they must be of this very list
        check = {name: given[name] for name in ("base", "first", "hashes", "fanout")}
        differs = conn.execute(SQL.check, check, prepare=True).fetchone()
        if differs is not None:
            raise _changed(differs[0])
    return int(created[0]), now[0] != "open" or bool(now[1])


def room_to_begin(conn: Connection, holder: Holder, fanout: Fanout, list_: List) -> float | None:
    """Before a list is read: None, or the seconds until the next try, with the step deferred.

    Raises LostRunError.
    """
    if fanout.state != "open" or fanout.cancelling or not (fanout.watched or list_.deferred):
        return None

    def act() -> float | None:
        with transaction(conn):
            fence(conn, holder)
            spawner = _spawner(holder, fanout, list_)
            return pressure.admit(conn, spawner, last=None, items="", ahead=None)

    return retrying(act)


def _spawner(holder: Holder, fanout: Fanout, list_: List) -> pressure.Spawner:
    return pressure.Spawner(holder.run_id, holder.claim_no, list_.vertex, fanout.id, fanout.base)


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
            quotas.free(conn, fanout=fanout.id)
            follows = finish.settled(finish.send_settle(conn, [fanout.id]))
            return (None if row is None else row[0]), follows

    return retrying(act)


def of_parents(conn: Connection, ids: Sequence[str]) -> list[FanoutState]:
    """The fan-outs of these runs."""
    return [
        FanoutState(*row) for row in conn.execute(SQL.of_parents, {"ids": list(ids)}).fetchall()
    ]


def shared_of(conn: Connection, fanouts: Sequence[int]) -> dict[int, str | None]:
    """Fan-out → the JSON text of its shared inputs."""
    found = conn.execute(SQL.shared, {"ids": sorted(set(fanouts))}).fetchall()
    large = payload.read(conn, (content for _, _, content in found))
    return {int(i): s if c is None else large[c].decode() for i, s, c in found}


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
