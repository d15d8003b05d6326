"""What only shows when pipelines and tasks are looked at together.

A spawner names a pipeline that must exist; a pipeline with a limit may not wait for itself through
others; a vertex names a task that must exist and take these inputs. `TaskInfo` is what the reader
of user code tells about a task; the code itself is never seen here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from suimon.core import refs, shape
from suimon.core.door import input_references
from suimon.core.shape import READ, SPAWNER, START, TASK
from suimon.core.suggest import did_you_mean, one_of
from suimon.errors import Mistake
from suimon.graph_check import Notes
from suimon.graph_fields import PIPELINE_DEFAULTS, UNLIMITED

Graph = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    required: bool


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task as its signature shows it; `ctx` is not among the parameters."""

    generator: bool
    is_async: bool
    params: tuple[Parameter, ...]
    rest: bool = False

    def first_item_param(self) -> str | None:
        return self.params[0].name if self.params else None

    def to_json(self) -> dict[str, Any]:
        return {
            "generator": self.generator,
            "async": self.is_async,
            "params": [{"name": p.name, "required": p.required} for p in self.params],
            "rest": self.rest,
            "first_item_param": self.first_item_param(),
        }

    @staticmethod
    def from_json(parts: Mapping[str, Any]) -> TaskInfo:
        return TaskInfo(
            generator=parts["generator"],
            is_async=parts["async"],
            params=tuple(Parameter(p["name"], p["required"]) for p in parts["params"]),
            rest=parts["rest"],
        )


def check_tasks(graph: Graph, tasks: Mapping[str, TaskInfo]) -> list[Mistake]:
    """Mistakes of one graph that only the signatures of its tasks show."""
    notes = Notes(str(graph.get("pipeline")))
    generators = {name for name, info in tasks.items() if info.generator}
    folded = shape.folded(graph, generators)
    for name, vertex in shape.vertices(graph).items():
        named = (vertex.get("config") or {}).get("task")
        if named is None:
            continue
        info = tasks.get(named)
        if info is None:
            hint = f"{one_of(named, tasks)}; a task is a function with @task on it"
            notes.add(name, "config.task", f'there is no task "{named}"', hint)
        elif vertex["type"] == TASK:
            if info.generator and "destination" in (vertex.get("config") or {}):
                hint = "take a turn where it calls: ctx.http(...), with ctx.limit(...)"
                message = f'"{named}" is a generator, which cannot wait for a turn'
                notes.add(name, "config.destination", message, hint)
            if info.generator and name not in folded:
                conditional = shape.is_conditional(graph, name)
                hint = "name it as the items of a SPAWNER, and nowhere else"
                hint = "put its condition on the SPAWNER" if conditional else hint
                message = f'"{named}" is a generator: it yields items and has no result'
                notes.add(name, "config.task", message, hint)
            _check_call(name, "inputs", vertex.get("inputs") or {}, info, named, notes)
        else:
            _check_children(name, vertex, info, named, notes)
    _check_generator_order(graph, folded, notes)
    return notes.mistakes


def check_destinations(graph: Graph, declared: Collection[str]) -> list[Mistake]:
    """Vertices that name a destination which nobody declares."""
    notes = Notes(str(graph.get("pipeline")))
    for name, vertex in shape.vertices(graph).items():
        named = (vertex.get("config") or {}).get("destination")
        if named is not None and named not in declared:
            hint = one_of(named, declared) if declared else f'declare it: Destination("{named}")'
            notes.add(name, "config.destination", f'there is no destination "{named}"', hint)
    return notes.mistakes


def _check_call(
    vertex: str, place: str, given: Mapping[str, Any], info: TaskInfo, task: str, notes: Notes
) -> None:
    """Do these inputs fit the signature? A whole reference is judged when it has a value."""
    if refs.is_reference(given):
        return
    names = [parameter.name for parameter in info.params]
    if not info.rest:
        for name in given:
            if name not in names:
                hint = one_of(name, names)
                notes.add(vertex, f"{place}.{name}", f'"{task}" has no parameter "{name}"', hint)
    for parameter in info.params:
        if parameter.required and parameter.name not in given:
            message = f'"{task}" needs "{parameter.name}"'
            notes.add(vertex, f"{place}.{parameter.name}", message)


def _check_children(
    vertex: str, spawner: Mapping[str, Any], info: TaskInfo, task: str, notes: Notes
) -> None:
    """A child gets the item as the first parameter that `shared` does not bind."""
    if info.generator:
        hint = "a generator is a source of items; the target does the work of one item"
        notes.add(vertex, "config.task", f'"{task}" is a generator and cannot be a target', hint)
        return
    shared = (spawner.get("inputs") or {}).get("shared") or {}
    item = next((p.name for p in info.params if p.name not in shared), None)
    if item is None:
        hint = "the item becomes the first parameter that is not shared"
        notes.add(vertex, "config.task", f'"{task}" has no parameter left for the item', hint)
        return
    _check_call(vertex, "inputs.shared", {**shared, item: None}, info, task, notes)


def _check_generator_order(graph: Graph, folded: set[str], notes: Notes) -> None:
    for name, vertex in shape.vertices(graph).items():
        for other in vertex.get("after") or []:
            if other in folded and shape.kind(graph, other) != READ:
                message = f'"{other}" only feeds a SPAWNER and has no end of its own'
                notes.add(name, "after", message, "come after the MERGE of that SPAWNER")


# --------------------------------------------------------------------------- pipelines together


def check_together(graphs: Iterable[Graph], broken: Collection[str] = ()) -> list[Mistake]:
    """Mistakes between pipelines: unknown targets, two limits, waiting for oneself.

    `broken` names pipelines that exist but have mistakes of their own: naming one is no mistake.
    """
    by_name = {str(graph["pipeline"]): graph for graph in graphs}
    found: list[Mistake] = []
    for name, graph in by_name.items():
        notes = Notes(name)
        for vertex, target in _targets(graph).items():
            if target not in broken:
                _check_target(graph, vertex, target, by_name, notes)
        found += notes.mistakes
    return found + _check_lanes(by_name)


def _targets(graph: Graph) -> dict[str, str]:
    """vertex id -> the pipeline that this SPAWNER or START starts."""
    configs = {
        name: shape.vertices(graph)[name].get("config") or {}
        for name in (*shape.of_kind(graph, SPAWNER), *shape.of_kind(graph, START))
    }
    return {name: config["pipeline"] for name, config in configs.items() if "pipeline" in config}


def _awaited(graph: Graph) -> dict[str, str]:
    """Those whose end a run of this graph waits for, while it holds its own place."""
    return {
        name: target
        for name, target in _targets(graph).items()
        if (shape.vertices(graph)[name].get("config") or {}).get("wait", True)
    }


def _limit(graph: Graph) -> Any:
    return graph.get("concurrency", PIPELINE_DEFAULTS["concurrency"])


def _check_target(
    graph: Graph, vertex: str, target: str, by_name: Mapping[str, Graph], notes: Notes
) -> None:
    if target not in by_name:
        hint = one_of(target, by_name)
        notes.add(vertex, "config.pipeline", f'there is no pipeline "{target}"', hint)
        return
    if shape.kind(graph, vertex) == START:
        _check_start(graph, vertex, by_name[target], notes)
        return
    own = (shape.vertices(graph)[vertex].get("config") or {}).get("concurrency", UNLIMITED)
    limit = _limit(by_name[target])
    if own != UNLIMITED and limit != UNLIMITED:
        number = limit["limit"] if isinstance(limit, dict) else limit
        message = f'"{target}" has its own limit of {number}, which always holds'
        hint = f'leave the spawner\'s concurrency out, or give "{target}" concurrency "unlimited"'
        notes.add(vertex, "config.concurrency", message, hint)


def _check_start(graph: Graph, vertex: str, target: Graph, notes: Notes) -> None:
    """Does the input of a START have the fields that the other pipeline reads?"""
    given = (shape.vertices(graph)[vertex].get("inputs") or {}).get("input", {})
    if refs.is_reference(given):
        return  # judged when it has a value
    read = {str(ref.path[1]) for _, ref in input_references(target) if len(ref.path) > 1}
    for name in sorted(read - set(given)):
        message = f'"{target["pipeline"]}" reads "{name}" of its input, which is not given'
        notes.add(vertex, f"inputs.input.{name}", message, did_you_mean(name, given))


def _check_lanes(by_name: Mapping[str, Graph]) -> list[Mistake]:
    """A child that needs the place its own ancestor holds would wait for ever."""
    found: list[Mistake] = []
    reported: set[frozenset[str]] = set()
    for name, graph in sorted(by_name.items()):
        if _limit(graph) == UNLIMITED or isinstance(_limit(graph), dict):
            continue  # with a lane for each value of a field, only the submit can tell
        chain = _way_back(name, by_name)
        if chain is None or frozenset(chain) in reported:
            continue
        reported.add(frozenset(chain))
        notes = Notes(name)
        spawner = next(s for s, target in _awaited(graph).items() if target == chain[1])
        shown = " -> ".join(chain)
        limit = _limit(graph)
        message = f'"{name}" would wait for its own place: {shown}, and its limit is {limit}'
        hint = f'give "{name}" concurrency "unlimited", or start something else'
        notes.add(spawner, "config.pipeline", message, hint)
        found += notes.mistakes
    return found


def _way_back(start: str, by_name: Mapping[str, Graph]) -> list[str] | None:
    """The shortest chain of spawns from a pipeline to itself; each pipeline is visited once."""
    came_from: dict[str, str] = {}
    frontier = [start]
    while frontier:
        following: list[str] = []
        for name in frontier:
            for target in sorted(set(_awaited(by_name[name]).values())):
                if target == start:
                    chain = [name]
                    while chain[-1] != start:
                        chain.append(came_from[chain[-1]])
                    return [*reversed(chain), start]
                if target in by_name and target not in came_from:
                    came_from[target] = name
                    following.append(target)
        frontier = following
    return None
