"""The fused transaction: everything a worker has to say, and the next claim, in one round trip.

Order (the engine's lock order): lane locks, logs, steps, finishes, tries that come again,
interruptions, releases, settle, admit, head, the pool's cap, claim, large results, commit. Several
statements in one pipeline, because what must see the effect of a lock has to be a later statement.
A cap's row is locked last, by those who know of one (``Batch.capped``): who holds it waits for
nobody.

A batch that meets a data error (a value PostgreSQL cannot store) is sent again in halves, so that
one bad row does not take the others along; a single bad row ends its run with that error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
import psycopg

from suimon.core import clock
from suimon.db.connect import Connection, retrying, transaction
from suimon.outbox import emit
from suimon.run import claim, finish, lane, rescue, step, wait, wake
from suimon.run.claim import Claimed
from suimon.run.finish import INLINE_BYTES, Again, Ended, Settled
from suimon.run.step import LogText, Step
from suimon.store import payload
from suimon.store.payload import Kept

#: Events of one transaction, which others wait for; more are told in several.
EVENTS: Final = 2_000


@dataclass(slots=True)
class Want:
    """The claim that goes with a batch."""

    pool: str
    n: int
    floors: Sequence[int]
    unfloored: bool


@dataclass(slots=True)
class Batch:
    """What one fused transaction writes; ``lanes`` and ``fanouts`` are those of runs that leave."""

    worker: int
    worker_name: str
    ended: list[Ended] = field(default_factory=list)
    again: list[Again] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    logs: list[LogText] = field(default_factory=list)
    interrupted: list[tuple[str, int | None]] = field(default_factory=list)
    alone: int = rescue.ALONE_IN_SLOT
    released: list[tuple[str, int]] = field(default_factory=list)
    held_back: list[tuple[str, int, str]] = field(default_factory=list)
    lanes: set[str] = field(default_factory=set)
    fanouts: set[int] = field(default_factory=set)
    progress: list[tuple[str, int, int, int]] = field(default_factory=list)
    later: list[tuple[str, int, float, str]] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)  # of those that go back: by an earlier claim
    wake_from_idle: bool = False
    heads: dict[int, int] = field(default_factory=dict)
    want: Want | None = None
    capped: str | None = None  # the worker's pool, when it knows that it has a cap
    freed: int = 0  # places under the cap that it gave back elsewhere since its last batch

    @property
    def empty(self) -> bool:
        """Nothing to write; only a claim, if that."""
        return not (
            self.ended or self.again or self.steps or self.interrupted or self.released
            or self.logs or self.held_back or self.later
        )  # fmt: skip

    @property
    def frees(self) -> int:
        """Places under a cap that others may take, if this worker does not."""
        return (
            self.freed + len(self.ended) + len(self.again) + len(self.later)
            + len(self.interrupted) + len(self.released) + len(self.held_back)
        )  # fmt: skip


@dataclass(slots=True)
class Outcome:
    """The answer: what was ours and is stored, what was claimed, and what follows from both."""

    ended: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)
    steps: set[tuple[str, str]] = field(default_factory=set)
    claimed: list[Claimed] = field(default_factory=list)
    settled: Settled = field(default_factory=Settled)
    pools: set[str] = field(default_factory=set)
    took: float = 0.0
    capped: bool = False  # the pool has a cap: known after a claim that locked it


#: What reads one statement's cursor into the outcome, and the cursor.
Answer = tuple[Callable[[Outcome, Any], None], Any]


def execute(conn: Connection, batch: Batch) -> Outcome:
    """Do it, whole. Raises psycopg.OperationalError when the connection breaks (send it again)."""
    began = clock.monotonic()
    outcome = _execute(conn, batch)
    outcome.took = clock.monotonic() - began
    foreign = outcome.pools - ({batch.want.pool} if batch.want else set())
    full = batch.want is not None and len(outcome.claimed) >= batch.want.n
    if full and batch.want is not None:
        foreign.add(batch.want.pool)  # there may be more: pass the wake on to one more worker
    if batch.capped is not None and batch.frees > len(outcome.claimed):
        foreign.add(batch.capped)  # there is room now, and this worker does not take it
    if foreign:
        wake.wake(conn, foreign)
    return outcome


@dataclass(slots=True)
class Probe:
    """The answer of one look of a worker that wants to be silent; mark None: it is buried."""

    mark: int | None
    safe: bool
    outcome: Outcome
    capped: bool | None = None  # None: it was not asked


def probe(
    conn: Connection,
    *,
    worker: int,
    worker_name: str,
    pool: str,
    n: int,
    mark: int | None,
    capped: bool = False,
) -> Probe:
    """Say idle (once), then: safe? and one un-floored claim, in this order.

    ``capped``: what the worker believes; saying idle tells whether the pool has a cap.
    """
    asked = mark is None or capped
    if mark is None:
        mark, capped = wake.go_idle(conn, worker)
        if mark is None:
            return Probe(None, safe=False, outcome=Outcome())
        claim.publish_clock(conn, pool)
    safe = wake.may_be_silent(conn, mark)
    want = Want(pool, n, [0] * claim.PRIORITIES, unfloored=True)
    look = Batch(worker, worker_name, want=want, capped=pool if capped else None)
    outcome = execute(conn, look)
    return Probe(mark, safe, outcome, outcome.capped if asked else None)


def _execute(conn: Connection, batch: Batch) -> Outcome:
    """In one transaction, or in halves: too many events in it, or a row that cannot be stored."""
    if _events(batch) > EVENTS and len(batch.ended) + len(batch.steps) > 1:
        return _in_halves(conn, batch)
    results = [e.output for e in batch.ended] + [s.output for s in batch.steps]
    large = [text for text in results if len(text) > INLINE_BYTES]
    try:
        return payload.keeping(conn, large, lambda kept: retrying(lambda: _send(conn, batch, kept)))
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        if not (batch.ended or batch.steps or batch.again or batch.logs):
            raise
        if len(batch.ended) + len(batch.steps) + len(batch.again) + len(batch.logs) == 1:
            return _send(conn, _as_failure(batch, error))
        return _in_halves(conn, batch)


def _events(batch: Batch) -> int:
    told = [e.events for e in batch.ended if e.events] + [s.events for s in batch.steps if s.events]
    return sum(map(len, told))


def _send(conn: Connection, batch: Batch, kept: Kept = payload.NOTHING) -> Outcome:
    """One pipeline. Answers are read after its end."""
    answers: list[Answer] = []
    with conn.pipeline(), transaction(conn):
        if batch.lanes:
            lane.lock(conn, batch.lanes)
        if batch.wake_from_idle:
            conn.execute(wake.SQL.idle_off, {"worker": batch.worker}, prepare=True)
        answers += _send_records(conn, batch)
        answers += _send_follows(conn, batch)
        if batch.want is not None:
            answers += _send_claim(conn, batch, batch.want)
        if kept:  # last, since others may keep the same; only of those that are recorded by now
            kept.write(conn)
            finish.send_large(conn, batch.ended, kept)
            step.send_large(conn, batch.steps, kept)
    outcome = Outcome()
    for read, cursor in answers:
        read(outcome, cursor)
    if any(row.input is None for row in outcome.claimed):
        claim.fill_inputs(conn, outcome.claimed)
    return outcome


def _send_records(conn: Connection, batch: Batch) -> Iterator[Answer]:
    """What this worker has done, each record under its fence."""
    kinds = [
        [e.id for e in batch.ended],
        [a.id for a in batch.again],
        [one[0] for one in batch.later],
        [i for i, _ in batch.interrupted],
        [i for i, _ in batch.released],
        [i for i, _, _ in batch.held_back],
    ]
    told = [(e.id, e.claim_no, e.events) for e in batch.ended if e.events]
    if told or sum(map(bool, kinds)) > 1:
        ids = [run_id for kind in kinds for run_id in kind]
        conn.execute(claim.SQL.lock_held, {"ids": ids, "worker": batch.worker}, prepare=True)
    if batch.logs:
        step.send_logs(conn, batch.worker, batch.logs)
    if batch.progress:
        step.send_progress(conn, batch.worker, batch.progress)
    if told:  # before the end, while they are locked and still running under their claims
        emit.send_of_steps(conn, batch.worker, told)
    if batch.ended:
        yield _ended, finish.send(conn, batch.worker, batch.ended)
    if batch.again:
        yield _again, finish.send_again(conn, batch.worker, batch.worker_name, batch.again)
    if batch.later:
        yield _later, wait.send_later(conn, batch.worker, batch.later)
    if batch.interrupted:
        sent = rescue.send_interrupt(
            conn, batch.interrupted, worker=batch.worker, what="a slot", alone=batch.alone
        )
        yield _interrupted, sent
    if batch.released:
        yield _released, claim.send_release(conn, batch.worker, batch.released, begun=batch.begun)
    claim.hold_back(conn, batch.worker, batch.held_back, begun=batch.begun)
    # last: a run with steps may be the parent of one that ends here, whose fan-out comes first
    if batch.steps:
        yield _steps, step.send(conn, batch.worker, batch.steps)
        told = [(s.id, s.claim_no, s.events) for s in batch.steps if s.events]
        if told:  # after the record, which has locked those that were ours
            emit.send_of_steps(conn, batch.worker, told)


def _send_follows(conn: Connection, batch: Batch) -> Iterator[Answer]:
    """What those records let happen: fan-outs settle, lanes admit."""
    if batch.fanouts:
        yield _settled, finish.send_settle(conn, list(batch.fanouts))
    if batch.lanes:
        yield _admitted, lane.send_admit(conn, batch.lanes)


def _send_claim(conn: Connection, batch: Batch, want: Want) -> Iterator[Answer]:
    """The head as others should see it, and the next runs."""
    if batch.heads:
        claim.publish(conn, want.pool, batch.heads)
    if want.n > 0:
        if batch.capped:
            yield _capped, claim.send_lock_cap(conn, want.pool)
        sent = claim.send(
            conn, pool=want.pool, worker=batch.worker, n=want.n, floors=want.floors,
            capped=batch.capped is not None,
        )  # fmt: skip
        yield _claimed, sent


def _ended(outcome: Outcome, cursor: Any) -> None:
    outcome.ended = {row[0] for row in cursor.fetchall()}


def _again(outcome: Outcome, cursor: Any) -> None:
    outcome.again = {row[0] for row in cursor.fetchall()}


def _later(outcome: Outcome, cursor: Any) -> None:
    outcome.later = {row[0] for row in cursor.fetchall()}


def _steps(outcome: Outcome, cursor: Any) -> None:
    outcome.steps = {(row[0], row[1]) for row in cursor.fetchall()}


def _interrupted(outcome: Outcome, cursor: Any) -> None:
    outcome.pools |= {row.pool for row in rescue.interrupted(cursor)}


def _released(outcome: Outcome, cursor: Any) -> None:
    outcome.pools |= {pool for _, pool in cursor.fetchall()}


def _settled(outcome: Outcome, cursor: Any) -> None:
    outcome.settled = finish.settled(cursor)
    outcome.pools |= set(outcome.settled.pools)


def _admitted(outcome: Outcome, cursor: Any) -> None:
    outcome.pools |= lane.admitted(cursor)


def _capped(outcome: Outcome, cursor: Any) -> None:
    outcome.capped = cursor.fetchone() is not None


def _claimed(outcome: Outcome, cursor: Any) -> None:
    outcome.claimed = claim.rows(cursor)


def _in_halves(conn: Connection, batch: Batch) -> Outcome:
    """Two transactions; a row that cannot be stored is found by halving: its run fails with that
    error, the others go through. Log text goes first: after its run's end it would be refused.
    """
    parts = [*batch.logs, *batch.ended, *batch.steps, *batch.again]
    middle = len(parts) // 2
    total = Outcome()
    for index, chosen in enumerate((parts[:middle], parts[middle:])):
        first = index == 0
        half = replace(
            batch,
            ended=[p for p in chosen if isinstance(p, Ended)],
            steps=[p for p in chosen if isinstance(p, Step)],
            again=[p for p in chosen if isinstance(p, Again)],
            logs=[p for p in chosen if isinstance(p, LogText)],
            interrupted=batch.interrupted if first else [],
            released=batch.released if first else [],
            held_back=batch.held_back if first else [],
            later=batch.later if first else [],
            want=None if first else batch.want,
        )
        part = _execute(conn, half)
        total.ended |= part.ended
        total.again |= part.again
        total.later |= part.later
        total.steps |= part.steps
        total.claimed += part.claimed
        total.pools |= part.pools
        total.capped |= part.capped
        total.settled = Settled(
            tuple({*total.settled.pools, *part.settled.pools}),
            total.settled.stopped_parents + part.settled.stopped_parents,
            total.settled.stragglers or part.settled.stragglers,
        )
    return total


def _as_failure(batch: Batch, error: psycopg.Error) -> Batch:
    """The one row that PostgreSQL refuses, as its run's failure (log text: dropped, and said)."""
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    text = orjson.dumps(
        {
            "type": "NotStored",
            "code": "SUI-4005",
            "message": f"the result cannot be stored: {message}",
        }
    ).decode()
    return replace(
        batch,
        ended=[
            replace(e, status="failed", output="", error=text, events=None) for e in batch.ended
        ],
        steps=[
            replace(s, status="failed", output="", error=text, events=None) for s in batch.steps
        ],
        again=[replace(a, error=text) for a in batch.again],
        logs=[replace(t, text=f"(a log text could not be stored: {message})") for t in batch.logs],
    )
