"""What stands still on purpose: pipelines, triggers, pools, destinations; and what goes on again.

A row of ``suimon.pauses`` is the pause, in force with its commit. Who claims asks for the pool, who
admits asks for the lane's pipeline, who delivers asks for the trigger (``suimon.pause_of``). A run
of a paused pipeline that a claim meets goes back with its reason (``claim.hold_back``); what has
begun goes on to its end, with its retries, its waits and its bare-task children, which belong to
it. Children that are runs of a paused pipeline of their own wait.

``resume`` deletes the row and then lets in what was held back, oldest first and in batches. Who
dies in between leaves rows whose reason names no pause: ``sweep`` goes on from there. An order is
kept where one was promised: a run that stands in its pipeline's lane waits in the lane.

Triggers also stop by themselves: after ``pause_after`` bad ends of root runs in a row, whoever
started them (``check``); the notice is written by the table's trigger. Then a run that somebody
started by hand and that ends well lifts the pause; one that ends badly counts, and does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from suimon.core import suggest, words
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, InputRefused, NotThere, UnknownPipeline
from suimon.run import audit, lane, wake
from suimon.run.read import as_json

SQL = statements(__package__, "pause.sql")

KINDS: Final = ("pipeline", "trigger", "pool", "destination")
#: Rows let in by one transaction, and transactions of one call; the sweep goes on from there.
BATCH: Final = 1000
BATCHES: Final = 1000
#: Lanes of one admission.
LANES: Final = 500
NAME_CHARS: Final = 500
#: Failures that the reason of a pause names; all are in its row.
NAMED_RUNS: Final = 5
#: Who the engine is in the list and in the audit record.
ENGINE: Final = "suimon"


# ------------------------------------------------------------------------------------ by hand


def pause(
    conn: Connection, what: str, by: str, why: str = "", *, triggers_only: bool = False
) -> dict[str, Any]:
    """Pause ``pipeline:NAME``, ``trigger:ID or NAME``, ``pool:NAME`` or ``destination:NAME``.

    ``triggers_only``: of a pipeline, what starts it by itself. Returns the pause as ``listed``
    has it, with ``changed``: a pause that is in force already stays as it is, but one that the
    engine made becomes this person's word.
    """
    key = _resolve(conn, what, triggers_only=triggers_only)

    def act() -> bool:
        with transaction(conn):
            given = {"what": key, "by": audit.checked(by), "why": why[: audit.WHY_CHARS]}
            changed = conn.execute(SQL.pause, given).fetchone() is not None
            if changed:
                audit.note(conn, "pause", [key], actor=by, why=why)
            if changed and key.startswith("destination:"):
                conn.execute(SQL.tell_limits, {"name": key.partition(":")[2]})
            return changed

    changed = retrying(act)
    found = listed(conn, key)
    if not found:  # resumed by somebody else in this moment
        msg = f"{what} was resumed at the same moment"
        raise Conflict(msg, hint="See: suimon paused")
    return {**found[0], "changed": changed}


def resume(
    conn: Connection, what: str, by: str, why: str = "", *, triggers_only: bool = False
) -> dict[str, Any]:
    """Let it go on, and everything that waited for it; the other direction of ``pause``.

    Resuming a pipeline resumes its triggers too, and its failures are counted from zero. Returns
    ``{resumed: [what ...], let_in: runs}``; nothing resumed: it was not paused.
    """
    key = _resolve(conn, what, triggers_only=triggers_only)
    kind, _, name = key.partition(":")
    keys = [key, f"triggers:{name}"] if kind == "pipeline" else [key]

    def act() -> list[str]:
        with transaction(conn):
            audit.checked(by)
            if kind in ("pipeline", "triggers"):
                conn.execute(SQL.lock_pipeline, {"pipeline": name})
            gone = [row[0] for row in conn.execute(SQL.resume, {"whats": keys}).fetchall()]
            if gone:
                audit.note(conn, "resume", sorted(gone), actor=by, why=why)
            if kind in ("pipeline", "triggers"):
                conn.execute(SQL.forgive, {"pipeline": name, "until": None})
            if kind == "pool":
                wake.wake(conn, [name])
            elif kind == "destination":
                conn.execute(SQL.tell_limits, {"name": name})
            elif gone:
                conn.execute(SQL.try_deliveries, {"what": key})
                conn.execute(SQL.tell_doors)
            return sorted(gone)

    gone = retrying(act)
    let_in = _let_in(conn, f"paused:{key}") if kind == "pipeline" else 0
    if kind == "pipeline":
        _admit(conn, name)
    return {"resumed": gone, "let_in": let_in}


def listed(conn: Connection, what: str | None = None) -> list[dict[str, Any]]:
    """What is paused, oldest first, at most 1,000: who, since when, why, and what ends it."""
    rows = conn.execute(SQL.listed, {"what": what}).fetchall()
    return [_shown(*row) for row in rows]


def _shown(
    what: str,
    automatic: bool,
    by: str,
    why: str,
    runs: list[str],
    at: datetime,
    pipeline: str | None,
    trigger: str | None,
) -> dict[str, Any]:
    kind, _, name = what.partition(":")
    shown = f"{pipeline}/{trigger}" if trigger is not None else name
    words = f"pipeline {name} --triggers-only" if kind == "triggers" else f"{kind} {name}"
    ends = f"suimon resume {words}"
    if automatic:
        ends += f", or a run of {name} that is started by hand and ends well"
    return {
        "what": what,
        "kind": "triggers of pipeline" if kind == "triggers" else kind,
        "name": shown,
        "automatic": automatic,
        "by": by,
        "why": why,
        "runs": runs,
        "at": as_json(at),
        "resume": ends,
    }


def _resolve(conn: Connection, what: str, *, triggers_only: bool) -> str:
    """The row's key for what a person names; UnknownPipeline, NotThere or InputRefused."""
    kind, colon, name = what.partition(":")
    if kind not in KINDS or not colon:
        msg = f'"{what}" cannot be paused'
        raise InputRefused(msg, path="what", hint=f"One of {', '.join(KINDS)}, like pool:gpu")
    if not name or len(name) > NAME_CHARS or not name.isprintable():
        msg = f"the name of a {kind} has 1 to {NAME_CHARS} printable characters"
        raise InputRefused(msg, path="name")
    if triggers_only and kind != "pipeline":
        msg = "--triggers-only is for a pipeline"
        raise InputRefused(msg, path="triggers_only")
    if kind == "pipeline":
        if conn.execute(SQL.pipeline, {"name": name}).fetchone() is None:
            names = [row[0] for row in conn.execute(SQL.pipelines).fetchall()]
            msg = f'there is no pipeline "{name}"'
            raise UnknownPipeline(
                msg, hint=suggest.did_you_mean(name, names) or "See: suimon pipelines list"
            )
        return f"{'triggers' if triggers_only else kind}:{name}"
    if kind == "trigger":
        return f"trigger:{_trigger(conn, name)}"
    known = SQL.pools if kind == "pool" else SQL.destinations
    names = [row[0] for row in conn.execute(known).fetchall()]
    if name not in names:
        msg = f'there is no {kind} "{name}"'
        near = suggest.did_you_mean(name, names) or f"There are: {', '.join(names[:20])}"
        raise NotThere(msg, hint=near if names else f"Nobody has named a {kind} yet.")
    return what


def _trigger(conn: Connection, name: str) -> int:
    found = conn.execute(SQL.triggers, {"name": name}).fetchall()
    if len(found) == 1:
        return int(found[0][0])
    if not found:
        names = [row[0] for row in conn.execute(SQL.trigger_names).fetchall()]
        msg = f'there is no trigger "{name}"'
        raise NotThere(msg, hint=suggest.did_you_mean(name, names) or "See: suimon triggers list")
    msg = f'several pipelines have a trigger "{name}"'
    listed = ", ".join(f"{row[0]} ({row[1]})" for row in found)
    raise Conflict(msg, detail=f"Their numbers: {listed}.", hint="Give the number.")


# ------------------------------------------------------------------------------- letting in again


def _let_in(conn: Connection, reason: str | None) -> int:
    """All that was held back by a pause that is over, or by any such pause; how many runs."""
    total, batches = 0, 0
    for pool, why in conn.execute(SQL.over, {"reason": reason}).fetchall():
        while batches < BATCHES:
            batches += 1
            count = retrying(lambda pool=pool, why=why: _let_in_some(conn, pool, why))  # type: ignore[misc]
            total += count
            if count == 0:  # done, paused again, or the rest is in somebody else's hands
                break
    return total


def _let_in_some(conn: Connection, pool: str, reason: str) -> int:
    with transaction(conn):
        found = conn.execute(SQL.held, {"pool": pool, "reason": reason}).fetchall()
        if not found:
            return 0
        lanes = {name for _, name in found if name is not None}
        if lanes:
            lane.lock(conn, lanes)
        given = {"ids": [run_id for run_id, _ in found], "reason": reason}
        row = conn.execute(SQL.readmit, given).fetchone()
        pools = {pool}
        if lanes:
            pools |= lane.admitted(lane.send_admit(conn, lanes))
        wake.wake(conn, pools)
        return int(row[0]) if row else 0


def _admit(conn: Connection, pipeline: str) -> None:
    """Who stood in the pipeline's lanes."""
    names = conn.execute(SQL.lanes, {"lane": lane.pipeline_lane(pipeline)}).fetchall()
    for start in range(0, len(names), LANES):
        lane.admit(conn, [row[0] for row in names[start : start + LANES]])


# ------------------------------------------------------------------------------------ by itself


def check(conn: Connection, pipeline: str | None = None) -> int:
    """Stop the triggers of a pipeline that fails and fails, or let them go on after a good end.

    Asked before deliveries become runs, and by the sweep for all pipelines (None). One statement
    where nothing is due; returns how many pauses began or ended.
    """
    return _change_all(conn, conn.execute(SQL.due, {"pipeline": pipeline}).fetchall())


def check_trigger(conn: Connection, trigger_id: int) -> int:
    """``check`` for the pipeline of a trigger whose deliveries are about to become runs."""
    return _change_all(conn, conn.execute(SQL.due_of_trigger, {"trigger": trigger_id}).fetchall())


def check_schedules(conn: Connection) -> int:
    """``check`` for the pipelines with a schedule that has come."""
    return _change_all(conn, conn.execute(SQL.due_of_schedules).fetchall())


def _change_all(conn: Connection, due: Sequence[tuple[Any, ...]]) -> int:
    return sum(retrying(lambda name=row[0]: _change(conn, name)) for row in due)  # type: ignore[misc]


def _change(conn: Connection, pipeline: str) -> int:
    with transaction(conn):
        conn.execute(SQL.lock_pipeline, {"pipeline": pipeline})
        row = conn.execute(SQL.due, {"pipeline": pipeline}).fetchone()
        if row is None:
            return 0  # somebody else was faster
        _, bad, healed = row
        if healed is not None:
            return _heal(conn, pipeline, healed)
        return _stop(conn, pipeline, bad)


def _stop(conn: Connection, pipeline: str, bad: Sequence[str]) -> int:
    why = _story(conn.execute(SQL.failures, {"runs": list(bad)}).fetchall())
    given = {"pipeline": pipeline, "why": why, "runs": list(bad)}
    if conn.execute(SQL.pause_by_itself, given).fetchone() is None:
        return 0
    key = f"triggers:{pipeline}"
    audit.note(conn, "pause", [key], actor=ENGINE, why=why, detail={"runs": list(bad)})
    return 1


def _story(runs: Sequence[tuple[Any, ...]]) -> str:
    """``3 runs in a row ended badly: ID (failed: ValueError: no such file), ...``"""
    parts = []
    for run_id, status, kind, message, _ in runs[-NAMED_RUNS:]:
        said = ": ".join(text for text in (status, kind, message.partition("\n")[0]) if text)
        parts.append(f"{run_id} ({said})")
    earlier = "... " if len(runs) > NAMED_RUNS else ""
    text = f"{words.count(len(runs), 'run')} in a row ended badly: {earlier}{', '.join(parts)}"
    by_hand = sum(bool(row[4]) for row in runs)
    if by_hand:
        text += f"; {by_hand} of them started by hand, which count too"
    return text


def _heal(conn: Connection, pipeline: str, until: datetime) -> int:
    if conn.execute(SQL.resume_healed, {"pipeline": pipeline}).fetchone() is None:
        return 0
    conn.execute(SQL.forgive, {"pipeline": pipeline, "until": until})
    why = "a run that was started by hand ended well"
    audit.note(conn, "resume", [f"triggers:{pipeline}"], actor=ENGINE, why=why)
    conn.execute(SQL.try_deliveries, {"what": f"triggers:{pipeline}"})
    conn.execute(SQL.tell_doors)
    return 1


def sweep(conn: Connection) -> int:
    """The duty: automatic pauses, and what a resume that died in the middle left behind."""
    return check(conn) + _let_in(conn, None)


def look_again(conn: Connection, pipeline: str) -> None:
    """Deliveries that waited for a pipeline are tried at once: it has more room now."""
    with transaction(conn):
        conn.execute(SQL.try_deliveries, {"what": f"pipeline:{pipeline}"})
        conn.execute(SQL.tell_doors)
