"""The child half of reading definitions: import everything, collect, check, all mistakes at once.

A module that cannot be imported is one mistake among the others; the rest is still read, so that a
person sees everything that is wrong in one go.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from suimon import graph as graphs
from suimon import modules
from suimon.binding import bind
from suimon.core.suggest import one_of
from suimon.destination import Destination, problems
from suimon.errors import LoadFailed, Mistake
from suimon.graph_fields import MAX_TEXT_BYTES
from suimon.graph_set import TaskInfo, check_destinations, check_tasks, check_together
from suimon.graph_text import line_of
from suimon.pipeline import Pipeline, pipeline_of
from suimon.task import describe, options_of

# A JSON file is a definition when its object has the key "suimon"; looked for in its beginning.
_LOOKS_LIKE_ONE: Final = re.compile(rb'"suimon"\s*:')
_YAML_LOOKS_LIKE_ONE: Final = re.compile(
    rb"""^(?:--- +)?(?:\{\s*)?["']?suimon["']?\s*:""", re.MULTILINE
)
# One that has vertices and no such key is nearly always a definition whose author left it out.
_HAS_VERTICES: Final = re.compile(rb'"vertices"\s*:\s*\{')
_YAML_HAS_VERTICES: Final = re.compile(
    rb"""^(?:--- +)?(?:\{\s*)?["']?vertices["']?\s*:""", re.MULTILINE
)
_HEAD_BYTES: Final = 64 * 1024


def read(path: str) -> dict[str, Any]:
    """The document for the parent."""
    try:
        reader = Reader(path)
        reader.read()
    except LoadFailed as error:
        return {"failed": error.to_json()}
    return reader.document()


class Reader:
    """What was found below one PATH so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.root = modules.folder_of(path)
        self.tasks: dict[str, TaskInfo] = {}
        self.plain: set[str] = set()  # functions without @task, to say so when one is named
        self.graphs: dict[str, dict[str, Any]] = {}
        self.files: dict[str, str] = {}
        self.lines: dict[tuple[str, str | None], tuple[str, int]] = {}
        self.mistakes: list[Mistake] = []
        self.destinations: dict[str, tuple[dict[str, Any], str, int]] = {}
        self.warnings: list[str] = []
        self.broken: set[str] = set()  # names whose own mistakes are told already
        self._seen: set[int] = set()

    def read(self) -> None:
        modules.enter(self.path)
        for found in modules.find(self.path):
            loaded = modules.load(found, self.root)
            if isinstance(loaded, Mistake):
                self.mistakes.append(loaded)
            else:
                self._collect(loaded, found)
        for file in modules.files_below(self.path, (".json", ".yaml", ".yml")):
            self._read_definition(file)
        for graph in self.graphs.values():
            self._place(check_tasks(graph, self.tasks))
            self._place(check_destinations(graph, self.destinations))
        self._place(check_together(self.graphs.values(), self.broken))

    def document(self) -> dict[str, Any]:
        return {
            "pipelines": [
                {
                    "name": name,
                    "hash": graphs.graph_hash(graph),
                    "graph": graph,
                    "source_file": self.files[name],
                }
                for name, graph in sorted(self.graphs.items())
            ],
            "destinations": {name: one[0] for name, one in sorted(self.destinations.items())},
            "tasks": {name: info.to_json() for name, info in sorted(self.tasks.items())},
            "mistakes": [mistake.to_json() for mistake in self.mistakes],
            "warnings": self.warnings,
        }

    # ----------------------------------------------------------------- Python

    def _collect(self, module: ModuleType, found: modules.Found) -> None:
        for name, value in list(vars(module).items()):
            if isinstance(value, Pipeline):
                self._add_pipeline(value)
            elif isinstance(value, Destination):
                self._declare(value)
            elif inspect.isfunction(value):
                made = pipeline_of(value)
                if made is not None:
                    self._add_pipeline(made)
                if value.__module__ == module.__name__:
                    self._add_function(name, value, found)

    def _add_function(self, name: str, function: Any, found: modules.Found) -> None:
        called = f"{found.name}:{name}"
        if options_of(function) is None:
            self.plain.add(called)
            return
        self.tasks[called] = describe(function)
        declared = options_of(function)
        if declared is not None and declared.destination is not None:
            self._declare(declared.destination)
        try:
            bind(function)
        except TypeError as error:
            line = function.__code__.co_firstlineno
            shown = self._shown(found.file)
            self.mistakes.append(Mistake(None, None, str(error), file=shown, line=line))

    def _add_pipeline(self, pipeline: Pipeline) -> None:
        if id(pipeline) in self._seen:
            return  # one object, imported by several modules
        self._seen.add(id(pipeline))
        for one in pipeline.destinations:
            self._declare(one)
        mistakes = pipeline.mistakes()
        if mistakes:
            self.broken.add(pipeline.name)
            self.mistakes += [
                dataclasses.replace(mistake, file=self._shown(mistake.file or pipeline.file))
                for mistake in mistakes
            ]
            return
        graph = pipeline.graph()
        for vertex in [None, *graph["vertices"]]:
            file, line = pipeline.place_of(vertex)
            self.lines[pipeline.name, vertex] = (self._shown(file), line)
        self._add_graph(graph, self._shown(pipeline.file), pipeline.line)

    def _add_graph(self, graph: dict[str, Any], file: str, line: int | None = None) -> None:
        name = graph["pipeline"]
        if name in self.graphs:
            message = f'a pipeline "{name}" is defined in {self.files[name]} already'
            self.mistakes.append(
                Mistake(None, "pipeline", message, pipeline=name, file=file, line=line)
            )
            return
        self.graphs[name] = graph
        self.files[name] = file

    # ----------------------------------------------------------------- destinations

    def _declare(self, one: Destination) -> None:
        given = one.to_json()
        file, line = self._shown(one.place[0]), one.place[1]
        for field, message, hint in problems(one.name, given):
            place = ".".join(part for part in ("destinations", str(one.name), field) if part)
            found = Mistake(None, place, message, hint, file=file, line=line)
            if found not in self.mistakes:
                self.mistakes.append(found)
        self._add_destination(str(one.name), given, file, line)

    def _add_destination(self, name: str, given: dict[str, Any], file: str, line: int) -> None:
        """One name, one declaration; the same one twice is the same one."""
        known = self.destinations.setdefault(name, (given, file, line))
        if known[0] != given:
            message = f'"{name}" is declared otherwise in {known[1]}:{known[2]}'
            hint = "declare it once and import it, or write the same in both places"
            place = f"destinations.{name}"
            self.mistakes.append(Mistake(None, place, message, hint, file=file, line=line))

    # ----------------------------------------------------------------- JSON and YAML

    def _read_definition(self, file: Path) -> None:
        shown = self._shown(file)
        is_yaml = file.suffix != ".json"
        looks_like_one = (_YAML_LOOKS_LIKE_ONE if is_yaml else _LOOKS_LIKE_ONE).search
        try:
            with file.open("rb") as stream:
                head = stream.read(_HEAD_BYTES)
                if Path(self.path).absolute() != file and not looks_like_one(head):
                    self._tell_if_one(head, shown, is_yaml=is_yaml)
                    return  # data that happens to be JSON or YAML
                text = head + stream.read(MAX_TEXT_BYTES + 1 - len(head))
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            self.mistakes.append(Mistake(None, None, message, file=shown))
            return
        found, mistakes = graphs.read_all(text, file=shown, yaml=is_yaml)
        self.broken.update(mistake.pipeline for mistake in mistakes if mistake.pipeline)
        self.mistakes += mistakes
        for parsed in found:
            name = parsed.graph["pipeline"]
            for called, given in parsed.destinations.items():
                line = line_of(parsed.lines, None, f"destinations.{called}")
                self._add_destination(called, given, shown, line or 0)
            if name not in self.graphs:
                for vertex in [None, *parsed.graph["vertices"]]:
                    line = line_of(parsed.lines, vertex, None)
                    self.lines[name, vertex] = (shown, line or 0)
            self._add_graph(parsed.graph, shown, parsed.lines.get(("pipeline",)))

    def _tell_if_one(self, head: bytes, shown: str, *, is_yaml: bool) -> None:
        """No mistake, since a folder may hold other files; silence would look like deployed."""
        if (_YAML_HAS_VERTICES if is_yaml else _HAS_VERTICES).search(head):
            key = "suimon: 1" if is_yaml else '"suimon": 1'
            text = f"{shown} has vertices but not the key {key}: it is not read as a pipeline"
            self.warnings.append(f"{text}; if it is one, write {key} at its top")

    # ----------------------------------------------------------------- helpers

    def _shown(self, file: str | Path) -> str:
        """A file's name relative to PATH's folder."""
        full = Path(file)
        return str(full.relative_to(self.root)) if full.is_relative_to(self.root) else str(file)

    def _place(self, mistakes: Iterable[Mistake]) -> None:
        """Give mistakes the file and line of their vertex, and unmarked functions their hint."""
        for mistake in mistakes:
            pipeline = mistake.pipeline or ""
            file, line = self.lines.get((pipeline, mistake.vertex), (self.files[pipeline], 0))
            placed = dataclasses.replace(mistake, file=file, line=line or None)
            if mistake.field == "config.task" and mistake.vertex is not None:
                placed = self._about_plain_function(placed, pipeline, mistake.vertex)
            self.mistakes.append(placed)

    def _about_plain_function(self, mistake: Mistake, pipeline: str, vertex: str) -> Mistake:
        named = self.graphs[pipeline]["vertices"][vertex]["config"].get("task")
        if named in self.plain:
            return dataclasses.replace(mistake, hint=f'put @task on "{named}"')
        if named not in self.tasks:
            return dataclasses.replace(mistake, hint=one_of(str(named), self.tasks))
        return mistake
