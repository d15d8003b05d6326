"""Retry or cancel many runs at once: a filter, a preview, then bounded batches.

    pipeline=nightly,status=failed|timed_out,since=2h,until=30m,error=ValueError
    parent=RUN,vertex=orders,status=failed            children of one run

An empty filter is refused: whoever means everything has to say so field by field. What is done is
done to the runs that the preview counted, at most 100,000; a run whose state has changed meanwhile
is left out and told. Each batch is a transaction of its own, so a crash leaves some done and the
others untouched; asked again, the filter finds those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from suimon.core import durations
from suimon.core.states import RunStatus
from suimon.core.suggest import did_you_mean, one_of
from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.errors import Conflict, InputRefused
from suimon.run import audit, operate, read, retry, submit

SQL = statements(__package__, "many.sql")

#: Runs of one call.
MANY: Final = 100_000
BATCH: Final = 100
#: Refused runs that are named in the answer.
NAMED: Final = 20
FIELDS: Final = ("pipeline", "status", "since", "until", "error", "parent", "vertex")
_EXAMPLE: Final = "pipeline=nightly,status=failed,since=2h"
_FIRST_ID: Final = "0" * 32

Each = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which runs are meant. Without ``parent``: runs that nobody spawned."""

    pipeline: str | None = None
    statuses: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    error: str | None = None
    parent: str | None = None
    vertex: str | None = None
    text: str = ""


@dataclass(slots=True)
class Chosen:
    """What a filter has found. ``more``: there are others beyond the bound."""

    filter: Filter
    ids: list[str] = field(default_factory=list)
    by: Counter[tuple[str, str]] = field(default_factory=Counter)
    more: bool = False

    def to_json(self) -> dict[str, Any]:
        """What the preview says."""
        return {
            "filter": self.filter.text,
            "runs": len(self.ids),
            "more": self.more,
            "by": [
                {"pipeline": pipeline, "status": status, "runs": n}
                for (pipeline, status), n in sorted(self.by.items())
            ],
            "first": self.ids[:10],
        }


@dataclass(slots=True)
class Done:
    """How far it went: ``done`` runs changed, the others ``refused``, the first 20 with why."""

    done: int = 0
    refused: int = 0
    why: list[dict[str, str]] = field(default_factory=list)

    def refuse(self, run_id: str, message: str) -> None:
        self.refused += 1
        if len(self.why) < NAMED:
            self.why.append({"id": run_id, "message": message})

    def to_json(self) -> dict[str, Any]:
        return {"done": self.done, "refused": self.refused, "why": self.why}


def parse(conn: Connection, text: str) -> Filter:
    """The filter that is written here. Raises InputRefused, UnknownPipeline, RunNotFound."""
    parts: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, equals, value = part.partition("=")
        name, value = name.strip(), value.strip()
        if name not in FIELDS or not equals or not value:
            hint = one_of(name, FIELDS) if name not in FIELDS else None
            msg = f'"{part}" is no part of a filter'
            raise InputRefused(msg, path="filter", hint=hint or f"Write it like {_EXAMPLE}")
        if name in parts:
            msg = f'the filter says "{name}" twice'
            raise InputRefused(msg, path="filter", hint="Several states: status=failed|timed_out")
        parts[name] = value
    if not parts:
        msg = "the filter is empty"
        raise InputRefused(msg, path="filter", hint=f"Say which runs are meant: {_EXAMPLE}")
    return _checked(conn, parts, text)


def _checked(conn: Connection, parts: dict[str, str], text: str) -> Filter:
    if "pipeline" in parts:
        submit.target(conn, parts["pipeline"])  # a misspelt name is told, not an empty list
    states = [one.strip() for one in parts.get("status", "").split("|") if one.strip()]
    for state in states:
        if state not in list(RunStatus):
            msg = f'there is no state "{state}"'
            raise InputRefused(msg, path="filter", hint=did_you_mean(state, list(RunStatus)))
    if "vertex" in parts and "parent" not in parts:
        msg = '"vertex" is for children: name their run too'
        raise InputRefused(msg, path="filter", hint=f"parent=RUN,vertex={parts['vertex']}")
    row = conn.execute(SQL.now).fetchone()
    assert row is not None
    return Filter(
        pipeline=parts.get("pipeline"),
        statuses=tuple(states),
        since=_instant(parts.get("since"), row[0]),
        until=_instant(parts.get("until"), row[0]),
        error=parts.get("error"),
        parent=read.resolve(conn, parts["parent"]) if "parent" in parts else None,
        vertex=parts.get("vertex"),
        text=text,
    )


def _instant(text: str | None, now: datetime) -> datetime | None:
    """`2h`: so long ago; otherwise an instant with its zone. Of the database's clock."""
    if text is None:
        return None
    try:
        return now - timedelta(milliseconds=durations.milliseconds(text))
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        msg = f'"{text}" is neither a duration nor an instant with its zone'
        hint = "Write 2h, 7d or 2030-01-31T06:00:00Z"
        raise InputRefused(msg, path="filter", hint=hint)
    return found


def choose(
    conn: Connection, wanted: Filter, *, only: Sequence[str], most: int | None = None
) -> Chosen:
    """The runs that are meant and are in one of the states ``only``, at most ``most`` (100,000)."""
    chosen = Chosen(wanted)
    statuses = [one for one in (wanted.statuses or only) if one in only]
    after = _FIRST_ID
    statement = SQL.roots if wanted.parent is None else SQL.children
    while statuses and not chosen.more:
        where = {
            "pipeline": wanted.pipeline,
            "parent": wanted.parent,
            "vertex": wanted.vertex,
            "statuses": statuses,
            "since": wanted.since,
            "until": wanted.until,
            "error": wanted.error,
            "after": after,
        }
        rows = conn.execute(statement, where).fetchall()
        if not rows:
            break
        after = rows[-1][0]
        for run_id, status, pipeline in rows:
            if wanted.pipeline not in (None, pipeline):
                continue
            if len(chosen.ids) >= (MANY if most is None else most):
                chosen.more = True
                break
            chosen.ids.append(run_id)
            chosen.by[pipeline, status] += 1
    return chosen


def retry_all(
    conn: Connection, chosen: Chosen, *, actor: str, why: str = "", each: Each | None = None
) -> Done:
    """Retry what was chosen; a run that failed because of its children: those children."""
    done = Done()

    def some(ids: Sequence[str]) -> None:
        found = conn.execute(SQL.failed_by_children, {"ids": list(ids)}).fetchall()
        parents = {row[0] for row in found}
        alone = [one for one in ids if one not in parents]
        _retry(conn, done, alone, actor, why, failed_children=False)
        _retry(conn, done, sorted(parents), actor, why, failed_children=True)

    return _in_batches(conn, chosen, done, some, "retry_many", actor, why, each)


def _retry(
    conn: Connection,
    done: Done,
    ids: Sequence[str],
    actor: str,
    why: str,
    *,
    failed_children: bool,
) -> None:
    """All of these at once; where one has changed meanwhile, one by one."""
    if not ids:
        return
    try:
        plan = retry.plan(conn, ids, failed_children=failed_children)
        retry.apply(conn, plan, actor=actor, why=why)
    except Conflict as error:
        if len(ids) == 1:
            done.refuse(ids[0], error.message)
            return
        for one in ids:
            _retry(conn, done, [one], actor, why, failed_children=failed_children)
    else:
        done.done += len(ids)


def cancel_all(
    conn: Connection, chosen: Chosen, *, actor: str, why: str = "", each: Each | None = None
) -> Done:
    """Ask everything that was chosen to stop."""
    done = Done()

    def some(ids: Sequence[str]) -> None:
        asked = operate.cancel(conn, ids, actor=actor, why=why)
        done.done += asked.asked
        for _ in range(asked.over):
            done.refused += 1

    return _in_batches(conn, chosen, done, some, "cancel_many", actor, why, each)


def _in_batches(
    conn: Connection,
    chosen: Chosen,
    done: Done,
    some: Callable[[Sequence[str]], None],
    action: str,
    actor: str,
    why: str,
    each: Each | None,
) -> Done:
    """The record is written before the first batch: what is begun is known, whatever comes."""
    target = f"filter:{chosen.filter.text}"
    if chosen.ids:
        audit.note(conn, action, [target], actor=actor, why=why, detail=chosen.to_json())
    for start in range(0, len(chosen.ids), BATCH):
        some(chosen.ids[start : start + BATCH])
        if each is not None:
            each(min(start + BATCH, len(chosen.ids)), len(chosen.ids))
    return done
