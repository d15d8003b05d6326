"""Who refers to which secret: triggers and tasks of the graphs that new runs get, destinations,
and channels of notifications.

Older graphs, which running runs are pinned to, are not looked at. One page of graphs is in memory
at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from suimon.core import secret_names
from suimon.db.connect import Connection
from suimon.store.secret import SQL

_GRAPHS: Final = 100


@dataclass(frozen=True, slots=True)
class Use:
    """One place that refers to a secret. Destinations and channels belong to no one pipeline."""

    reference: str
    pipeline: str
    where: str

    def __str__(self) -> str:
        return f"{self.pipeline}: {self.where}" if self.pipeline else self.where

    def to_json(self) -> dict[str, str]:
        return {"reference": self.reference, "pipeline": self.pipeline, "where": self.where}


def of_graph(pipeline: str, graph: Mapping[str, Any]) -> Iterator[Use]:
    """The references in one graph."""
    for trigger in graph.get("triggers") or ():
        slug = trigger.get("slug") or trigger.get("path") or ""
        where = f"{trigger['type']} {slug}".strip()
        for field, given in trigger.items():
            for value in given if isinstance(given, list) else [given]:
                if secret_names.reference(value) is None:
                    yield Use(value, pipeline, f"{where}, {field}")
    for vertex, body in (graph.get("vertices") or {}).items():
        for name in (body.get("config") or {}).get("secrets") or ():
            task = body["config"].get("task", "")
            yield Use(secret_names.of_grant(name), pipeline, f"vertex {vertex}, task {task}")


def uses(conn: Connection, reference: str | None = None) -> Iterator[Use]:
    """All places, or those of one reference; by pipeline."""
    for one in _all(conn):
        if reference is None or one.reference == reference:
            yield one


def _all(conn: Connection) -> Iterator[Use]:
    after = ""
    while True:
        rows = conn.execute(SQL.graphs, {"after": after, "n": _GRAPHS}).fetchall()
        for pipeline, body in rows:
            yield from of_graph(pipeline, orjson.loads(body))
        if len(rows) < _GRAPHS:
            break
        after = rows[-1][0]
    for reference, where in conn.execute(SQL.outside_of_graphs).fetchall():
        yield Use(reference, "", where)
