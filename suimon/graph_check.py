"""Everything that can be wrong with one graph, found in one pass and reported together.

`check` never raises for a wrong graph: it returns mistakes, each with vertex, field, what is wrong
and what to do. It goes from the outside in (shape of the document, each vertex by itself, then what
vertices say about each other) and leaves a later stage out only where an earlier one makes it
meaningless.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suimon import graph_fields as fields
from suimon.core import jsonsafe, refs, shape, sql_text
from suimon.core.shape import CONDITIONS, HTTP, MERGE, READ, SPAWNER, SQL, START, TASK, WAIT
from suimon.core.suggest import did_you_mean, one_of
from suimon.destination import problems
from suimon.errors import InvalidJson, Mistake
from suimon.graph_links import check_links
from suimon.graph_triggers import check_inputs, check_triggers
from suimon.read import options as reading

_PIPELINE_KEYS = (
    "suimon", "pipeline", *fields.PIPELINE_FIELDS, "destinations", "triggers", "vertices", "output",
)  # fmt: skip
_VERTEX_KEYS = ("type", "after", "inputs", "when", "unless", "runIf", "config")
_FOR_TARGET_PIPELINE = ("retries", "backoff", "timeout", "secrets", "destination")


class Notes:
    """Collects the mistakes of one pipeline."""

    def __init__(self, pipeline: str | None) -> None:
        self.pipeline = pipeline
        self.mistakes: list[Mistake] = []

    def add(
        self, vertex: str | None, field: str | None, message: str, hint: str | None = None
    ) -> None:
        self.mistakes.append(Mistake(vertex, field, message, hint, pipeline=self.pipeline))


def check(graph: Any) -> list[Mistake]:
    """All mistakes of one graph; an empty list means it can be normalised, stored and run."""
    named = graph.get("pipeline") if isinstance(graph, dict) else None
    notes = Notes(named if isinstance(named, str) else None)
    if not isinstance(graph, dict):
        notes.add(None, None, f"a definition is a JSON object, not {type(graph).__name__}")
        return notes.mistakes
    if not _check_values(graph, notes):
        return notes.mistakes
    graph = _without_nulls(graph)  # they are told; the rest is judged as if they were left out
    _check_document(graph, notes)
    check_triggers(graph.get("triggers"), notes)
    sound = _check_references(None, "output", graph.get("output", {}), notes)
    if _check_vertices(graph.get("vertices"), notes) and sound:
        check_links(graph, notes)
        check_inputs(graph, notes)
    return notes.mistakes


def _check_values(graph: Mapping[str, Any], notes: Notes) -> bool:
    """Depth, nulls and text that cannot be stored; False when the graph must not be walked."""
    too_deep = _find_nulls(graph, [], notes)
    if too_deep:
        notes.add(None, too_deep, f"nested deeper than {fields.MAX_DEPTH} levels")
        return False
    try:
        jsonsafe.dumps(graph, what="definition")
    except InvalidJson as error:
        notes.add(None, error.path, error.message, error.hint)
        return False
    return True


def _find_nulls(value: Any, path: list[str | int], notes: Notes) -> str | None:
    """Report each bare null; return the path of what is nested too deeply, if anything is."""
    if len(path) > fields.MAX_DEPTH:
        return jsonsafe.path_text(path[:8]) + "..."
    if value is None:
        hint = 'leave the key out; a null as a constant is written {"$value": null}'
        notes.add(None, jsonsafe.path_text(path), "null is not allowed here", hint)
        return None
    if isinstance(value, dict):
        quoted = refs.is_quoted(value) and value[refs.VALUE] is None
        parts: Any = () if quoted else value.items()
    else:
        parts = enumerate(value) if isinstance(value, list) else ()
    inside_quote = refs.is_quoted(value)
    for key, inner in parts:
        silent = Notes(None) if inside_quote else notes
        too_deep = _find_nulls(inner, [*path, key], silent)
        if too_deep:
            return too_deep
    return None


def _without_nulls(value: Any) -> Any:
    if refs.is_quoted(value):
        return value
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


# --------------------------------------------------------------------------- the document


def _check_document(graph: Mapping[str, Any], notes: Notes) -> None:
    _check_keys(graph, _PIPELINE_KEYS, None, "", notes)
    version = graph.get("suimon")
    if version != fields.FORMAT or type(version) is not int:
        found = "is missing" if version is None else f"is {version!r}"
        notes.add(None, "suimon", f"the format number {found}", 'write "suimon": 1')
    if "pipeline" not in graph:
        notes.add(None, "pipeline", "the pipeline has no name", 'add "pipeline": "my-pipeline"')
    else:
        _apply(fields.pipeline_name, graph["pipeline"], None, "pipeline", notes)
    for name, rule in fields.PIPELINE_FIELDS.items():
        if name in graph:
            _apply(rule, graph[name], None, name, notes)
    _check_destinations(graph.get("destinations", {}), notes)


def _check_destinations(declared: Any, notes: Notes) -> None:
    if not isinstance(declared, dict):
        notes.add(None, "destinations", 'must be an object: {"crm": {"rate": "20/s"}}')
        return
    for name, given in declared.items():
        for field, message, hint in problems(name, given):
            place = ".".join(part for part in ("destinations", str(name), field) if part)
            notes.add(None, place, message, hint)


def _check_keys(
    value: Mapping[str, Any], known: tuple[str, ...], vertex: str | None, place: str, notes: Notes
) -> None:
    for key in value:
        if key in known:
            continue
        field = f"{place}.{key}" if place else str(key)
        notes.add(vertex, field, f'unknown key "{key}"', one_of(str(key), known))


def _apply(rule: fields.Rule, value: Any, vertex: str | None, field: str, notes: Notes) -> None:
    problem = rule(value)
    if problem:
        notes.add(vertex, field, f"{field.rpartition('.')[2]} {problem}")


# --------------------------------------------------------------------------- each vertex


def _check_vertices(vertices: Any, notes: Notes) -> bool:
    """Each vertex by itself. True when their links can be looked at."""
    if not isinstance(vertices, dict) or not vertices:
        hint = 'vertices is an object: {"my_step": {"type": "TASK", ...}}'
        notes.add(None, "vertices", "a pipeline needs at least one vertex", hint)
        return False
    if len(vertices) > fields.MAX_VERTICES:
        message = f"{len(vertices):,} vertices; the limit is {fields.MAX_VERTICES:,}"
        notes.add(None, "vertices", message, "many like steps are a fan-out: use a SPAWNER")
        return False
    results = [_check_vertex(name, vertex, notes) for name, vertex in vertices.items()]
    return all(results)


def _check_vertex(name: str, vertex: Any, notes: Notes) -> bool:
    """True when the vertex is well-formed enough to look at its links."""
    if name in fields.RESERVED_IDS:
        notes.add(name, None, f'the id "{name}" is reserved: references use it as a root')
    elif not fields.ID.fullmatch(name):
        hint = "lower-case letters, digits and _, beginning with a letter, at most 100"
        notes.add(name, None, f'"{name}" is no vertex id', hint)
    if not isinstance(vertex, dict):
        notes.add(name, None, f"a vertex is an object, not {type(vertex).__name__}")
        return False
    _check_keys(vertex, _VERTEX_KEYS, name, "", notes)
    kind = vertex.get("type")
    if kind not in shape.VERTEX_TYPES:
        listed = ", ".join(shape.VERTEX_TYPES)
        message = f"unknown vertex type {kind!r}; this version has {listed}"
        near = did_you_mean(kind.upper(), shape.VERTEX_TYPES) if isinstance(kind, str) else None
        notes.add(name, "type", message, near)
        return False
    sound = _check_after(name, vertex.get("after", []), notes)
    sound &= _check_inputs(name, kind, vertex.get("inputs", {}), notes)
    sound &= _check_config(name, kind, vertex.get("config", {}), notes)
    sound &= _check_conditions(name, kind, vertex, notes)
    if kind == SQL and sound:
        _check_parameters(name, vertex.get("config", {}), vertex.get("inputs", {}), notes)
    if kind == WAIT and sound:
        _check_wait(name, {**vertex.get("inputs", {}), **vertex.get("config", {})}, notes)
    return sound


def _check_parameters(
    name: str, config: Mapping[str, Any], inputs: Mapping[str, Any], notes: Notes
) -> None:
    """An SQL vertex's inputs are its query's parameters, all of them and no others."""
    wanted = sql_text.parameters(config["query"]) if isinstance(config.get("query"), str) else []
    for key in inputs:
        if key not in wanted:
            message = f'the query has no parameter "${key}"'
            notes.add(name, f"inputs.{key}", message, one_of(key, wanted) if wanted else None)
    for parameter in wanted:
        if parameter not in inputs:
            notes.add(name, f"inputs.{parameter}", f'the query needs "${parameter}"')


def _check_after(name: str, after: Any, notes: Notes) -> bool:
    if isinstance(after, list) and all(isinstance(other, str) for other in after):
        return True
    notes.add(name, "after", 'must be a list of vertex ids, like ["orders"]')
    return False


def _check_conditions(name: str, kind: str, vertex: Mapping[str, Any], notes: Notes) -> bool:
    """`when`, `unless` and `runIf` of one vertex."""
    sound = True
    for key in CONDITIONS:
        if key in vertex and not refs.is_reference(vertex[key]):
            hint = f'let a task decide and refer to its answer: "{key}": {{"$ref": "judged.over"}}'
            notes.add(name, key, f"{key} must be a reference to true or false", hint)
            sound = False
        elif key in vertex:
            sound &= _check_references(name, key, vertex[key], notes)
    if "runIf" in vertex:
        _apply(fields.run_if, vertex["runIf"], name, "runIf", notes)
        if not vertex.get("after") and vertex["runIf"] != shape.SUCCEEDED:
            hint = 'name the vertices it judges: "after": ["paid"]'
            notes.add(name, "runIf", "runIf judges what stands in `after`, and nothing does", hint)
    given = [key for key in (*CONDITIONS, "runIf") if key in vertex]
    if kind == MERGE and given:
        message = "a MERGE has no condition of its own"
        notes.add(name, given[0], message, f"put {given[0]} on its SPAWNER")
    return sound


def _check_wait(name: str, given: Mapping[str, Any], notes: Notes) -> None:
    named = [key for key in ("timer", "until", "signal") if key in given]
    if len(named) != 1:
        found = f"has {' and '.join(named)}" if named else "waits for nothing"
        hint = 'give it one: "timer": "10m", "signal": "paid", or the input "until"'
        notes.add(name, "config", f"the WAIT {found}", hint)
    elif "timeout" in given and named != ["signal"]:
        hint = "leave it out: the wait ends by itself"
        notes.add(name, "config.timeout", "only a wait for a signal has a timeout", hint)


def _check_inputs(name: str, kind: str, inputs: Any, notes: Notes) -> bool:
    if not isinstance(inputs, dict):
        notes.add(name, "inputs", f"must be an object, not {type(inputs).__name__}")
        return False
    if kind in (TASK, SQL):
        return _check_references(name, "inputs", inputs, notes)
    known, needed = fields.INPUTS[kind]
    for key in inputs:
        if key not in known:
            hint = one_of(key, known) if known else "a MERGE takes no inputs; name it in `after`"
            notes.add(name, f"inputs.{key}", f'{_a(kind)} has no input "{key}"', hint)
    missing = [key for key in needed if key not in inputs]
    for key in missing:
        notes.add(name, f"inputs.{key}", f'{_a(kind)} needs the input "{key}"')
    if kind == HTTP and "json" in inputs and "body" in inputs:
        notes.add(name, "inputs.body", "a call has one body: json or body")
    for key, value in inputs.items():
        if (kind, key) in fields.CONSTANTS and not refs.is_reference(value):
            _apply(fields.CONSTANTS[kind, key], value, name, f"inputs.{key}", notes)
    if kind == SPAWNER and not isinstance(inputs.get("shared", {}), dict):
        notes.add(name, "inputs.shared", "must be an object of names and values")
        return False
    return _check_references(name, "inputs", inputs, notes) and not missing


def _check_references(name: str | None, place: str, value: Any, notes: Notes) -> bool:
    """Are all references in here well-formed? Whether they lead somewhere is asked later."""
    if refs.is_quoted(value):
        return True
    if isinstance(value, dict):
        for key in (refs.REF, refs.VALUE):
            if key in value and len(value) > 1:
                hint = "to have such a constant, quote the whole object with $value"
                notes.add(name, place, f'an object with "{key}" has no other keys', hint)
                return False
        if refs.is_reference(value):
            try:
                refs.parse_path(value[refs.REF])
            except ValueError as error:
                notes.add(name, place, str(error))
                return False
            return True
        parts: Any = [(f"{place}.{key}", inner) for key, inner in value.items()]
    elif isinstance(value, list):
        parts = [(f"{place}[{index}]", inner) for index, inner in enumerate(value)]
    else:
        return True
    sound = [_check_references(name, where, inner, notes) for where, inner in parts]
    return all(sound)  # after all were looked at, so that all their mistakes are told


def _check_config(name: str, kind: str, config: Any, notes: Notes) -> bool:
    if not isinstance(config, dict):
        notes.add(name, "config", f"must be an object, not {type(config).__name__}")
        return False
    rules = fields.CONFIG_FIELDS[kind]
    _check_keys(config, tuple(rules), name, "config", notes)
    for key, value in config.items():
        if key in rules:
            _apply(rules[key], value, name, f"config.{key}", notes)
    if kind == TASK and "task" not in config:
        notes.add(name, "config.task", 'a TASK needs "task": "module:function"')
    if kind == READ and config.get("format") in reading.FORMATS:
        _check_reading(name, config, notes)
    if kind == SPAWNER:
        _check_target(name, config, notes)
    if kind == START and "pipeline" not in config:
        notes.add(name, "config.pipeline", 'a START needs "pipeline": "name"')
    if kind == HTTP and "destination" not in config:
        notes.add(name, "config.destination", 'an HTTP needs "destination": "name"')
    if kind == SQL and "query" not in config:
        notes.add(name, "config.query", 'an SQL needs "query": "select ..."')
    if kind == MERGE and "failureTolerance" in config and "tolerateChildFailures" not in config:
        hint = 'name the states: "tolerateChildFailures": ["FAILED"]'
        notes.add(name, "config.failureTolerance", "a bound without tolerated states", hint)
    return True


def _check_reading(name: str, config: Mapping[str, Any], notes: Notes) -> None:
    """Options that another format has: silently ignored, they would be a promise not kept."""
    for key, value in config.items():
        if key in reading.RULES and reading.RULES[key](value) is None:
            problem = reading.problem(config["format"], key, value)
            if problem:
                notes.add(name, f"config.{key}", f"{key} {problem}")


def _check_target(name: str, config: Mapping[str, Any], notes: Notes) -> None:
    if ("task" in config) == ("pipeline" in config):
        what = "both a task and a pipeline" if "task" in config else "no target"
        hint = 'name one: "task": "module:function" or "pipeline": "name"'
        notes.add(name, "config", f"the SPAWNER has {what}", hint)
    elif "pipeline" in config:
        for key in _FOR_TARGET_PIPELINE:
            if key in config:
                hint = "set it on the tasks of that pipeline"
                notes.add(name, f"config.{key}", f"{key} belongs to a task, not a pipeline", hint)


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "AEIOUH" else f"a {kind}"
