"""Why does this run not run? The stored or derived reason, as a sentence with names and numbers.

The reasons themselves are ``core/reasons.py``'s closed list; here each gets what a person asks
next: who holds the lane, how many children are still out, when the next try comes, which workers
there are.
"""

from __future__ import annotations

from typing import Any

from suimon.core import reasons
from suimon.db.connect import Connection
from suimon.errors import NotThere
from suimon.run import destinations, pause, pressure, quotas, read
from suimon.run.read import SQL, Run, as_json, named


def why(conn: Connection, run_id: str) -> dict[str, Any]:
    """``{id, pipeline, status, reason, text, ...}``; ``text`` is for people, the rest for
    programs.
    """
    run = read.run(conn, run_id)
    answer: dict[str, Any] = {
        "id": run.id,
        "pipeline": run.pipeline,
        "status": run.status,
        "reason": run.reason,
        "text": "",
    }
    if run.ended:
        answer["text"] = _of_end(run)
        answer["error"] = run.error
    elif run.reason is None:
        answer["text"] = f"it runs on worker {run.worker} since {as_json(run.started_at)}"
    else:
        answer["text"] = reasons.explain(run.reason)
        word = run.reason.partition(":")[0]
        if word in _MORE:
            answer |= _MORE[word](conn, run, answer["text"])
    return answer


def short(run: Run) -> str | None:
    """The reason in a few words, for tables: ``children 312/2400``, ``retry at 14:02:07``."""
    if run.reason == "children" and run.fanouts:
        ended = sum(one.counts.ended for one in run.fanouts)
        total = sum(one.counts.to_json()["total"] for one in run.fanouts)
        return f"children {ended}/{total}"
    if run.reason == "retry" and run.wake_at is not None:
        return f"retry at {run.wake_at.astimezone():%H:%M:%S}"
    if run.reason == "storage" and run.wake_at is not None:
        return f"storage pressure, next try {run.wake_at.astimezone():%H:%M:%S}"
    return run.reason


def _of_end(run: Run) -> str:
    if run.error is None:
        return "it ended well" if run.status == "succeeded" else f"it ended {run.status}"
    kind = run.error.get("type")
    message = str(run.error.get("message", ""))
    text = f"it ended {run.status}: " + (f"{kind}: {message}" if kind else message)
    if run.error.get("hint"):
        text += f"; hint: {run.error['hint']}"
    if run.counts is not None:
        text += f" (its children: suimon runs children {run.id} --status failed)"
    return text


def _lane(conn: Connection, run: Run, text: str) -> dict[str, Any]:
    names = ("id", "status", "reason", "pipeline", "created_at")
    rows = conn.execute(SQL.lane_holders, {"lane": run.lane}).fetchall()
    holders = [named(names, row) for row in rows]
    row = conn.execute(SQL.lane_before, {"lane": run.lane, "id": run.id}).fetchone()
    before = int(row[0]) if row else 0
    held = ", ".join(f"{one['id']} ({one['status']})" for one in holders) or "nobody"
    text += f'; lane "{run.lane}" is held by {held}; {before} wait before it'
    return {"text": text, "lane": run.lane, "held_by": holders, "before": before}


def _children(_conn: Connection, run: Run, text: str) -> dict[str, Any]:
    parts = []
    for one in run.fanouts:
        counts = one.counts
        total = counts.expected if counts.expected is not None else f"{counts.made} so far"
        bad = counts.ended - counts.succeeded
        parts.append(
            f'"{one.vertex}": {counts.ended}/{total} ended, {bad} of them badly, '
            f"{counts.running} running"
        )
    return {"text": f"{text}; {'; '.join(parts)}" if parts else text, "counts": run.counts}


def _retry(_conn: Connection, run: Run, text: str) -> dict[str, Any]:
    return {"text": f"{text} at {as_json(run.wake_at)}", "wake_at": as_json(run.wake_at)}


def _workers(conn: Connection, run: Run, text: str) -> dict[str, Any]:
    names = ("name", "slots", "draining", "tasks", "silent_s", "beat_ms")
    rows = conn.execute(SQL.pool_workers, {"pool": run.pool}).fetchall()
    found = [named(names, row) for row in rows]
    if found:
        listed = ", ".join(f"{one['name']} ({one['slots']} slots)" for one in found[:5])
        text += f"; alive in pool {run.pool}: {listed}"
    return {"text": text, "workers": found}


def _paused(conn: Connection, run: Run, text: str) -> dict[str, Any]:
    what = (run.reason or "").partition(":")[2]
    found = pause.listed(conn, what)
    if not found:
        return {"text": f"{text} (it has just been resumed)", "pause": None}
    one = found[0]
    said = f": {one['why']}" if one["why"] else ""
    text = (
        f"{one['kind']} {one['name']} was paused by {one['by']} at {one['at']}{said}; "
        f"it goes on with: {one['resume']}"
    )
    return {"text": text, "pause": one}


def _destination(conn: Connection, run: Run, text: str) -> dict[str, Any]:
    name = (run.reason or "").partition(":")[2]
    try:
        one = destinations.show(conn, name)
    except NotThere:
        return {"text": f"{text} (nobody declares it any more)"}
    parts = [f"at the latest at {as_json(run.wake_at)}"]
    if one["held"]:
        until = f"until {one['held_until']}" if one["held_until"] else "until it is released"
        by = one["held_by"] or "the far side"
        parts.append(f"held {until} by {by} ({one['held_why'] or 'no reason given'})")
    if one["paused_by"]:
        parts.append(f"paused by {one['paused_by']}; go on with: suimon resume destination:{name}")
    if one["rate"]:
        parts.append(f"its rate is {one['rate']}")
    if one["concurrency"]:
        parts.append(f"{one['at_once']} of {one['concurrency']} calls at once are being made")
    parts.append(f"{one['parked']} runs wait for it")
    return {"text": f"{text}; {'; '.join(parts)}", "destination": one}


def _quota(conn: Connection, run: Run, text: str) -> dict[str, Any]:
    name = (run.reason or "").partition(":")[2]
    try:
        one = quotas.show(conn, name)
    except NotThere:
        return {"text": f"{text} (it has just been removed)", "quota": None}
    parts = [f"it tries again at {as_json(run.wake_at)}"]
    for period in ("day", "month"):
        limit = one[f"per_{period}"]
        if limit is not None:
            used, renews = one[f"{period}_used"], one[f"{period}_renews_at"]
            parts.append(
                f"{used:,} of {limit:,} runs a {period} are used or reserved, it renews at {renews}"
            )
    return {"text": f"{text}; {'; '.join(parts)}", "quota": one}


def _storage(conn: Connection, run: Run, _text: str) -> dict[str, Any]:
    return pressure.of_run(conn, run.id)


_MORE = {
    "quota": _quota,
    "storage": _storage,
    "limit": _destination,
    "held": _destination,
    "paused": _paused,
    "lane": _lane,
    "children": _children,
    "cancelling": _children,
    "retry": _retry,
    "no_code": _workers,
    "no_slot": _workers,
}
