"""queued → running: taking the n smallest admitted runs, and giving back what never began.

A claim starts at the worker's *floor*: the rank of its last claim less a margin. Entries before it
are dead (claimed and finished), and a long transaction elsewhere keeps them from being vacuumed;
walking them again costs thousands of buffers a claim. An empty *floored* claim therefore proves
nothing: rows may lie below the floor (a late commit, a release, a clock that went back). ``Floors``
decides when a claim goes without: at a cadence that adapts to what it costs, and always once before
the worker goes silent.

Source of the order: start-time fair queueing (Goyal, Vin, Cheng 1996); a run's rank is given once,
when it enters the claimable queue, so fairness costs no writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.store import payload

SQL = statements(__package__, "claim.sql")

PRIORITIES: Final = 4
#: What all workers may claim while one of them looks away.
MARGIN_SECONDS: Final = 0.1
#: How often a head is published, and the longest and shortest pause between un-floored claims.
PUBLISH_SECONDS: Final = 0.05
UNFLOORED_SECONDS: Final = (0.05, 5.0)
#: Published heads that a submitter may still go by.
SEEN_HEADS: Final = 3
#: An un-floored claim comes again after this many times its own duration.
UNFLOORED_COST: Final = 20
#: The largest claim.
MAX_CLAIM: Final = 4000
BATCH_MARGIN: Final = 1000
#: While the slots have work, a claim of fewer runs than this waits for results to go with.
SMALL_CLAIM: Final = 100


@dataclass(slots=True)
class Claimed:
    """One row of a claim, as the worker gets it. ``input`` is JSON text."""

    id: str
    claim_no: int
    attempt: int
    interruptions: int
    graph_id: int
    vertex: str | None
    pipeline: str
    fanout_id: int | None
    item_key: str | None
    lane: str | None
    priority: int
    rank: int
    alone: int
    cancel_requested: bool
    root_id: str
    input: str | None
    deadline_in_s: float | None
    paused: str | None = None  # the pause of its pipeline that this run may not pass
    begun: bool = False  # by an earlier claim
    unreadable: bool = False  # its input lies in an object store that does not answer


@dataclass(slots=True)
class Floors:
    """Where the next claim starts, per priority; pure but for the times it is given (seconds)."""

    workers: int = 1
    floors: list[int] = field(default_factory=lambda: [0] * PRIORITIES)
    next_unfloored_at: float = 0.0
    _lows: deque[tuple[float, list[int | None]]] = field(default_factory=deque)
    _heads: deque[dict[int, int]] = field(default_factory=lambda: deque(maxlen=SEEN_HEADS))
    _published_at: float = -1.0

    def start(self, now: float, *, unfloored: bool) -> tuple[list[int], bool]:
        """The floors of the next claim, and whether it is un-floored."""
        if unfloored or now >= self.next_unfloored_at:
            return [0] * PRIORITIES, True
        return list(self.floors), False

    def learn(self, now: float, rows: Sequence[Claimed], *, unfloored: bool, took: float) -> None:
        """Move the floors after a claim: up with what was claimed, and down as well."""
        if unfloored:
            low, high = UNFLOORED_SECONDS
            self.next_unfloored_at = now + min(high, max(low, UNFLOORED_COST * took))
        lows: list[int | None] = [None] * PRIORITIES
        for row in rows:
            seen = lows[row.priority]
            if seen is None or row.rank < seen:
                lows[row.priority] = row.rank
        if rows:
            self._lows.append((now, lows))
        while self._lows and self._lows[0][0] < now - MARGIN_SECONDS:
            self._lows.popleft()
        for priority, low_rank in enumerate(lows):
            if low_rank is None:
                continue
            recent = [r for _, ranks in self._lows if (r := ranks[priority]) is not None]
            span = low_rank - min(recent, default=low_rank)
            floor = low_rank - max(BATCH_MARGIN * self.workers, span)
            self.floors[priority] = min(floor, self._old_head(priority, floor))

    def heads_to_publish(self, now: float, rows: Sequence[Claimed]) -> dict[int, int]:
        """priority → head, when it is time to publish it; otherwise nothing."""
        if not rows or now < self._published_at + PUBLISH_SECONDS:
            return {}
        heads: dict[int, int] = {}
        for row in rows:
            heads[row.priority] = max(heads.get(row.priority, row.rank), row.rank)
        self._published_at = now
        self._heads.append(heads)
        return heads

    def _old_head(self, priority: int, otherwise: int) -> int:
        """The lowest head that a submitter may still go by.

        Counted in publications, not in time: the newest one is on its way, the one before is what
        submitters see now, and the one before that is what a submitter has read that is about to
        commit. A batch that takes long delays them all.
        """
        return min([otherwise, *(h[priority] for h in self._heads if priority in h)])


def send(
    conn: Connection,
    *,
    pool: str,
    worker: int,
    n: int,
    floors: Sequence[int],
    capped: bool = False,
) -> Any:
    """Send the claim; the cursor's rows are read by ``rows`` (after the pipeline's end).

    ``capped``: ``send_lock_cap`` was sent before, in this transaction. Without it a pool that has a
    cap gives nothing.
    """
    params = {f"floor{p}": floors[p] for p in range(PRIORITIES)}
    given = {"pool": pool, "worker": worker, "n": min(n, MAX_CLAIM), "capped": capped}
    return conn.execute(SQL.claim, {**given, **params}, prepare=True)


def send_lock_cap(conn: Connection, pool: str) -> Any:
    """Lock the pool's cap until the commit; the cursor is empty where there is none any more."""
    return conn.execute(SQL.lock_cap, {"pool": pool}, prepare=True)


def rows(cursor: Any) -> list[Claimed]:
    """The claimed runs in claim order."""
    return [Claimed(*row) for row in cursor.fetchall()]


def fill_inputs(conn: Connection, claimed: Sequence[Claimed]) -> None:
    """Fetch the inputs above 8 KB, which are not on the row; what cannot be had now is marked."""
    large = {row.id: row for row in claimed if row.input is None}
    if large:
        rows = conn.execute(SQL.inputs, {"ids": list(large)}).fetchall()
        found = payload.read_each(conn, (digest for _, digest in rows))
        for run_id, digest in rows:
            raw = found.get(digest)
            large[run_id].input = None if raw is None else raw.decode()
            large[run_id].unreadable = raw is None


def publish(conn: Connection, pool: str, heads: dict[int, int]) -> None:
    """Publish the heads; a row that another worker publishes just now is passed over."""
    conn.execute(
        SQL.publish_head,
        {"pool": pool, "priorities": list(heads), "heads": list(heads.values())},
        prepare=True,
    )


def publish_clock(conn: Connection, pool: str) -> None:
    """The pool is empty: new runs start at the database's clock."""
    conn.execute(SQL.publish_clock, {"pool": pool}, prepare=True)


def send_release(
    conn: Connection, worker: int, held: Sequence[tuple[str, int]], *, begun: Sequence[str] = ()
) -> Any:
    """Send running → queued, uncounted, under the fence; the cursor holds (id, pool) of ours.

    ``begun``: those among them that an earlier claim had begun (``Claimed.begun``).
    """
    params = {"worker": worker, "ids": [i for i, _ in held], "claims": [c for _, c in held]}
    return conn.execute(SQL.release, {**params, "begun": list(begun)})


def release(
    conn: Connection, worker: int, held: Sequence[tuple[str, int]]
) -> list[tuple[str, str]]:
    """``send_release`` and its answer."""
    if not held:
        return []
    return [(str(i), str(p)) for i, p in send_release(conn, worker, held).fetchall()]


def hold_back(
    conn: Connection,
    worker: int,
    held: Sequence[tuple[str, int, str]],
    *,
    begun: Sequence[str] = (),
) -> None:
    """running → queued, un-admitted, with a reason (id, claim_no, reason): its code is not here,
    or its pipeline is paused. Who had begun keeps its place in its lane (``begun`` as above).
    """
    if held:
        ids, claims, reasons = zip(*held, strict=True)
        conn.execute(
            SQL.hold_back,
            {
                "worker": worker, "ids": list(ids), "claims": list(claims),
                "reasons": list(reasons), "begun": list(begun),
            },
        )  # fmt: skip


def held_back(
    conn: Connection, pool: str, reasons: Sequence[str], n: int
) -> list[tuple[str, str | None]]:
    """(id, lane) of at most ``n`` runs that were held back for one of these reasons; no more than
    the pool's cap has room for, as it looks without its lock.
    """
    params = {"pool": pool, "reasons": list(reasons), "n": min(n, MAX_CLAIM)}
    return [(str(i), lane) for i, lane in conn.execute(SQL.held_back, params).fetchall()]


def readmit(conn: Connection, ids: Sequence[str], reasons: Sequence[str]) -> None:
    """These are not held back any more, if they still were."""
    conn.execute(SQL.readmit, {"ids": list(ids), "reasons": list(reasons)})


def take(conn: Connection, worker: int, pool: str, ids: Sequence[str]) -> list[Claimed]:
    """queued → running for these very runs, as far as they are admitted and the pool has room."""
    conn.execute(SQL.lock_cap, {"pool": pool})
    given = {"worker": worker, "pool": pool, "ids": list(ids)}
    return rows(conn.execute(SQL.claim_these, given))


def holdings(conn: Connection, worker: int) -> list[tuple[str, int, bool]]:
    """(id, claim_no, cancel_requested) of every run the database says this worker holds."""
    return [(str(i), int(c), bool(x)) for i, c, x in conn.execute(SQL.holdings, {"worker": worker})]
