"""What does this run do next? A pure answer from the graph and the steps recorded so far.

The worker asks after every step, and again whenever it claims the run: there is no replay and no
program counter, only the records. `Plan` holds what depends on the graph alone and may be kept per
graph hash; `Plan.next` looks at one run. The
answers are in `core/actions.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from suimon.core import refs, shape
from suimon.core.actions import (
    BAD,
    NOT_REQUIRED,
    Action,
    Approve,
    Execute,
    Fail,
    Finish,
    ListSource,
    Merge,
    NextAction,
    ReadSource,
    Record,
    Skip,
    Source,
    Spawn,
    Start,
    StepRecord,
    StepStatus,
    TaskSource,
    Wait,
)
from suimon.core.shape import Graph
from suimon.errors import InputRefused

__all__ = [
    "NOT_REQUIRED",
    "Action",
    "Approve",
    "Execute",
    "Fail",
    "Finish",
    "ListSource",
    "Merge",
    "NextAction",
    "Plan",
    "ReadSource",
    "Record",
    "Skip",
    "Source",
    "Spawn",
    "Start",
    "StepRecord",
    "StepStatus",
    "TaskSource",
    "Wait",
    "next_action",
    "specials",
]


class Plan:
    """The order of one graph's steps. Keep it per graph hash and set of generator tasks."""

    __slots__ = ("_folded", "_merges", "_order", "_unmerged", "graph")

    def __init__(self, graph: Graph, generators: Collection[str] = ()) -> None:
        self.graph = graph
        self._folded = shape.folded(graph, generators)
        self._order = [name for name in shape.order(graph) if name not in self._folded]
        self._merges = shape.merges(graph)
        self._unmerged = shape.unmerged(graph)

    def steps(self) -> list[str]:
        """Every step a run of this graph records, in order; implicit merges at the end."""
        return [*self._order, *(shape.implicit_merge(name) for name in self._unmerged)]

    def next(
        self, steps: Mapping[str, StepRecord], *, run_input: Any, run: Mapping[str, Any]
    ) -> Action:
        """The next action. `run` holds `id`, `pipeline` and `created_at`, for references to it."""
        for name in self.steps():
            record = steps.get(name)
            if record is not None and record.status in BAD:
                return _failure(name, record)
        sources = self._sources(steps, run_input, run)
        for name in self.steps():
            record = steps.get(name)
            if record is None or record.status != "succeeded":
                return self._action(name, sources)
        try:
            return Finish(self._output(sources))
        except InputRefused as error:
            return Fail(error.to_json(), vertex=None)

    def _sources(
        self, steps: Mapping[str, StepRecord], run_input: Any, run: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What references may name: input, run, and the outputs of the steps that have ended."""
        sources: dict[str, Any] = {"input": run_input, "run": run}
        for name, record in steps.items():
            if record.status == "succeeded" and name in shape.vertices(self.graph):
                sources[name] = record.output
        for spawner in self._unmerged:
            merged = steps.get(shape.implicit_merge(spawner))
            if merged is not None and merged.status == "succeeded":
                sources[spawner] = merged.output
        return sources

    def _action(self, step: str, sources: Mapping[str, Any]) -> Action:
        if step not in shape.vertices(self.graph):
            spawner = step.removesuffix(".merge")
            return Merge(step, spawner, {})
        vertex = shape.vertices(self.graph)[step]
        config = vertex.get("config") or {}
        try:
            match vertex["type"]:
                case shape.TASK:
                    inputs = _inputs(vertex, sources, step)
                    marks = specials(self.graph, step)
                    return Execute(step, config["task"], inputs, config, marks)
                case shape.READ:
                    return Record(step, self._handle(step, sources))
                case shape.SPAWNER:
                    return self._spawn(step, sources)
                case shape.MERGE:
                    return Merge(step, self._merges[step], config)
                case other:
                    msg = f'vertex "{step}" has the type {other!r}, which was never checked'
                    raise AssertionError(msg)
        except InputRefused as error:
            return Fail(error.to_json(), vertex=step)

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
            return ReadSource(handle["path"], handle.get("format"), handle["options"])
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
        """`{path, format, options}`: all that opening the file needs."""
        vertex = shape.vertices(self.graph)[read]
        path = _inputs(vertex, sources, read)["path"]
        if not isinstance(path, str) or not path:
            msg = f'vertex "{read}": its path is {path!r}, not the name of a file'
            raise InputRefused(msg, path="$.path")
        options = dict(vertex.get("config") or {})
        chosen = options.pop("format", None)
        return {"path": path, "format": chosen, "options": options}

    def _output(self, sources: Mapping[str, Any]) -> Any:
        if "output" in self.graph:
            return refs.resolve(self.graph["output"], sources, vertex="output", field="output")
        last = [name for name in shape.last_vertices(self.graph) if name not in self._folded]
        if len(last) == 1:
            return sources[last[0]]
        return {name: sources[name] for name in last}


def next_action(
    graph: Graph,
    steps: Mapping[str, StepRecord],
    *,
    run_input: Any,
    run: Mapping[str, Any],
    generators: Collection[str] = (),
) -> Action:
    """`Plan(graph, generators).next(...)` for one look."""
    return Plan(graph, generators).next(steps, run_input=run_input, run=run)


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


def _failure(step: str, record: StepRecord) -> Fail:
    error = record.error or {"type": "StepFailed", "message": f'step "{step}" {record.status}'}
    status = record.status
    assert status in ("failed", "timed_out", "cancelled")
    return Fail(error, step, status)
