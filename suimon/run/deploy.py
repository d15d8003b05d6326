"""Graphs become runnable: stored with their hash, and made current in one transaction.

A graph never changes; a run is pinned to the one it started with. ``deploy`` makes what it is given
current; with ``only_new`` (workers and ``dev`` with a PATH) a graph the database knows already
changes nothing, so an old worker that starts late never moves a pipeline backwards.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from suimon.core import door
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict
from suimon.run import destinations, lane

SQL = statements(__package__, "deploy.sql")

#: Waiting runs of a pipeline that says nothing else; children are not counted.
MAX_QUEUED: Final = 1_000
#: Bad ends in a row after which its triggers stop: one or two are bad data, five in a row without a
#: good one in between are the code or the world, and each more costs somebody's patience.
PAUSE_AFTER: Final = 5
_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.ASCII)


@dataclass(frozen=True, slots=True)
class Definition:
    """One checked pipeline: its canonical graph and the hash over its bytes."""

    name: str
    hash: str
    graph: dict[str, Any]
    #: What is declared beside it, by name; several definitions may hold the same.
    destinations: Mapping[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deployed:
    """What a deploy did to one pipeline: new, changed, unchanged or known."""

    name: str
    hash: str
    what: str


def deploy(
    conn: Connection,
    definitions: Sequence[Definition],
    *,
    only_new: bool = False,
    folder: str | None = None,
) -> list[Deployed]:
    """Store and make current; returns what changed, in the order given.

    ``folder`` is what relative paths of FILE triggers are relative to (default: the working
    directory). Raises Conflict when another pipeline listens at a webhook's address.
    """
    base = os.path.abspath(folder or os.curdir)  # noqa: PTH100  (links stay as they are written)
    names = {"names": [d.name for d in definitions]}

    def act() -> tuple[list[Deployed], list[str]]:
        with transaction(conn):
            conn.execute(SQL.lock_pipelines)
            current: dict[str, str] = dict(conn.execute(SQL.current, names).fetchall())
            known = {(n, h) for n, h in conn.execute(SQL.known_graphs, names).fetchall()}
            answers, lanes = [], []
            declared = {name: given for d in definitions for name, given in d.destinations.items()}
            found = [destinations.Declared(name, given) for name, given in declared.items()]
            destinations.declare(conn, found, only_new=only_new)
            for one in definitions:
                what = _what(one, current.get(one.name), known=(one.name, one.hash) in known)
                skip = only_new and (one.name, one.hash) in known
                if what != "unchanged" and not skip:
                    lanes += _make_current(conn, one)
                if not skip:
                    _keep_triggers(conn, one, base)
                answers.append(
                    Deployed(one.name, one.hash, "known" if skip and what != "unchanged" else what)
                )
            return answers, lanes

    answers, lanes = retrying(act)
    lane.admit(conn, lanes)  # a limit may have been raised
    return answers


def _count(value: int | str) -> int | None:
    return None if value in ("unlimited", "never") else int(value)


def _keep_triggers(conn: Connection, one: Definition, base: str) -> None:
    """The rows of its triggers: known names keep their state, those that are gone are retired."""
    specs = [_placed(trigger, base) for trigger in one.graph.get("triggers", [])]
    slugs = [spec.get("slug") if spec["type"] == "WEBHOOK" else None for spec in specs]
    taken = conn.execute(SQL.slugs_taken, {"pipeline": one.name, "slugs": slugs}).fetchone()
    if taken is not None:
        msg = f'pipeline "{taken[1]}" listens at /webhooks/{taken[0]} already'
        raise Conflict(msg, hint="Give one of them another slug, or deploy the other one first.")
    rows = {
        "pipeline": one.name,
        "names": [trigger_name(trigger) for trigger in one.graph.get("triggers", [])],
        "kinds": [spec["type"] for spec in specs],
        "specs": [orjson.dumps(spec).decode() for spec in specs],
        "slugs": slugs,
    }
    conn.execute(SQL.retire_triggers, rows)
    conn.execute(SQL.keep_triggers, rows)
    conn.execute(SQL.tell_doors)


def _placed(trigger: dict[str, Any], base: str) -> dict[str, Any]:
    """A FILE's path as every process can use it; addresses of object stores stay."""
    path = trigger.get("path")
    if trigger["type"] != "FILE" or not isinstance(path, str) or _ADDRESS.match(path):
        return trigger
    return {**trigger, "path": os.path.join(base, path)}  # noqa: PTH118


def trigger_name(trigger: Mapping[str, Any]) -> str:
    """What a trigger is known by within its pipeline, whatever else of it changes."""
    kind = trigger["type"]
    if kind == "CRON":
        return f"cron:{trigger['cron']}@{trigger.get('tz', 'UTC')}"
    if kind == "EVERY":
        anchor = trigger.get("anchor")
        return f"every:{trigger['every']}@{anchor}" if anchor else f"every:{trigger['every']}"
    field = {"FILE": "path", "WEBHOOK": "slug", "EVENT": "event"}[kind]
    return f"{kind.lower()}:{trigger[field]}"


def _what(one: Definition, current: str | None, *, known: bool) -> str:
    if current is None:
        return "new"
    if current == one.hash:
        return "unchanged"
    return "changed back" if known else "changed"


def declared(graph: Mapping[str, Any]) -> dict[str, Any]:
    """What a graph says of its live values: pool, concurrency, max_queued, pause_after (None:
    unlimited, or never).
    """
    limit = graph.get("concurrency", 1)
    return {
        "pool": graph.get("pool", "default"),
        "concurrency": _count(limit["limit"] if isinstance(limit, dict) else limit),
        "max_queued": _count(graph.get("maxQueued", MAX_QUEUED)),
        "pause_after": _count(graph.get("pauseAfter", PAUSE_AFTER)),
    }


def _make_current(conn: Connection, one: Definition) -> list[str]:
    """Returns the lane whose limit may have moved."""
    limit, says = one.graph.get("concurrency", 1), declared(one.graph)
    per = limit["per"] if isinstance(limit, dict) else None
    lane_limit = says["concurrency"]
    key = {"pipeline": one.name, "hash": one.hash}
    body = orjson.dumps(one.graph, option=orjson.OPT_SORT_KEYS).decode()
    conn.execute(SQL.keep_graph, {**key, "body": body})
    conn.execute(
        SQL.make_current,
        {
            **key,
            "pool": says["pool"],
            "lane_limit": lane_limit,
            "priority": one.graph.get("priority", 2),
            "lane_per": per,
            "holds_lane": one.graph.get("onFailure") == "hold",
            "max_queued": says["max_queued"],
            "pause_after": says["pause_after"],
            "needs": orjson.dumps(door.needs(one.graph)).decode(),
            "labels": one.graph.get("labels", []),
        },
    )
    name = lane.pipeline_lane(one.name)
    if per is not None:
        moved = conn.execute(SQL.set_lanes_per, {"lane": name, "lane_limit": lane_limit})
        return [row[0] for row in moved.fetchall()]
    if lane_limit is None and conn.execute(SQL.lane_exists, {"lane": name}).fetchone() is None:
        return []
    conn.execute(SQL.make_lane, {"lane": name, "lane_limit": lane_limit})
    return [name]
