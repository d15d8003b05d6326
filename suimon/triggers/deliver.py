"""The oldest waiting deliveries of a trigger become runs, in the order of their arrival.

``deliver`` holds the trigger's row, so that one process at a time works on it, and takes the
deliveries by ``seq``; while the oldest cannot go, none of the later ones does. Why it cannot go
stands in its row. A pipeline that is full makes it wait longer and longer; a pause makes it wait
until somebody resumes; an input that the pipeline refuses makes it a dead letter at once, so that
it does not hold the others up for something that waiting cannot mend.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
import psycopg

from suimon.core import door, jsonsafe
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import DataRefused, InputRefused, StoreUnavailable, UnknownPipeline
from suimon.run import pause as pauses
from suimon.run import submit
from suimon.run.submit import Born, Request
from suimon.store import payload
from suimon.triggers.fire import BATCH, full

log = logging.getLogger("suimon.doors")

SQL = statements(__package__, "deliver.sql")

#: Transactions of one ``deliver``; whoever calls it comes back for the rest.
BATCHES: Final = 20
#: Waiting for a full pipeline: the first pause, and the longest.
FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 60.0
#: A pause by somebody's word is looked at this often, should its resume's notice be lost.
PAUSED_LOOK_S: Final = 30.0
#: Behind one whose input lies in an object store that does not answer.
AWAY_LOOK_S: Final = 15.0
#: Tries after which a delivery that meets a full pipeline is a dead letter: about a week of them.
#: A pause is no try.
GIVE_UP_TRIES: Final = 10_000
WHY_CHARACTERS: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Waiting:
    id: str
    key: str | None
    input: str | None
    tries: int
    age_s: float
    content: bytes | None


def deliver(conn: Connection, trigger_id: int) -> float | None:
    """The oldest waiting deliveries of one trigger become runs, in order.

    Returns in how many seconds it wants to be called again; None: nothing waits, or another process
    is at it. At most ``BATCHES`` transactions of ``BATCH``.
    """
    pauses.check_trigger(conn, trigger_id)
    for _ in range(BATCHES):

        def act() -> tuple[float | None, str, list[Born]]:
            with transaction(conn):
                return _deliver(conn, trigger_id)

        wait_s, pipeline, born = retrying(act)
        if born:
            submit.follow(conn, pipeline, born)
        if wait_s is None or wait_s > 0:
            return wait_s
    return 0.0


def _deliver(conn: Connection, trigger_id: int) -> tuple[float | None, str, list[Born]]:
    held = conn.execute(SQL.lock, {"trigger": trigger_id}).fetchone()
    if held is None:
        return None, "", []
    _, pipeline, pause, retry_in_s = held
    where = {"trigger": trigger_id, "n": BATCH}
    rows = conn.execute(SQL.waiting, where).fetchall()
    try:
        waiting = _read(conn, rows)
    except StoreUnavailable as error:
        oldest, why = _Waiting(*rows[0][:6]), f"{error.message} ({error.detail})"
        return _hold_up(conn, trigger_id, oldest, error.code, why, AWAY_LOOK_S), pipeline, []
    if not waiting:
        conn.execute(SQL.go_on, {"trigger": trigger_id})
        return None, pipeline, []
    if retry_in_s:
        return retry_in_s, pipeline, []
    if pause is not None:
        why = f"paused:{pause}"
        return _hold_up(conn, trigger_id, waiting[0], "paused", why, PAUSED_LOOK_S), pipeline, []
    try:
        graph = orjson.loads(submit.target(conn, pipeline).graph)
    except UnknownPipeline as error:
        return _hold_up(conn, trigger_id, waiting[0], error.code, error.message), pipeline, []
    fine = _sort_out(conn, graph, waiting)
    if not fine:
        return 0.0, pipeline, []
    return _hand_over(conn, trigger_id, pipeline, fine)


def _read(conn: Connection, rows: Sequence[tuple[Any, ...]]) -> list[_Waiting]:
    """With their inputs, as many of them as a page of large ones holds."""
    rows = rows[: payload.within_page(size or 0 for *_, size in rows)]
    found = [_Waiting(*row[:6]) for row in rows]
    large = payload.read(conn, (one.content for one in found))
    return [
        one if one.content is None else replace(one, input=large[one.content].decode())
        for one in found
    ]


def _sort_out(
    conn: Connection, graph: dict[str, Any], waiting: Sequence[_Waiting]
) -> list[_Waiting]:
    """Those whose input the pipeline takes, up to the first that has waited too long."""
    fine: list[_Waiting] = []
    dead: list[tuple[str, str, str]] = []
    for one in waiting:
        try:
            door.check_input(graph, jsonsafe.loads_stored(one.input or "", what="input"))
        except (InputRefused, DataRefused) as error:
            dead.append((one.id, error.code, error.message))
        else:
            fine.append(one)
    bury(conn, dead)
    return fine


def bury(conn: Connection, dead: Sequence[tuple[str, str, str]]) -> None:
    """waiting → dead for these (id, code, why)."""
    if dead:
        ids, codes, whys = zip(*dead, strict=True)
        cut = [why[:WHY_CHARACTERS] for why in whys]
        conn.execute(SQL.dead, {"ids": list(ids), "codes": list(codes), "whys": cut})


def _hand_over(
    conn: Connection, trigger_id: int, pipeline: str, fine: Sequence[_Waiting]
) -> tuple[float | None, str, list[Born]]:
    """As many as there is room for, oldest first; the next one says that the pipeline is full."""
    going = fine[: submit.room(conn, pipeline)]
    born, done = _submit(conn, pipeline, going) if going else ([], {})
    if done:
        runs = list(done.values())
        duplicates = [run not in {one.id for one in born} for run in runs]
        columns = {"ids": list(done), "runs": runs, "duplicates": duplicates}
        conn.execute(SQL.delivered, columns)
    left = [one for one in fine if one.id not in done]
    if not left:
        conn.execute(SQL.go_on, {"trigger": trigger_id})
        return 0.0, pipeline, born
    error = full(conn, pipeline)
    wait_s = _hold_up(conn, trigger_id, left[0], error.code, error.message, progress=bool(done))
    return wait_s, pipeline, born


def _submit(
    conn: Connection, pipeline: str, going: Sequence[_Waiting]
) -> tuple[list[Born], dict[str, str]]:
    """What was born, and delivery → run; one without a run met others that took the room."""
    requests = [Request((one.input or "").encode(), one.key) for one in going]
    # its run refers to what the delivery has referred to
    large: dict[str | bytes, bytes] = {
        r.input: o.content for r, o in zip(requests, going, strict=True) if o.content
    }
    kept = payload.known(large)
    ids, born = submit.insert(conn, pipeline, requests, asking=len(requests), kept=kept)
    made = {one.id for one in born}
    known = submit.existing(conn, pipeline, requests)
    done: dict[str, str] = {}
    for one, run_id, old in zip(going, ids, known, strict=True):
        if run_id in made:
            done[one.id] = run_id
        elif old is not None:
            done[one.id] = old.id
        else:
            break  # those behind it wait with it
    return born, done


def _hold_up(
    conn: Connection,
    trigger_id: int,
    oldest: _Waiting,
    code: str,
    why: str,
    pause_s: float | None = None,
    *,
    progress: bool = False,
) -> float:
    """The oldest waits on, and with it all behind it; returns for how long."""
    if pause_s is None and oldest.tries >= GIVE_UP_TRIES:
        bury(conn, [(oldest.id, code, f"{why}; it waited {oldest.age_s / 86_400:.1f} days")])
        return 0.0
    tries = 0 if progress else oldest.tries
    delay = pause_s or min(LAST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(tries, 20))
    if pause_s is None:
        delay *= random.uniform(0.8, 1.2)  # noqa: S311  (no secret, only jitter)
    cut = {"code": code, "why": why[:WHY_CHARACTERS]}
    conn.execute(SQL.hold_up, {"id": oldest.id, "tried": int(pause_s is None), **cut})
    conn.execute(SQL.retry_at, {"trigger": trigger_id, "delay_s": delay})
    return delay


def deliver_all(conn: Connection) -> tuple[int, float | None]:
    """All triggers with something due: how many, and in how many seconds the next one is.

    One that meets an error which nobody foresaw is told and put off; it stops no other.
    """
    due = conn.execute(SQL.due).fetchall()
    wants: list[float | None] = []
    for (trigger,) in due:
        try:
            wants.append(deliver(conn, trigger))
        except Exception as error:
            if conn.broken or isinstance(error, psycopg.OperationalError):
                raise
            log.exception("deliveries of trigger %d are put off", trigger)
            conn.execute(SQL.retry_at, {"trigger": trigger, "delay_s": LAST_PAUSE_S})
    soonest = min((w for w in wants if w is not None), default=None)
    row = conn.execute(SQL.next_in).fetchone()
    later = row[0] if row is not None else None
    times = [t for t in (soonest, later) if t is not None]
    return len(due), min(times, default=None)
