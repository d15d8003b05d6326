"""What one step does: its vertex and its resolved inputs, as an action.

Asked for a step whose needs are met. What cannot be resolved (a reference that leads nowhere, a
condition that is no bool, a path that is no text) raises InputRefused, which fails that step.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from suimon.core import durations, refs, shape
from suimon.core.actions import (
    Approve,
    Execute,
    Fail,
    ListSource,
    Merge,
    NextAction,
    ReadSource,
    Record,
    Source,
    Spawn,
    Start,
    TaskSource,
    Wait,
)
from suimon.core.shape import Graph
from suimon.errors import InputRefused

#: As suimon/read/versions.py makes it.
_VERSION: Final = re.compile(r"file:[0-9a-f]{64}", re.ASCII)


class Steps:
    """The steps of one graph. `folded` are the vertices that have none of their own."""

    __slots__ = ("_folded", "_merges", "graph")

    def __init__(self, graph: Graph, folded: Collection[str]) -> None:
        self.graph = graph
        self._folded = folded
        self._merges = shape.merges(graph)

    def action(self, step: str, sources: Mapping[str, Any]) -> NextAction:
        """What to do for this step, or Fail when it cannot even be begun."""
        if step not in shape.vertices(self.graph):
            spawner = step.removesuffix(".merge")
            return Merge(step, spawner, {})
        vertex = shape.vertices(self.graph)[step]
        try:
            condition(step, vertex, sources)
            return self._of_kind(step, vertex, sources)
        except InputRefused as error:
            return Fail(error.to_json(), vertex=step)

    def _of_kind(
        self, step: str, vertex: Mapping[str, Any], sources: Mapping[str, Any]
    ) -> NextAction:
        config = vertex.get("config") or {}
        match vertex["type"]:
            case shape.TASK:
                inputs = _inputs(vertex, sources, step)
                return Execute(step, config["task"], inputs, config, specials(self.graph, step))
            case shape.HTTP | shape.SQL:
                return Execute(step, "", _inputs(vertex, sources, step), config)
            case shape.READ:
                return Record(step, self._handle(step, sources))
            case shape.SPAWNER:
                return self._spawn(step, sources)
            case shape.MERGE:
                return Merge(step, self._merges[step], config)
            case shape.WAIT:
                return _wait(step, config, _inputs(vertex, sources, step))
            case shape.APPROVAL:
                inputs = _inputs(vertex, sources, step)
                required = _flag(step, "inputs.required", inputs.get("required", True))
                return Approve(step, inputs.get("show"), required, config)
            case shape.START:
                given = _inputs(vertex, sources, step).get("input", {})
                return Start(step, config["pipeline"], given, config.get("wait", True), config)
            case other:
                msg = f'vertex "{step}" has the type {other!r}, which was never checked'
                raise AssertionError(msg)

    def _spawn(self, spawner: str, sources: Mapping[str, Any]) -> Spawn:
        vertex = shape.vertices(self.graph)[spawner]
        inputs = vertex.get("inputs") or {}
        shared = refs.resolve(
            inputs.get("shared") or {}, sources, vertex=spawner, field="inputs.shared"
        )
        source = self._source(spawner, sources)
        marks = specials(self.graph, spawner)
        return Spawn(spawner, source, shared, vertex.get("config") or {}, marks)

    def _source(self, spawner: str, sources: Mapping[str, Any]) -> Source:
        origin = shape.item_source(self.graph, spawner)
        if origin is not None and shape.kind(self.graph, origin) == shape.READ:
            handle = self._handle(origin, sources)
            return ReadSource(**handle)
        if origin is not None and origin in self._folded:
            vertex = shape.vertices(self.graph)[origin]
            inputs = _inputs(vertex, sources, origin)
            config = vertex["config"]
            return TaskSource(config["task"], inputs, config, specials(self.graph, origin))
        items = (shape.vertices(self.graph)[spawner].get("inputs") or {}).get("items")
        found = refs.resolve(items, sources, vertex=spawner, field="inputs.items")
        if not isinstance(found, list):
            kind = "null" if found is None else type(found).__name__
            msg = f'vertex "{spawner}": its items are {kind}, not a list'
            hint = "an empty list is fine and spawns nothing"
            raise InputRefused(msg, path="$.items", hint=hint)
        return ListSource(found)

    def _handle(self, read: str, sources: Mapping[str, Any]) -> dict[str, Any]:
        """All that opening the file needs, as `ReadSource` has it."""
        vertex = shape.vertices(self.graph)[read]
        path = _inputs(vertex, sources, read)["path"]
        if not isinstance(path, str) or not path:
            msg = f'vertex "{read}": its path is {path!r}, not the name of a file'
            raise InputRefused(msg, path="$.path")
        options = dict(vertex.get("config") or {})
        chosen = options.pop("format", None)
        handle = {"path": path, "format": chosen, "options": options}
        if isinstance((vertex.get("inputs") or {}).get("path"), str):
            handle["trusted"] = True
        given = sources.get("input")
        if isinstance(given, dict) and given.get("path") == path:
            version = given.get("event_id")
            if isinstance(version, str) and _VERSION.fullmatch(version):
                handle["version"] = version
        return handle


def specials(graph: Graph, vertex: str) -> list[list[Any]]:
    """`[[path, "merge" | "read"], ...]`: inputs that are a whole MERGE or READ vertex.

    A slot puts a live object there (a stream of results, a stream of rows) instead of plain JSON.
    The paths begin at the function's inputs; for a SPAWNER at its `shared`.
    """
    inputs = shape.vertices(graph)[vertex].get("inputs") or {}
    if shape.kind(graph, vertex) == shape.SPAWNER:
        inputs = inputs.get("shared") or {}
    found: list[list[Any]] = []
    for ref in refs.find(inputs):
        if len(ref.path) == 1 and ref.root in shape.vertices(graph):
            kind = shape.kind(graph, ref.root)
            if kind in (shape.MERGE, shape.READ):
                found.append([list(ref.place), kind.lower()])
    return found


def _inputs(vertex: Mapping[str, Any], sources: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The resolved inputs. A vertex may take the whole input: `"inputs": {"$ref": "input"}`."""
    resolved = refs.resolve(vertex.get("inputs") or {}, sources, vertex=name)
    if not isinstance(resolved, dict):
        kind = "null" if resolved is None else type(resolved).__name__
        msg = f'vertex "{name}": its inputs are {kind}, not an object'
        raise InputRefused(msg, path="$", hint='give an object like {"path": "orders.csv"}')
    return resolved


def condition(step: str, vertex: Mapping[str, Any], sources: Mapping[str, Any]) -> bool:
    """Do `when` and `unless` let it run? Anything but true and false is refused."""
    for field in shape.CONDITIONS:
        if field in vertex:
            value = refs.resolve(vertex[field], sources, vertex=step, field=field)
            if _flag(step, field, value) != (field == "when"):
                return False
    return True


def _flag(step: str, field: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    msg = f'vertex "{step}", {field}: {value!r:.80} is neither true nor false'
    raise InputRefused(msg, path=f"$.{field}", hint="let a task decide and refer to its answer")


def _wait(step: str, config: Mapping[str, Any], inputs: Mapping[str, Any]) -> Wait:
    if "timer" in config:
        return Wait(step, timer_s=durations.seconds(config["timer"]))
    if "signal" in config:
        limit = config.get("timeout")
        timeout_s = None if limit is None else durations.seconds(limit)
        return Wait(step, signal=config["signal"], timeout_s=timeout_s)
    until = inputs.get("until")
    try:
        moment = datetime.fromisoformat(until) if isinstance(until, str) else None
        in_utc = moment.astimezone(UTC) if moment is not None and moment.tzinfo else None
    except (ValueError, OverflowError):
        in_utc = None
    if in_utc is None:
        msg = f'vertex "{step}", inputs.until: {until!r:.80} is no instant'
        hint = 'write date, time and zone: "2030-01-31T06:00:00+01:00"'
        raise InputRefused(msg, path="$.until", hint=hint)
    return Wait(step, until=in_utc.isoformat())
