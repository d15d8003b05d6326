"""Graphs become runnable: stored with their hash, and made current in one transaction.

A graph never changes; a run is pinned to the one it started with. ``deploy`` makes what it is given
current; with ``only_new`` (workers and ``dev`` with a PATH) a graph the database knows already
changes nothing, so an old worker that starts late never moves a pipeline backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.run import lane

SQL = statements(__package__, "deploy.sql")


@dataclass(frozen=True, slots=True)
class Definition:
    """One checked pipeline: its canonical graph and the hash over its bytes."""

    name: str
    hash: str
    graph: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Deployed:
    """What a deploy did to one pipeline: new, changed, unchanged or known."""

    name: str
    hash: str
    what: str


def deploy(
    conn: Connection, definitions: Sequence[Definition], *, only_new: bool = False
) -> list[Deployed]:
    """Store and make current; returns what changed, in the order given."""
    names = {"names": [d.name for d in definitions]}

    def act() -> tuple[list[Deployed], list[str]]:
        with transaction(conn):
            conn.execute(SQL.lock_pipelines)
            current: dict[str, str] = dict(conn.execute(SQL.current, names).fetchall())
            known = {(n, h) for n, h in conn.execute(SQL.known_graphs, names).fetchall()}
            answers, lanes = [], []
            for one in definitions:
                what = _what(one, current.get(one.name), known=(one.name, one.hash) in known)
                skip = only_new and (one.name, one.hash) in known
                if what != "unchanged" and not skip:
                    lanes += _make_current(conn, one)
                answers.append(
                    Deployed(one.name, one.hash, "known" if skip and what != "unchanged" else what)
                )
            return answers, lanes

    answers, lanes = retrying(act)
    lane.admit(conn, lanes)  # a limit may have been raised
    return answers


def _what(one: Definition, current: str | None, *, known: bool) -> str:
    if current is None:
        return "new"
    if current == one.hash:
        return "unchanged"
    return "changed back" if known else "changed"


def _make_current(conn: Connection, one: Definition) -> list[str]:
    """Returns the lane whose limit may have moved."""
    limit = one.graph.get("concurrency", 1)
    per = limit["per"] if isinstance(limit, dict) else None
    limit = limit["limit"] if isinstance(limit, dict) else limit
    lane_limit = None if limit == "unlimited" else int(limit)
    key = {"pipeline": one.name, "hash": one.hash}
    body = orjson.dumps(one.graph, option=orjson.OPT_SORT_KEYS).decode()
    conn.execute(SQL.keep_graph, {**key, "body": body})
    conn.execute(
        SQL.make_current,
        {
            **key,
            "pool": one.graph.get("pool", "default"),
            "lane_limit": lane_limit,
            "priority": one.graph.get("priority", 2),
            "lane_per": per,
            "holds_lane": one.graph.get("onFailure") == "hold",
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
