"""Programs: graphs and their vertices, made ready for slots.

Graphs never change, so what is made of one is kept; a fan-out's children share a program that
carries the fan-out's ``shared`` inputs once. Bound: the least recently made half is dropped beyond
``MAX_PROGRAMS`` (slots keep theirs, and numbers are never used again).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

import orjson

from suimon.core import door, shape
from suimon.core import plan as planning
from suimon.graph_fields import CONFIG_DEFAULTS
from suimon.worker.held import Program, policy

MAX_PROGRAMS: Final = 2000


class Programs:
    """The graphs and programs of one worker."""

    def __init__(self, pool: str) -> None:
        self.pool = pool
        self.graphs: dict[int, dict[str, Any]] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        #: Numbers that slots may forget; a number is never used again.
        self.evicted: list[int] = []
        self._plans: dict[int, planning.Plan] = {}
        self._missing: dict[tuple[int, str | None], str | None] = {}
        self._known: dict[tuple[Any, ...], Program] = {}
        self._numbers = itertools.count(1)

    def set_tasks(self, tasks: dict[str, dict[str, Any]]) -> None:
        """Take what a slot's code offers; what was concluded from other code is forgotten."""
        if tasks != self.tasks:
            self.tasks = tasks
            self._plans.clear()
            self._missing.clear()

    def add_graph(self, graph_id: int, body: str) -> None:
        """Take a graph's stored JSON."""
        self.graphs[graph_id] = orjson.loads(body)

    def plan(self, graph_id: int) -> planning.Plan:
        """The planner of a graph, for the generator tasks of this worker's code."""
        if graph_id not in self._plans:
            generators = {name for name, facts in self.tasks.items() if facts.get("generator")}
            self._plans[graph_id] = planning.Plan(self.graphs[graph_id], generators)
        return self._plans[graph_id]

    def is_single(self, graph_id: int) -> bool:
        graph = self.graphs[graph_id]
        if not shape.is_single(graph):
            return False
        (vertex,) = shape.vertices(graph).values()
        return bool((vertex.get("config") or {}).get("pool", self.pool) == self.pool)

    def missing(self, graph_id: int, vertex: str | None) -> str | None:
        """The first function that this run may need and this worker's code has not."""
        key = (graph_id, vertex)
        if key not in self._missing:
            self._missing[key] = self._look_for(graph_id, vertex)
        return self._missing[key]

    def _look_for(self, graph_id: int, vertex: str | None) -> str | None:
        graph = self.graphs[graph_id]
        vertices = [vertex] if vertex is not None else list(shape.vertices(graph))
        for name in vertices:
            task = (shape.vertices(graph)[name].get("config") or {}).get("task")
            if (
                task is not None
                and shape.kind(graph, name) == shape.TASK
                and task not in self.tasks
            ):
                return str(task)
            if vertex is not None and task is not None and task not in self.tasks:
                return str(task)
        return None

    def child(self, graph_id: int, vertex: str, fanout: int, shared: str | None) -> Program:
        """The program of a bare task's children: the item is the input."""

        def make(number: int) -> Program:
            graph = self.graphs[graph_id]
            config = shape.vertices(graph)[vertex]["config"]
            given = orjson.loads(shared) if shared else {}
            return self._task(
                number,
                vertex,
                config,
                item=shape.kind(graph, vertex) == shape.SPAWNER,
                shared=given,
                specials=planning.specials(graph, vertex),
            )

        return self._get(("child", graph_id, vertex, fanout), make)

    def knows_child(self, graph_id: int, vertex: str, fanout: int) -> bool:
        return ("child", graph_id, vertex, fanout) in self._known

    def task(self, graph_id: int, action: planning.Execute) -> Program:
        """The program of a TASK vertex."""

        def make(number: int) -> Program:
            about = shape.vertices(self.graphs[graph_id])[action.vertex]
            if about["type"] == shape.SQL:
                return _sql(number, action.vertex, about)
            made = self._task(
                number,
                action.vertex,
                action.config,
                item=False,
                shared={},
                specials=action.specials,
            )
            if ignorable := door.ignorable(self.graphs[graph_id], action.vertex):
                made.definition["ignorable"] = ignorable
            return made

        return self._get(("task", graph_id, action.vertex), make)

    def spawn(
        self, action: planning.Spawn, *, to_pipeline: bool, counted: bool = False, watched: bool
    ) -> tuple[Program, dict[str, Any]]:
        """The program of one spawner's list, and what its single run is given.

        Its first chunk has to say how long the list is, if it is ``counted`` (where that can be
        known), and how much is coming, if it is ``watched``.
        """
        source: dict[str, Any]
        given: dict[str, Any] = {}
        match action.source:
            case planning.ListSource(items):
                source, given = {"kind": "list"}, {"items": items}
            case planning.ReadSource(path, fmt, options, version, trusted):
                source = {"kind": "read", "path": path, "format": fmt, "options": dict(options),
                          "version": version, "trusted": trusted}  # fmt: skip
            case planning.TaskSource(task, inputs, _, specials):
                source = {"kind": "task", "task": task, "specials": specials}
                given = {"inputs": inputs}
        number = next(self._numbers)
        definition = {
            "n": number,
            "kind": "spawn",
            "vertex": action.vertex,
            "source": source,
            "key": action.config.get("itemKey"),
            "max_items": action.config.get("maxItems"),
            "item_shape": "object" if to_pipeline else "any",
            "specials": source.get("specials", []),
            "chunk": 1000,
            "watched": watched,
        }
        if counted:
            definition["counted"] = True
        granted: tuple[str, ...] = ()
        if isinstance(action.source, planning.TaskSource):
            granted = tuple(action.source.config.get("secrets", ()))
            definition["secrets"] = granted
        program = Program(number, action.vertex, definition, spawns=True, secrets=granted)
        return program, given

    def _task(
        self,
        number: int,
        vertex: str,
        config: Mapping[str, Any],
        *,
        item: bool,
        shared: dict[str, Any],
        specials: list[list[Any]],
    ) -> Program:
        if "task" not in config:
            return _http(number, vertex, config)
        settings = policy(dict(config))
        definition = {
            "n": number,
            "kind": "task",
            "task": config["task"],
            "vertex": vertex,
            "item": item,
            "shared": shared,
            "specials": specials,
            "timeout": settings.get("timeout_s"),
        }
        if "destination" in config:
            definition["destination"] = settings["destination"] = config["destination"]
        if "secrets" in config:
            definition["secrets"] = config["secrets"]
            settings["secrets"] = tuple(config["secrets"])
        facts = self.tasks.get(config["task"], {})
        return Program(
            number, config["task"], definition, is_async=bool(facts.get("async")), **settings
        )

    def _get(self, key: tuple[Any, ...], make: Any) -> Program:
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MAX_PROGRAMS:
                for old in list(self._known)[: MAX_PROGRAMS // 2]:
                    self.evicted.append(self._known.pop(old).number)
            found = self._known[key] = make(next(self._numbers))
        return found


def _sql(number: int, vertex: str, about: Mapping[str, Any]) -> Program:
    """The program of an SQL vertex. Its constant inputs are the author's own word for paths."""
    config = {**CONFIG_DEFAULTS[shape.SQL], **(about.get("config") or {})}
    inputs = about.get("inputs") or {}
    settings = policy(config)
    definition = {
        "n": number,
        "kind": "sql",
        "vertex": vertex,
        "query": config["query"],
        "constants": [name for name, value in inputs.items() if isinstance(value, str | list)],
        "timeout": settings.get("timeout_s"),
    }
    return Program(number, "", definition, **settings)


def _http(number: int, vertex: str, config: Mapping[str, Any]) -> Program:
    """The program of an HTTP vertex: the engine's own function, in a slot like any other."""
    config = {**CONFIG_DEFAULTS[shape.HTTP], **config}
    definition = {
        "n": number,
        "kind": "http",
        "vertex": vertex,
        "destination": config["destination"],
        "method": config["method"],
        "expect": config.get("expect"),
    }
    settings = policy(config)
    return Program(number, "", definition, destination=config["destination"], **settings)
