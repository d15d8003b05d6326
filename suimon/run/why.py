"""Why does this run not run? One sentence: what is so, who holds it since when, and what ends it.

The reasons themselves are ``core/reasons.py``'s closed list; here each gets what a person asks
next: who is in the lane, how many children are still out, when the next try comes. A reason without
an entry in ``_MORE`` is told as the list has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from suimon.core import reasons, words
from suimon.db.connect import Connection
from suimon.errors import NotThere
from suimon.run import destinations, pause, pools, pressure, quotas, read
from suimon.run.read import SQL, Run, as_json, named


@dataclass(slots=True)
class Story:
    """The sentence's parts, and ``facts`` for programs. ``since`` is at most as early as it is
    known: when the run was parked or put back, else when it was created.
    """

    says: str
    held_by: str
    since: datetime
    ends: str
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        text = f"{self.says}, held by {self.held_by} since {at(self.since)}, until {self.ends}"
        told = {"held_by": self.held_by, "since": as_json(self.since), "ends": self.ends}
        return {**self.facts, "text": text, **told}

    def later(self, instant: datetime | None) -> None:
        """It cannot have been held by this for longer than this has been so."""
        if instant is not None and instant > self.since:
            self.since = instant


def why(conn: Connection, run_id: str) -> dict[str, Any]:
    """``{id, pipeline, status, reason, text, ...}``; a run that waits has ``held_by``, ``since``
    and ``ends`` too. ``text`` is for people, the rest for programs.
    """
    run = read.run(conn, run_id, values=False)
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
        found = reasons.of(run.reason)
        story = Story(found.says, found.held_by, run.since or run.created_at, found.ends)
        word, _, name = run.reason.partition(":")
        if word in _MORE:
            _MORE[word](conn, run, name, story)
        answer |= story.to_json()
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


def at(instant: datetime) -> str:
    """To the second, in UTC."""
    return instant.isoformat(timespec="seconds")


def _of_end(run: Run) -> str:
    if run.error is None:
        return "it ended well" if run.status == "succeeded" else f"it ended {run.status}"
    kind = run.error.get("type")
    message = str(run.error.get("message", ""))
    text = f"it ended {run.status}: " + (f"{kind}: {message}" if kind else message)
    if run.error.get("hint"):
        text += f"; hint: {run.error['hint']}"
    if run.counts is not None and run.counts["total"]:
        text += f" (its children: suimon runs children {run.id} --status failed)"
    return text


# ------------------------------------------------------------------------- what each can add


def _lane(conn: Connection, run: Run, _: str, story: Story) -> None:
    names = ("id", "status", "reason", "pipeline", "created_at")
    rows = conn.execute(SQL.lane_holders, {"lane": run.lane}).fetchall()
    holders = [named(names, row) for row in rows]
    row = conn.execute(SQL.lane_before, {"lane": run.lane, "id": run.id}).fetchone()
    before = int(row[0]) if row else 0
    ahead = words.count(before, "run waits", "runs wait") if before else "no run waits"
    story.says = f'{ahead} before it in lane "{run.lane}"'
    held = ", ".join(f"{one['id']} ({one['status']})" for one in holders)
    story.held_by = held or "nobody (it is being let in)"
    story.facts = {"lane": run.lane, "holders": holders, "before": before}


def _lane_held(conn: Connection, run: Run, name: str, story: Story) -> None:
    holder = read.run(conn, name, values=False)
    story.says = f'run {name} ended {holder.status} and keeps the lane "{run.lane}" closed'
    story.ends = f"somebody acts: suimon runs retry {name}, or cancel, or skip"
    story.later(holder.finished_at)
    story.facts = {"lane": run.lane, "holder": name}


def _children(conn: Connection, run: Run, _: str, story: Story) -> None:
    parts, waiting = [], []
    for one in run.fanouts:
        counts = one.counts
        total = f"{counts.made:,} so far" if counts.expected is None else f"{counts.expected:,}"
        bad = counts.ended - counts.succeeded
        badly = f" ({bad:,} badly)" if bad else ""
        parts.append(
            f'"{one.vertex}": {counts.ended:,} of {total} ended{badly}, {counts.running:,} running'
        )
        if one.settled_at is None:
            found = conn.execute(SQL.children_wait, {"base": one.base}).fetchall()
            waiting += [{"vertex": one.vertex, "reason": why, "runs": n} for why, n in found]
    if waiting:
        listed = ", ".join(f"{one['runs']:,} for {one['reason']}" for one in waiting)
        parts.append(f"of those made last wait {listed}")
    if parts:
        story.held_by += f" ({'; '.join(parts)})"
    story.facts = {"counts": run.counts, "waiting": waiting}


def _timed(_conn: Connection, run: Run, _: str, story: Story) -> None:
    """A retry or a timer; a signal or an approval that does not wait for ever."""
    if run.wake_at is None:
        return
    word = (run.reason or "").partition(":")[0]
    if word in ("retry", "timer"):
        what = "its next try comes" if word == "retry" else "its time comes"
        story.ends = f"{what} at {at(run.wake_at)}"
    else:
        story.ends += f", at the latest at {at(run.wake_at)}"
    story.facts = {"wake_at": as_json(run.wake_at)}


def _no_code(conn: Connection, run: Run, _: str, story: Story) -> None:
    found = _alive(conn, run.pool)
    if found:
        listed = ", ".join(str(one["name"]) for one in found[:5])
        story.held_by = f"the workers of pool {run.pool}, whose code lacks it ({listed})"
    story.facts = {"workers": found}


def _no_slot(conn: Connection, _run: Run, name: str, story: Story) -> None:
    found = _alive(conn, name)
    story.facts = {"workers": found}
    cap = pools.cap_of(conn, name)
    if cap is not None and cap[1] >= cap[0]:
        most, held = cap
        story.says = f"pool {name} is capped and full"
        story.held_by = f"the cap of {name}, {held} of {most} runs at once"
        story.ends = f"one of them ends, or the cap is raised: suimon pools set-cap {name} NUMBER"
        story.facts |= {"cap": most, "held": held}
        return
    listed = ", ".join(f"{one['name']} ({words.count(one['slots'], 'slot')})" for one in found[:5])
    story.held_by = f"the runs at work on {listed or 'its workers'}"


def _no_worker(conn: Connection, _run: Run, name: str, story: Story) -> None:
    row = conn.execute(SQL.pool_silent_since, {"pool": name}).fetchone()
    if row is not None and row[0] is not None:
        story.later(row[0])
        story.held_by = f"nobody (its last worker was heard at {at(row[0])})"


def _alive(conn: Connection, pool: str) -> list[dict[str, Any]]:
    names = ("name", "slots", "draining", "tasks", "silent_s", "beat_ms")
    rows = conn.execute(SQL.pool_workers, {"pool": pool}).fetchall()
    return [named(names, row) for row in rows]


def _paused(conn: Connection, _run: Run, name: str, story: Story) -> None:
    found = pause.listed(conn, name)
    story.facts = {"pause": found[0] if found else None}
    if not found:
        story.says += " (it has just been resumed)"
        return
    one = found[0]
    said = f": {one['why']}" if one["why"] else ""
    story.says = f"{one['kind']} {one['name']} was paused by {one['by']}{said}"
    story.held_by = one["by"]
    story.later(datetime.fromisoformat(one["at"]))
    story.ends = f"it is resumed: {one['resume']}"


def _destination(conn: Connection, run: Run, name: str, story: Story) -> None:
    try:
        one = destinations.show(conn, name)
    except NotThere:
        story.held_by += " (nobody declares it any more)"
        return
    parts = []
    if one["held"]:
        until = f"until {one['held_until']}" if one["held_until"] else "until it is released"
        by = one["held_by"] or "the far side"
        parts.append(f"held {until} by {by} ({one['held_why'] or 'no reason given'})")
    if one["paused_by"]:
        parts.append(f"paused by {one['paused_by']}; go on with: suimon resume destination {name}")
    if one["rate"]:
        parts.append(f"its rate is {one['rate']}")
    if one["concurrency"]:
        parts.append(f"{one['at_once']} of {words.count(one['concurrency'], 'call')} at once")
    parts.append(words.count(one["parked"], "run waits", "runs wait") + " for it")
    story.held_by += f" ({'; '.join(parts)})"
    if run.wake_at is not None:
        story.ends += f"; it looks again by {at(run.wake_at)}"
    story.facts = {"destination": one}


def _quota(conn: Connection, run: Run, name: str, story: Story) -> None:
    try:
        one = quotas.show(conn, name)
    except NotThere:
        story.held_by = "nobody (it has just been removed)"
        return
    parts = []
    for period in ("day", "month"):
        limit = one[f"per_{period}"]
        if limit is not None:
            used, renews = one[f"{period}_used"], one[f"{period}_renews_at"]
            parts.append(
                f"{used:,} of {limit:,} runs a {period} are used or reserved, it renews at {renews}"
            )
    story.held_by = f"the quota {name} ({'; '.join(parts)})"
    story.ends = f"it renews or is raised: suimon quotas set {name}"
    if run.wake_at is not None:
        story.ends += f"; it tries again at {at(run.wake_at)}"
    story.facts = {"quota": one}


def _storage(conn: Connection, run: Run, _: str, story: Story) -> None:
    found = pressure.of_run(conn, run.id)
    story.says = found.pop("text")
    if "vertex" in found:
        half = ", half stored" if found["half_stored"] else ""
        story.held_by = f'the marks of the store (the fan-out "{found["vertex"]}"{half})'
        story.later(found.pop("since"))
    story.ends = "there is room; more: suimon storage set --high SIZE, or a shorter keep"
    story.facts = found


_MORE: dict[str, Callable[[Connection, Run, str, Story], None]] = {
    "quota": _quota,
    "storage": _storage,
    "limit": _destination,
    "held": _destination,
    "paused": _paused,
    "lane": _lane,
    "lane_held": _lane_held,
    "children": _children,
    "cancelling": _children,
    "retry": _timed,
    "timer": _timed,
    "signal": _timed,
    "approval": _timed,
    "no_code": _no_code,
    "no_slot": _no_slot,
    "no_worker": _no_worker,
}
