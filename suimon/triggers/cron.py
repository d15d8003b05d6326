"""Instants of the calendar (CRON) and of rhythms (EVERY) become runs.

``due`` takes one trigger at a time, in a transaction that holds its row: every instant since the
last one that was dealt with gets its run or is accounted for, and the row moves on. Any number of
processes may call it. The idempotency key names trigger and instant, so that whatever happens an
instant has one run.

    the run of an earlier instant is queued and has not begun: later ones fold into it
    it has begun, or ended: a new run, with what passed meanwhile folded into it
    instants passed while nobody looked, by `catchUp`:
        last    one late run, for the newest; those before it are folded into it
        all     a run for each, oldest first, at most `instants.KEEP`; older ones are missed
        none    those that are late by more than `GRACE` are missed
    the pipeline is full: the trigger waits longer and longer, and instants fold; none is lost
    a pause: nothing happens; at its end all that passed is caught up with, by the same rule

What became of an instant stands in ``suimon.deliveries``: delivered, folded or missed. Only the
database's clock decides what is due. When it is set back, a rhythm would stand still until the old
time is reached again: it begins anew instead, in another era, which its keys name. A calendar does
not: its instants have their runs already. Only after more than an hour does it go back too, and
then keys keep every planned instant at one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, Final

import psycopg

from suimon.core import instants, jsonsafe
from suimon.core.instants import Passed, Schedule
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.run import pause as pauses
from suimon.run import submit, wake
from suimon.run.submit import Born, Request, Submitted
from suimon.triggers.instant_log import InstantLog

SQL = statements(__package__, "cron.sql")

#: Triggers of one call; whoever calls comes back for the rest.
ROUND: Final = 1_000
#: How late an instant may be and count as on time: longer than the sweep that surely finds it.
GRACE: Final = timedelta(seconds=60)
#: Runs of one transaction, where each missed instant gets its own.
AT_ONCE: Final = 100
#: A full pipeline is met again after a quarter of the time it has been full, within these bounds.
FIRST_PAUSE: Final = timedelta(seconds=1)
LAST_PAUSE: Final = timedelta(seconds=60)
#: Another process is at a trigger that is due; should it die, somebody has to look again.
_LOOK_AGAIN_S: Final = 1.0
#: How far back the clock must have been set; the statement `take` has the same.
_RHYTHM_NOTICES: Final = timedelta(seconds=1)
_CALENDAR_NOTICES: Final = timedelta(hours=1)


#: (when the trigger is tried again, why) where something still waits.
_Again = tuple[datetime, str | None] | None


@dataclass(slots=True)
class _Turn:
    """One trigger in its transaction: its row, and how far it gets."""

    conn: Connection
    id: int
    pipeline: str
    name: str
    kind: str
    spec: dict[str, Any]
    created_at: datetime
    cursor: datetime | None
    era: int
    last_run: str | None
    now: datetime
    born: list[Born] = field(default_factory=list)

    def key(self, instant: datetime) -> str:
        era = f"#{self.era}" if self.era else ""
        return f"{self.name}:{instant.isoformat()}{era}"

    @property
    def log(self) -> InstantLog:
        return InstantLog(self.conn, self.id, self.key)


def due(conn: Connection, *, now: datetime | None = None) -> float | None:
    """Deal with all instants that have come; seconds until the next one, None: there is none.

    ``now`` is for tests; otherwise the database's clock decides.
    """

    def act() -> _Turn | None:
        with transaction(conn):
            row = conn.execute(SQL.take, {"now": now}).fetchone()
            if row is None:
                return None
            turn = _Turn(conn, *row)
            try:
                with conn.transaction():  # a savepoint: who cannot be dealt with stops nobody else
                    _take_turn(turn)
            except psycopg.OperationalError:
                raise
            except (psycopg.Error, *instants.UNREADABLE) as error:
                turn = _Turn(conn, *row)
                _put_off(turn, error)
            return turn

    pauses.check_schedules(conn)
    for _ in range(ROUND):
        turn = retrying(act)
        if turn is None:
            return _next_in(conn, now)
        submit.follow(conn, turn.pipeline, turn.born)
    return 0.0


def _next_in(conn: Connection, now: datetime | None) -> float | None:
    row = conn.execute(SQL.next_in, {"now": now}).fetchone()
    if row is None:
        return None
    first_s, later_s = row
    if first_s > 0:
        return float(first_s) + 0.001  # not a moment too early
    return _LOOK_AGAIN_S if later_s is None else min(_LOOK_AGAIN_S, later_s + 0.001)


# ------------------------------------------------------------------------------------- one turn


def _take_turn(turn: _Turn) -> None:
    schedule = _set_back(turn)
    passed = _passed(turn, schedule)
    if passed.count:
        wait = _deal(turn, schedule, passed)
        if wait is not None:
            _move_on(turn, *wait)
            return
    following = schedule.after(turn.cursor or turn.created_at)
    if following is None:
        _move_on(turn, None, "no instant of it comes any more")
    else:
        _move_on(turn, _due_at(turn, following), None)


def _set_back(turn: _Turn) -> Schedule:
    """Notice that the clock was set back: the last instant lies in the future."""
    schedule = instants.of(turn.spec, turn.created_at, begun=turn.era > 0)
    behind = (turn.cursor or turn.created_at) - turn.now
    if behind <= (_RHYTHM_NOTICES if turn.kind == "EVERY" else _CALENDAR_NOTICES):
        return schedule
    if turn.kind == "CRON":
        turn.cursor = turn.now
        return schedule
    turn.era += 1
    schedule = instants.of(turn.spec, turn.created_at, begun=turn.era > 0)
    last = instants.latest(schedule, turn.now)
    turn.cursor = schedule.before(last) if last else turn.now  # so that `last` is due at once
    return schedule


def _passed(turn: _Turn, schedule: Schedule) -> Passed:
    """What has come since the last one, without those whose jitter is not over."""
    passed = schedule.passed(turn.cursor or turn.created_at, turn.now)
    if "jitter" not in turn.spec:
        return passed
    newest = list(passed.newest)
    for place, instant in enumerate(newest):
        if _due_at(turn, instant) > turn.now:
            del newest[place:]
            break
    count = passed.count - (len(passed.newest) - len(newest))
    first = passed.first if count else None
    return Passed(count, first, tuple(newest), exact=passed.exact)


def _deal(turn: _Turn, schedule: Schedule, passed: Passed) -> _Again:
    """Every instant gets its run or its record; (when to try again, why) if some still wait."""
    rule = turn.spec.get("catchUp", "last")
    if rule == "last":
        return _cover(turn, schedule, passed)
    late, on_time = _split(turn, passed)
    if late.count and rule == "none":
        why = f"later than {GRACE.seconds} s, and it is not caught up with (catch_up none)"
        turn.log.missed(late, why)
        turn.cursor = late.newest[-1]
    elif late.count:
        return _catch_up(turn, schedule, passed)
    return _cover(turn, schedule, on_time) if on_time.count else None


def _split(turn: _Turn, passed: Passed) -> tuple[Passed, Passed]:
    """Those that are late, and those on time: a minute's worth at most."""
    late = tuple(takewhile(lambda one: _due_at(turn, one) < turn.now - GRACE, passed.newest))
    on_time = passed.newest[len(late) :]
    before = passed.count - len(on_time)
    return (
        Passed(before, passed.first if before else None, late, exact=passed.exact),
        Passed(len(on_time), on_time[0] if on_time else None, on_time),
    )


# ---------------------------------------------------------------------------------- their runs


def _cover(turn: _Turn, schedule: Schedule, group: Passed) -> _Again:
    """One run for all of them: the one that still waits, or a new one for the newest."""
    newest = group.newest[-1]
    if turn.last_run is not None and _fold(turn, turn.last_run, group.count):
        turn.log.folded(group, turn.last_run)
        turn.cursor = newest
        return None
    given = _request(turn, schedule, newest, turn.cursor, folded=group.count - 1)
    run, duplicate = _start(turn, [given])[0]
    if run is None:
        return _wait(turn, group.first or newest)
    rest = Passed(group.count - 1, group.first, group.newest[:-1], exact=group.exact)
    if rest.count:
        turn.log.folded(rest, run)
    turn.log.delivered(newest, run, duplicate=duplicate)
    turn.cursor, turn.last_run = newest, run
    return None


def _fold(turn: _Turn, run: str, count: int) -> bool:
    row = turn.conn.execute(SQL.fold, {"run": run, "count": count}).fetchone()
    if row is None:
        return False
    one = Born(*row)
    wake.wake(turn.conn, [one.pool])  # a claim may have passed it by just now
    turn.born.append(one)
    return True


def _catch_up(turn: _Turn, schedule: Schedule, passed: Passed) -> _Again:
    """A run for each, oldest first, as many as there is room for."""
    older = passed.count - len(passed.newest)
    if older:
        beyond = Passed(older, passed.first, exact=passed.exact)
        turn.log.missed(beyond, f"only the newest {instants.KEEP:,} are caught up with")
        turn.cursor = schedule.before(passed.newest[0])
    free = submit.room(turn.conn, turn.pipeline)
    going = passed.newest[: AT_ONCE if free is None else min(free, AT_ONCE)]
    requests = [
        _request(turn, schedule, instant, previous, folded=0)
        for instant, previous in zip(going, [turn.cursor, *going], strict=False)
    ]
    for instant, (run, duplicate) in zip(going, _start(turn, requests), strict=True):
        if run is None:
            return _wait(turn, instant)
        turn.log.delivered(instant, run, duplicate=duplicate)
        turn.cursor, turn.last_run = instant, run
    if len(going) == len(passed.newest):
        return None
    return _wait(turn, passed.newest[len(going)]) if len(going) == free else (turn.now, None)


def _request(
    turn: _Turn, schedule: Schedule, instant: datetime, after: datetime | None, *, folded: int
) -> Request:
    """What the run is told; `previous_at` is the last instant that was dealt with before."""
    previous = instants.latest(schedule, after) if after else None
    value = {
        "scheduled_at": instant.isoformat(),
        "previous_at": previous.isoformat() if previous else None,
        "folded": folded,
    }
    return Request(jsonsafe.dumps(value), turn.key(instant))


def _start(turn: _Turn, requests: Sequence[Request]) -> list[tuple[str | None, bool]]:
    """(run, whether it was there before) for each; no run: there is no room."""
    if not requests:
        return []
    ids, born = submit.insert(turn.conn, turn.pipeline, requests, asking=len(requests))
    turn.born += born
    made = {one.id for one in born}
    found: list[Submitted | None] = [None] * len(ids)
    if len(made) < len(ids):
        found = submit.existing(turn.conn, turn.pipeline, requests)
    return [
        (run, False) if run in made else (known.id if known else None, known is not None)
        for run, known in zip(ids, found, strict=True)
    ]


def _wait(turn: _Turn, oldest: datetime) -> tuple[datetime, str]:
    """When a full pipeline is met again, and what hinders."""
    refused = submit.no_room(turn.conn, turn.pipeline)
    pause = min(max((turn.now - oldest) / 4, FIRST_PAUSE), LAST_PAUSE)
    if refused is None:
        return turn.now + pause, f'pipeline "{turn.pipeline}" took no run of this schedule'
    return turn.now + pause, refused.message


# --------------------------------------------------------------------------------- the row


def _move_on(turn: _Turn, next_at: datetime | None, note: str | None) -> None:
    params = {
        "id": turn.id,
        "next_at": next_at,
        "cursor_at": turn.cursor,
        "era": turn.era,
        "last_run": turn.last_run,
        "note": note,
    }
    turn.conn.execute(SQL.move_on, params)


def _put_off(turn: _Turn, error: Exception) -> None:
    if (turn.cursor or turn.created_at) > turn.now:
        turn.cursor = turn.now  # or the clock that was set back would bring it up again at once
    _move_on(turn, turn.now + LAST_PAUSE, f"it could not be dealt with: {error}"[:500])


def _due_at(turn: _Turn, instant: datetime) -> datetime:
    return instants.due_at(turn.name, instant, turn.spec.get("jitter"))
