"""The one slow safety sweep: everything that should never be needed, done again if it was.

The rows of ``suimon.duties`` are the clock and their lock is the election; an idle engine sends the
``take`` statement and nothing else, because the statement itself says where there is work. Every
duty is bounded and idempotent, so two takers for a moment do no harm.

    timers   waits that are over and whose own timer died with its worker
    rescue   running runs whose worker is dead or gone
    lanes    runs that stand behind a lane with room
    cancels  cancels that a crash left half done
    deadlines  unfinished runs whose deadline has passed
    repair   open fan-outs whose tally is wrong, parents that nobody woke
    flows    ranks of trees that have ended, lanes of spawns that have settled
    prune    finished runs that their pipeline does not keep, what ended at the doors long ago
    notices  failed runs and pools without a worker that people want to be told of
    doors    instants that have come, deliveries that wait
    wakes    idle workers of pools where somebody waits for one
    quotas   reservations that nobody will use, runs that a quota held and that may try again
    contents contents that nobody refers to, with their objects
    pools    runs that wait in a pool which their pipeline has left
    pauses   triggers that stop after failures in a row, runs that a resume left held back
    storage  whether the store or the disk is nearly full; who was deferred and may go on

Who is on the database server's own machine measures its free disk and brings it along.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import psycopg

from suimon.core import words
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.duties import contents, doors, prune
from suimon.errors import SuimonError
from suimon.outbox import notify
from suimon.run import cancel, finish, lane, moving, pause, pressure, quotas, rescue, wake

log = logging.getLogger("suimon.duties")

SQL = statements(__package__, "sweep.sql")

#: Children counted in one sweep; larger fan-outs are counted one a sweep.
COUNT_CHILDREN: Final = 200_000


def run(conn: Connection, worker: int | None, disk: tuple[int, int] | None = None) -> int:
    """Take the duties that are due and do those that have work; returns how much they changed.

    ``disk``: bytes free and all, of the database's disk, if this process can tell.

    One that fails is told and tried again at its next turn; it keeps no other from its own.
    """
    free, total = disk or (None, None)
    given = {"worker": worker, "disk_free": free, "disk_total": total}
    taken = conn.execute(SQL.take, given).fetchall()
    changed = 0
    for name in [name for name, work in taken if work]:
        try:
            changed += DUTIES[name](conn)
        except Exception as error:
            if conn.broken:
                raise
            told = None if isinstance(error, psycopg.Error | SuimonError) else error
            log.error("the duty %s failed: %s", name, first_line(error), exc_info=told)
    return changed


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def timers(conn: Connection) -> int:
    """waiting → queued where the time has come, in batches of 1,000, at most 100."""
    total = 0
    for _ in range(100):
        count = wake.wake_due(conn)
        total += count
        if count < 1000:
            break
    return total


def wakes(conn: Connection) -> int:
    """Wake a worker of each pool where runs wait while one is idle; returns how many pools."""
    with transaction(conn):
        pools = [row[0] for row in conn.execute(SQL.slept_over).fetchall()]
        wake.wake(conn, pools)
    return len(pools)


def rescue_dead(conn: Connection) -> int:
    """Running runs of dead or missing workers."""
    count, follows = rescue.rescue(conn)
    if follows.stopped_parents:
        cancel.end_parents(conn, follows.stopped_parents)
    if follows.stragglers:
        cancel.sweep(conn)
    return count


def repair(conn: Connection) -> int:
    """Recount open fan-outs, wake parents that were left waiting; returns how much was mended."""
    mended, counted, after = 0, 0, 0
    while fanouts := conn.execute(SQL.open_fanouts, {"after": after}).fetchall():
        for fanout, base, _, expected, ended, complete in fanouts:
            after = fanout
            size = expected if expected is not None else ended
            if counted and counted + size > COUNT_CHILDREN:
                break
            counted += size
            mended += _recount(conn, fanout, base)
            if complete:
                mended += _settle(conn, [fanout])
        else:
            continue
        break
    stranded = [row[0] for row in conn.execute(SQL.stranded_parents).fetchall()]
    if stranded:
        log.error("repair: %s waited for ended children", words.count(len(stranded), "parent"))
        mended += _settle(conn, stranded)
    return mended


def _recount(conn: Connection, fanout: int, base: str) -> int:
    """Compare without a lock; if different lock, and count in the next statement."""

    def act() -> int:
        with transaction(conn):
            before = conn.execute(SQL.lock_fanout, {"fanout": fanout}).fetchone()
            true = conn.execute(SQL.count_children, {"base": base}).fetchone()
            if before is None or true is None or tuple(before) == tuple(true):
                return 0
            log.error("repair: fan-out %d counted %s, its children say %s", fanout, before, true)
            names = ("succeeded", "failed", "timed_out", "cancelled")
            values: dict[str, Any] = dict(zip(names, true, strict=True))
            conn.execute(SQL.correct, {"fanout": fanout, **values})
            return 1

    if conn.execute(SQL.looks_wrong, {"fanout": fanout}).fetchone() is None:
        return 0
    mended = retrying(act)
    if mended:
        _settle(conn, [fanout])
    return mended


def _settle(conn: Connection, fanouts: list[int]) -> int:
    def act() -> finish.Settled:
        with transaction(conn):
            for fanout in sorted(fanouts):
                conn.execute(SQL.lock_fanout, {"fanout": fanout})
            follows = finish.settled(finish.send_settle(conn, fanouts))
            wake.wake(conn, follows.pools)
            return follows

    follows = retrying(act)
    if follows.stopped_parents:
        cancel.end_parents(conn, follows.stopped_parents)
    return len(follows.pools) + len(follows.stopped_parents)


def flows(conn: Connection) -> int:
    """Drop what trees that have ended left behind; at most 1,000 rows of each."""
    conn.execute(SQL.drop_flows)
    conn.execute(SQL.drop_spawn_lanes)
    return 0


#: name in ``suimon.duties`` → what it does, returning how much it changed.
DUTIES: Final[dict[str, Callable[[Connection], int]]] = {
    "timers": timers,
    "rescue": rescue_dead,
    "lanes": lane.sweep,
    "cancels": cancel.sweep,
    "deadlines": cancel.expire,
    "repair": repair,
    "flows": flows,
    "prune": prune.duty,
    "notices": notify.scan,
    "doors": doors.duty,
    "wakes": wakes,
    "pauses": pause.sweep,
    "quotas": quotas.sweep,
    "contents": contents.duty,
    "storage": pressure.look,
    "pools": moving.sweep,
}
