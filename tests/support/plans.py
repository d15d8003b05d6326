"""Plans and buffers of the engine's own statements, as its hot connection makes them.

`Recorder` notes what the engine's functions really send, with their parameters; `explain` runs one
of them again under EXPLAIN in a transaction that is rolled back, with `connect.hot` settings: a
generic plan, no sequential, bitmap, hash or merge plans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from psycopg import ClientCursor

from suimon.db.connect import Connection, hot

_PLACE = re.compile(r"%\((\w+)\)s")


@dataclass(slots=True)
class Plan:
    """What PostgreSQL did."""

    tree: dict[str, Any]
    buffers: int

    def nodes(self) -> Iterator[dict[str, Any]]:
        """Every node of the plan."""
        todo = [self.tree]
        while todo:
            node = todo.pop()
            yield node
            todo += node.get("Plans", [])

    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.nodes() if "Index Name" in node}

    def scans(self, kind: str) -> set[str]:
        """Tables met by this kind of node."""
        return {n.get("Relation Name", "") for n in self.nodes() if n["Node Type"] == kind}

    def kinds(self) -> set[str]:
        return {node["Node Type"] for node in self.nodes()}

    def on(self, table: str) -> set[str]:
        """The indexes by which this table is read."""
        return {
            n["Index Name"]
            for n in self.nodes()
            if n.get("Relation Name") == table and "Index Name" in n
        }


@dataclass(slots=True)
class Recorder:
    """The statements a connection was asked to execute, newest last."""

    conn: Connection
    sent: list[tuple[Any, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        execute = self.conn.execute

        def recorded(query: Any, params: Any = None, **options: Any) -> Any:
            self.sent.append((query, params))
            return execute(query, params, **options)

        self.conn.execute = recorded  # type: ignore[method-assign,assignment]

    def params(self, query: str) -> Any:
        """The parameters of this statement's last execution."""
        return next(params for text, params in reversed(self.sent) if text == query)


_TYPES = {
    "pipeline": "text",
    "ids": "uuid[]",
    "keys": "text[]",
    "inputs": "text[]",
    "asking": "int",
    "contents": "bytea[]",
    "labels": "text[]",
}


def new_runs(conn: Connection) -> str:
    """The statement inside `suimon.new_runs`, whose plan the call itself would not show."""
    row = conn.execute("select prosrc from pg_proc where proname = 'new_runs'").fetchone()
    assert row is not None
    text = row[0].partition("return query")[2].partition("get diagnostics")[0]
    for name, kind in _TYPES.items():
        text = text.replace(f"p_{name}", f"%({name})s::{kind}")
    return str(text)


def explain_as_sent(conn: Connection, query: Any, params: Any) -> Plan:
    """The plan of a statement as a surface's connection makes it, with its values; undone."""
    with conn.transaction(force_rollback=True):
        call = f"explain (analyze, buffers, timing off, format json) {query}"
        row = ClientCursor(conn).execute(call.encode(), params).fetchone()
    assert row is not None
    tree = row[0][0]["Plan"]
    return Plan(tree, tree["Shared Hit Blocks"] + tree["Shared Read Blocks"])


def explain(conn: Connection, query: str, params: dict[str, Any]) -> Plan:
    """The generic plan of the statement, run with these parameters and undone."""
    hot(conn)
    names = list(dict.fromkeys(_PLACE.findall(query)))
    text = _PLACE.sub(lambda m: f"${names.index(m[1]) + 1}", query).replace("%%", "%")
    values = [params[name] for name in names]
    given = ClientCursor(conn).mogrify(", ".join(["%s"] * len(values)), values)
    with conn.transaction(force_rollback=True):
        conn.execute(f"prepare explained as {text}".encode())
        how = "analyze, buffers, timing off, format json"
        call = f"explain ({how}) execute explained" + (f" ({given})" if names else "")
        row = ClientCursor(conn).execute(call.encode()).fetchone()
        conn.execute("deallocate explained")
    assert row is not None
    tree = row[0][0]["Plan"]
    return Plan(tree, tree["Shared Hit Blocks"] + tree["Shared Read Blocks"])
