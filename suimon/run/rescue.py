"""The runs of the dead: worker registration, heartbeats, burial and rescue.

Liveness needs no clocks. A heartbeat is an update that finds its own row and finds it not dead; a
rescuer (``worker/beat.py``) judges only what it has seen itself, and buries a worker by a guarded
update in which a heartbeat that races in wins. Death is then a durable flag, and rescue goes by
state: running runs whose worker is dead or gone, in bounded batches, without any pipeline code.

A run that takes too many workers or slots with it (more than its ``max_interruptions``) stops
circling and fails, naming them. Not prevented: side effects of a worker that is frozen rather than
dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.run import finish, lane, wake

SQL = statements(__package__, "rescue.sql")

#: How a run is kept from taking neighbours along next time: alone in a slot, alone in a worker.
ALONE_IN_SLOT: Final = 1
ALONE_IN_WORKER: Final = 2


@dataclass(frozen=True, slots=True)
class Beat:
    """One live worker as a heartbeat's answer shows it."""

    worker: int
    beat: int
    beat_ms: int
    mine: bool
    asked_to_cancel: bool
    code_waits: bool = False
    schema_version: int | None = None
    capped: bool = False


def register(conn: Connection, facts: dict[str, Any]) -> int:
    """Write this boot of this worker into the table and make its pool's rows; returns its id."""
    conn.execute(SQL.make_pools, {"pool": facts["pool"]})
    row = conn.execute(SQL.register, facts).fetchone()
    assert row is not None
    return int(row[0])


def beat(
    conn: Connection, worker: int, *, draining: bool, pace: tuple[int, int] = (0, 0)
) -> tuple[bool, list[Beat]]:
    """Beat once, and say how many runs began and ended in the last minute. Returns (still alive in
    the database, all live workers).
    """
    said = {"worker": worker, "draining": draining, "starts": pace[0], "ends": pace[1]}
    rows = conn.execute(SQL.beat, said).fetchall()
    beats = [Beat(*row) for row in rows]
    return any(b.mine for b in beats), beats


def beats(conn: Connection) -> tuple[int, list[Beat]]:
    """(The schema's number, the beats of all live workers), for one who is no worker."""
    rows = conn.execute(SQL.beats).fetchall()
    found = [
        Beat(worker, beat, beat_ms, mine=False, asked_to_cancel=False)
        for _, worker, beat, beat_ms in rows
        if worker is not None
    ]
    return (int(rows[0][0]) if rows else 0), found


def bury(conn: Connection, worker: int, seen_beat: int) -> str | None:
    """Declare a worker dead if its beat is still the one seen; returns its name if it was so."""
    row = conn.execute(SQL.bury, {"id": worker, "beat": seen_beat}).fetchone()
    return None if row is None else str(row[1])


def leave(conn: Connection, worker: int) -> None:
    """This worker ends and holds nothing: whatever it still held is rescued like a dead one's."""
    conn.execute(SQL.leave, {"worker": worker})


@dataclass(frozen=True, slots=True)
class Interrupted:
    """One run taken back from a dead worker or slot."""

    id: str
    status: str
    pool: str
    lane: str | None
    fanout_id: int | None


def send_interrupt(
    conn: Connection,
    held: Sequence[tuple[str, int | None]],
    *,
    worker: int | None,
    what: str,
    alone: int,
) -> Any:
    """Send running → queued (or failed, poisoned) for runs given as (id, claim_no or None)."""
    return conn.execute(
        SQL.interrupt,
        {
            "ids": [run_id for run_id, _ in held],
            "claims": [claim_no for _, claim_no in held],
            "worker": worker,
            "what": what,
            "alone": alone,
        },
    )


def interrupted(cursor: Any) -> list[Interrupted]:
    """Read the answer of ``send_interrupt``."""
    return [Interrupted(*row) for row in cursor.fetchall()]


def rescue(conn: Connection, *, batches: int = 200) -> tuple[int, finish.Settled]:
    """Take back what dead workers hold, 500 runs a transaction and at most ``batches`` of them.

    Returns (runs taken back, what settling asks for).
    """
    total, pools, parents, stragglers = 0, set[str](), list[str](), False
    for _ in range(batches):
        orphans = conn.execute(SQL.orphans).fetchall()
        if not orphans:
            break
        lanes = sorted({o[2] for o in orphans if o[2] is not None})
        fanouts = sorted({o[3] for o in orphans if o[3] is not None})

        def act(
            orphans: Sequence[Any] = orphans,
            lanes: Sequence[str] = lanes,
            fanouts: Sequence[int] = fanouts,
        ) -> tuple[list[Interrupted], finish.Settled]:
            with transaction(conn):
                if lanes:
                    lane.lock(conn, lanes)
                back = interrupted(
                    send_interrupt(
                        conn,
                        [(o[0], o[1]) for o in orphans],
                        worker=None,
                        what="a worker",
                        alone=ALONE_IN_WORKER,
                    )
                )
                follows = finish.settled(finish.send_settle(conn, fanouts))
                touched = {b.pool for b in back} | set(follows.pools)
                if lanes:
                    touched |= lane.admitted(lane.send_admit(conn, lanes))
                wake.wake(conn, touched)
                return back, follows

        back, follows = retrying(act)
        total += len(back)
        pools |= {b.pool for b in back} | set(follows.pools)
        parents += follows.stopped_parents
        stragglers = stragglers or follows.stragglers
        if not back:
            break
    return total, finish.Settled(tuple(sorted(pools)), tuple(parents), stragglers)
