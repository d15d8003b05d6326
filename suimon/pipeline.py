"""Building a pipeline in Python: verbs that add vertices to a graph.

Nothing runs here and nothing is traced: each verb adds one vertex and returns a reference to its
result, which later verbs take as an input. What comes out is the same canonical graph that a JSON
definition gives. Mistakes are collected with the line they stand on and reported all at once, when
the graph is asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, overload

import orjson

from suimon import graph as graphs
from suimon import graph_fields as fields
from suimon.core import jsonsafe, refs
from suimon.core.suggest import one_of
from suimon.errors import DefinitionError, InvalidJson, Mistake
from suimon.reference import Reference, owner_of, path_of
from suimon.source_line import caller, shown
from suimon.task import describe, name_of, options_of, task

__all__ = ["Pipeline", "Reference", "pipeline", "task"]

F = TypeVar("F", bound=Callable[..., Any])

_PIPELINE_MARK: Final = "__suimon_pipeline__"
_WHOLE_INPUT: Final = {refs.REF: "input"}


class Pipeline:
    """A graph under construction. `concurrency=None` means no limit; the default is one by one."""

    def __init__(
        self,
        name: str,
        *,
        pool: str = "default",
        concurrency: int | str | None = 1,
        priority: int = 2,
        max_queued: int = 1_000,
        max_interruptions: int = 3,
    ) -> None:
        self.name = name
        self._head: dict[str, Any] = {
            "suimon": fields.FORMAT,
            "pipeline": name,
            "pool": pool,
            "concurrency": fields.UNLIMITED if concurrency is None else concurrency,
            "priority": priority,
            "maxQueued": max_queued,
            "maxInterruptions": max_interruptions,
        }
        self._vertices: dict[str, dict[str, Any]] = {}
        self._output: Any = None
        self._returns = False
        self._mistakes: list[Mistake] = []
        self._lines: dict[str, tuple[str, int]] = {}
        self.file, self.line = caller()
        #: The run's input: `p.input.path` is the field "path" of what the run is started with.
        self.input = Reference(self, ("input",))
        #: The run itself: `p.meta.id`, `p.meta.pipeline`, `p.meta.created_at`.
        self.meta = Reference(self, ("run",))

    def __repr__(self) -> str:
        return f"<Pipeline {self.name!r}: {len(self._vertices)} vertices>"

    # ----------------------------------------------------------------- verbs

    def run(
        self,
        id: str,  # noqa: A002 - the word of the design
        task: Callable[..., Any],
        /,
        *args: Any,
        after: Sequence[Reference] = (),
        pool: str | None = None,
        **inputs: Any,
    ) -> Reference:
        """Call a task. Arguments are constants or references, by position or by name."""
        config = self._task_config(id, task, pool)
        bound = self._bind(id, task, args, inputs) if config else {}
        return self._add(id, graphs.TASK, inputs=bound, config=config, after=after)

    def read(
        self,
        id: str,  # noqa: A002
        path: str | Reference,
        /,
        *,
        format: str | None = None,  # noqa: A002
        encoding: str | None = None,
        delimiter: str | None = None,
        header: bool | Sequence[str] | None = None,
        skip: int | None = None,
        after: Sequence[Reference] = (),
    ) -> Reference:
        """Read a CSV or JSONL file, row by row. Give it to `spawn` as items, or to a task."""
        config = {
            "format": format,
            "encoding": encoding,
            "delimiter": delimiter,
            "header": header if header is None or isinstance(header, bool) else list(header),
            "skip": skip,
        }
        return self._add(id, graphs.READ, inputs={"path": path}, config=config, after=after)

    def spawn(
        self,
        id: str,  # noqa: A002
        target: Callable[..., Any] | Pipeline | str,
        items: Any,
        /,
        *,
        key: str | None = None,
        concurrency: int | None = None,
        pool: str | None = None,
        max_items: int | None = None,
        after: Sequence[Reference] = (),
        **shared: Any,
    ) -> Reference:
        """Start one child run per item. The target is a task, a Pipeline or a pipeline's name.

        A task gets the item as its first parameter that `shared` does not name; a pipeline gets it
        as its input. `key` is the path of a field that tells the items apart.
        """
        if options_of(target) is not None and pipeline_of(target) is None:
            assert callable(target)
            config = self._task_config(id, target, pool)
        else:
            config = self._pipeline_target(id, target, pool)
        config |= {"itemKey": key, "concurrency": concurrency, "maxItems": max_items}
        inputs = {"items": items, **({"shared": shared} if shared else {})}
        return self._add(id, graphs.SPAWNER, inputs=inputs, config=config, after=after)

    def merge(
        self,
        id: str,  # noqa: A002
        spawner: Reference,
        /,
        *,
        tolerate: Sequence[str] = (),
        max_failure_ratio: float | None = None,
        max_failures: int | None = None,
        fail_fast: bool = False,
        stragglers: str | None = None,
        grace: str | None = None,
    ) -> Reference:
        """Wait for the children of a spawn. Without `tolerate`, one failed child fails the run."""
        bounds = {"maxFailureRatio": max_failure_ratio, "maxFailures": max_failures}
        bounds = {name: value for name, value in bounds.items() if value is not None}
        states = [tolerate] if isinstance(tolerate, str) else list(tolerate)
        config = {
            "tolerateChildFailures": states or None,
            "failureTolerance": bounds or None,
            "failFast": fail_fast,
            "stragglers": stragglers,
            "grace": grace,
        }
        return self._add(id, graphs.MERGE, inputs={}, config=config, after=[spawner])

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

    def whole_input(self, function: Callable[..., Any]) -> None:
        """The one vertex of a `@pipeline`: the function takes the fields of the input it names."""
        called = function.__name__.lower()
        usable = fields.ID.fullmatch(called) and called not in fields.RESERVED_IDS
        vertex = called if usable else "main"
        config = self._task_config(vertex, function, None)
        self._add(vertex, graphs.TASK, inputs=_WHOLE_INPUT, config=config, after=())

    def place_of(self, vertex: str | None) -> tuple[str, int]:
        """File and line where a vertex was written."""
        return self._lines.get(vertex or "", (self.file, self.line))

    # ----------------------------------------------------------------- inside

    def _raw(self) -> dict[str, Any]:
        raw = {**self._head, "vertices": self._vertices}
        if self._returns:
            raw["output"] = self._output
        return raw

    def _add(
        self,
        id: Any,  # noqa: A002
        kind: str,
        *,
        inputs: Mapping[str, Any],
        config: Mapping[str, Any],
        after: Any,
    ) -> Reference:
        if not isinstance(id, str):
            msg = f"the first argument is the vertex's id, as text, not {id!r}"
            raise TypeError(msg)
        if id in self._vertices:
            self._mistake(id, None, f'there are two vertices "{id}"')
        self._lines[id] = caller()
        vertex: dict[str, Any] = {"type": kind}
        if isinstance(after, Reference) or after:
            vertex["after"] = self._after(id, after)
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

    def _pipeline_target(self, id: str, target: Any, pool: str | None) -> dict[str, Any]:  # noqa: A002
        named = pipeline_of(target) or target
        if isinstance(named, Pipeline):
            named = named.name
        if not isinstance(named, str):
            message = f"{shown(target)} cannot be spawned"
            hint = "the target is a function with @task, a Pipeline, or the name of one"
            self._mistake(id, "config", message, hint)
            return {}
        return {"pipeline": named, "pool": pool}

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


# --------------------------------------------------------------------------- @pipeline


@overload
def pipeline(function: F, /) -> F: ...
@overload
def pipeline(
    *,
    name: str | None = ...,
    pool: str = ...,
    concurrency: int | str | None = ...,
    priority: int = ...,
    max_queued: int = ...,
    **task_options: Any,
) -> Callable[[F], F]: ...


def pipeline(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    pool: str = "default",
    concurrency: int | str | None = 1,
    priority: int = 2,
    max_queued: int = 1_000,
    **task_options: Any,
) -> Any:
    """Make a one-task pipeline of a function. It gets the fields of the input that it names.

    The other options are those of `@task`. The function stays a plain function.
    """

    def mark(target: F) -> F:
        marked = task(**task_options)(target)
        made = Pipeline(
            name or target.__name__,
            pool=pool,
            concurrency=concurrency,
            priority=priority,
            max_queued=max_queued,
        )
        made.whole_input(target)
        setattr(marked, _PIPELINE_MARK, made)
        return marked

    return mark if function is None else mark(function)


def pipeline_of(function: object) -> Pipeline | None:
    """The pipeline that `@pipeline` made of a function."""
    found = getattr(function, _PIPELINE_MARK, None) if inspect.isfunction(function) else None
    return found if isinstance(found, Pipeline) else None
