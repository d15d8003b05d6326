"""What all verbs of a pipeline under construction share: vertices, inputs, mistakes, the result.

A verb becomes one vertex. Its Python values become what the graph writes: references as `$ref`,
constants as JSON, arguments by name. A mistake is noted with the line it stands on, and all of them
are told together when the graph is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from suimon import graph as graphs
from suimon.core import jsonsafe, refs
from suimon.core.suggest import one_of
from suimon.errors import DefinitionError, InvalidJson, Mistake
from suimon.reference import Reference, owner_of, path_of
from suimon.source_line import caller, shown
from suimon.task import describe, name_of, options_of

After: TypeAlias = Reference | Sequence[Reference]


@dataclass(frozen=True, slots=True)
class Order:
    """When a vertex runs: after which others, under which condition."""

    after: After = ()
    when: Reference | None = None
    unless: Reference | None = None
    run_if: str | None = None


class Builder:
    """The state of a graph under construction, without the verbs."""

    def __init__(self, name: str, head: Mapping[str, Any]) -> None:
        self.name = name
        self._head = {key: value for key, value in head.items() if value is not None}
        self._vertices: dict[str, dict[str, Any]] = {}
        self._triggers: list[dict[str, Any]] = []
        self._output: Any = None
        self._returns = False
        self._mistakes: list[Mistake] = []
        self._lines: dict[str, tuple[str, int]] = {}
        self.file, self.line = caller()

    def returns(self, output: Any, /) -> None:
        """What the run gives back; without it, the result of the last vertex."""
        if self._returns:
            self._mistake(None, "output", "returns() was called twice")
        self._returns = True
        self._output = self._plain(None, "output", output)

    # ----------------------------------------------------------------- what comes out

    def mistakes(self) -> list[Mistake]:
        """Everything wrong with this pipeline by itself, with file and line."""
        known = [*self._mistakes]
        told = {(mistake.vertex, mistake.field) for mistake in known}
        known += [
            self._placed(mistake)
            for mistake in graphs.check(self._raw())
            if (mistake.vertex, mistake.field) not in told
        ]
        return known

    def graph(self) -> dict[str, Any]:
        """The canonical graph, or DefinitionError with all mistakes."""
        found = self.mistakes()
        if found:
            raise DefinitionError(found)
        return graphs.normalise(self._raw())

    def to_json(self) -> str:
        """The canonical JSON text."""
        return graphs.canonical(self.graph()).decode()

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON: what a run is pinned to."""
        return graphs.graph_hash(self.graph())

    def place_of(self, vertex: str | None) -> tuple[str, int]:
        """File and line where a vertex was written."""
        return self._lines.get(vertex or "", (self.file, self.line))

    # ----------------------------------------------------------------- inside

    def _raw(self) -> dict[str, Any]:
        raw = {**self._head, "vertices": self._vertices}
        if self._triggers:
            raw["triggers"] = self._triggers
        if self._returns:
            raw["output"] = self._output
        return raw

    def _add(
        self,
        id: Any,  # noqa: A002
        kind: str,
        inputs: Mapping[str, Any],
        config: Mapping[str, Any],
        order: Order,
    ) -> Reference:
        if not isinstance(id, str):
            msg = f"the first argument is the vertex's id, as text, not {id!r}"
            raise TypeError(msg)
        if id in self._vertices:
            self._mistake(id, None, f'there are two vertices "{id}"')
        self._lines[id] = caller()
        vertex: dict[str, Any] = {"type": kind}
        if isinstance(order.after, Reference) or order.after:
            vertex["after"] = self._after(id, order.after)
        for key, value in (("when", order.when), ("unless", order.unless)):
            if value is not None:
                vertex[key] = self._plain(id, key, value)
        if order.run_if is not None:
            vertex["runIf"] = order.run_if
        if kind == graphs.TASK:
            vertex["inputs"] = inputs
        else:
            vertex["inputs"] = self._plain(id, "inputs", dict(inputs))
        vertex["config"] = {name: value for name, value in config.items() if value is not None}
        self._vertices[id] = vertex
        return Reference(self, (id,))

    def _after(self, id: str, after: Any) -> list[str]:  # noqa: A002
        names: list[str] = []
        for other in [after] if isinstance(after, Reference) else after:
            if not isinstance(other, Reference) or len(path_of(other)) != 1:
                self._mistake(id, "after", f"{other!r} is no vertex")
            elif owner_of(other) is not self:
                self._mistake(id, "after", "this vertex belongs to another pipeline")
            else:
                names.append(str(path_of(other)[0]))
        return names

    def _task_config(self, id: str, function: Any, pool: str | None) -> dict[str, Any]:  # noqa: A002
        options = options_of(function)
        if options is None:
            hint = "put @task on the function"
            self._mistake(id, "config.task", f"{shown(function)} is not a task", hint)
            return {}
        if "<locals>" in function.__qualname__ or "." in function.__qualname__:
            hint = "workers find a task by module and name; move it to the top of its module"
            message = f"{function.__qualname__} is not at the top level of its module"
            self._mistake(id, "config.task", message, hint)
        config = {"task": name_of(function), **options.config}
        return {**config, "pool": pool} if pool is not None else config

    def _bind(
        self,
        id: str,  # noqa: A002
        function: Callable[..., Any],
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> dict[str, Any]:
        """Arguments by position and name become inputs by name."""
        info = describe(function)
        names = [parameter.name for parameter in info.params]
        if len(args) > len(names):
            listed = ", ".join(names) or "no inputs"
            message = f"{len(args)} inputs by position, but the task takes {listed}"
            self._mistake(id, "inputs", message)
        inputs = dict(zip(names, args, strict=False))
        for name, value in named.items():
            if name in inputs:
                self._mistake(id, f"inputs.{name}", "given by position and by name")
            elif name not in names and not info.rest:
                hint = one_of(name, names)
                self._mistake(id, f"inputs.{name}", f'the task has no parameter "{name}"', hint)
            inputs[name] = value
        for parameter in info.params:
            if parameter.required and parameter.name not in inputs:
                self._mistake(id, f"inputs.{parameter.name}", f'the task needs "{parameter.name}"')
        plain: dict[str, Any] = {
            name: self._plain(id, f"inputs.{name}", value) for name, value in inputs.items()
        }
        return plain

    def _plain(self, vertex: str | None, field: str, value: Any) -> Any:
        """A Python value as the graph writes it: references as `$ref`, constants as JSON."""
        if isinstance(value, Reference):
            if owner_of(value) is not self:
                self._mistake(vertex, field, "this reference belongs to another pipeline")
            return {refs.REF: refs.write_path(path_of(value))}
        if isinstance(value, dict):
            if refs.REF in value or refs.VALUE in value:
                return {refs.VALUE: value}
            return {
                key: self._plain(vertex, f"{field}.{key}", inner) for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [
                self._plain(vertex, f"{field}[{index}]", inner) for index, inner in enumerate(value)
            ]
        try:
            return graphs.quote(orjson.loads(jsonsafe.dumps(value, what="constant")))
        except InvalidJson as error:
            self._mistake(vertex, field, error.message, error.hint)
            return ""

    def _mistake(
        self, vertex: str | None, field: str | None, message: str, hint: str | None = None
    ) -> None:
        file, line = caller()
        self._mistakes.append(Mistake(vertex, field, message, hint, self.name, file, line))

    def _placed(self, mistake: Mistake) -> Mistake:
        file, line = self.place_of(mistake.vertex)
        return Mistake(
            mistake.vertex, mistake.field, mistake.message, mistake.hint, self.name, file, line
        )
