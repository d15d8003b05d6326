"""The canonical graph: what Python, JSON and YAML become, what is stored, what is hashed.

A graph is a JSON object `{suimon: 1, pipeline, ..., vertices: {id: vertex}, output}`. The canonical
form leaves out what is default, has no nulls, sorted keys and no spaces; its SHA-256 is the
graph's name in the database, and a run keeps the hash it started with. Two texts that mean the same
have the same bytes, as far as that can be told without running them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from suimon.core import labels, refs
from suimon.core.shape import (
    APPROVAL,
    CONDITIONS,
    HTTP,
    MERGE,
    READ,
    SPAWNER,
    SQL,
    START,
    SUCCEEDED,
    TASK,
    WAIT,
)
from suimon.errors import DefinitionError, Mistake
from suimon.graph_check import check
from suimon.graph_fields import (
    CONFIG_DEFAULTS,
    FORMAT,
    PIPELINE_DEFAULTS,
)
from suimon.graph_text import Document, Lines, json_lines, line_of, read_json, yaml_documents
from suimon.graph_triggers import DEFAULTS as TRIGGER_DEFAULTS

__all__ = [
    "APPROVAL",
    "FORMAT",
    "HTTP",
    "MERGE",
    "READ",
    "SPAWNER",
    "SQL",
    "START",
    "TASK",
    "WAIT",
    "Graph",
    "Parsed",
    "canonical",
    "check",
    "graph_hash",
    "normalise",
    "parse",
    "parse_yaml",
    "read_all",
    "setting",
]

Graph = dict[str, Any]

#: Inputs that mean nothing when they are empty.
_EMPTY: Final = {SPAWNER: ("shared",), START: ("input",), HTTP: ("params", "headers")}


def canonical(graph: Mapping[str, Any]) -> bytes:
    """The bytes of a normalised graph: UTF-8, sorted keys, no spaces."""
    return orjson.dumps(graph, option=orjson.OPT_SORT_KEYS)


def graph_hash(graph: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical bytes, in hex."""
    return hashlib.sha256(canonical(graph)).hexdigest()


def setting(graph: Mapping[str, Any], name: str) -> Any:
    """A pipeline-wide setting (`pool`, `concurrency`, ...) with its default."""
    return graph.get(name, PIPELINE_DEFAULTS.get(name))


@dataclass(frozen=True, slots=True)
class Parsed:
    """One definition of a text: its graph, and the line of each of its parts."""

    graph: Graph
    lines: Lines
    #: What it declares beside the graph, whose hash holds none of it.
    destinations: Mapping[str, Any] = field(default_factory=dict)


def parse(text: bytes | str, *, file: str | None = None) -> Graph:
    """Read one JSON definition: checked and normalised, or DefinitionError with all mistakes."""
    found, mistakes = read_all(text, file=file)
    if mistakes:
        raise DefinitionError(mistakes)
    return found[0].graph


def parse_yaml(text: bytes | str, *, file: str | None = None) -> list[Graph]:
    """Read all definitions of a YAML text, one a document, or DefinitionError with all mistakes."""
    found, mistakes = read_all(text, file=file, yaml=True)
    if mistakes:
        raise DefinitionError(mistakes)
    return [parsed.graph for parsed in found]


def read_all(
    text: bytes | str, *, file: str | None = None, yaml: bool = False
) -> tuple[list[Parsed], list[Mistake]]:
    """Every sound definition of a text, and every mistake of the others, with file and line."""
    found: list[Parsed] = []
    mistakes: list[Mistake] = []
    try:
        for document in _documents(text, file, yaml=yaml):
            wrong = check(document.value)
            mistakes += [_in_file(mistake, file, document.lines) for mistake in wrong]
            if not wrong:
                beside = document.value.get("destinations", {})
                found.append(Parsed(normalise(document.value), document.lines, beside))
    except DefinitionError as error:
        mistakes += error.mistakes
    if not found and not mistakes:
        mistakes.append(Mistake(None, None, "there is no definition in the text", file=file))
    return found, mistakes


def _documents(text: bytes | str, file: str | None, *, yaml: bool) -> Iterator[Document]:
    if yaml:
        yield from yaml_documents(text, file)
    else:
        yield Document(read_json(text, file), json_lines(text))


def _in_file(mistake: Mistake, file: str | None, lines: Lines) -> Mistake:
    line = mistake.line or line_of(lines, mistake.vertex, mistake.field)
    return replace(mistake, file=file, line=line)


def normalise(raw: Mapping[str, Any]) -> Graph:
    """The canonical form of a graph that `check` found no mistake in."""
    graph = {
        name: value
        for name, value in raw.items()
        if name != "destinations"
        and (name not in PIPELINE_DEFAULTS or value != PIPELINE_DEFAULTS[name])
    }
    graph["vertices"] = {name: _vertex(vertex) for name, vertex in raw["vertices"].items()}
    if "labels" in graph:
        graph["labels"] = labels.canonical(graph["labels"])
    if "output" in graph:
        graph["output"] = _value(graph["output"])
    if "triggers" in graph:
        graph["triggers"] = [_trigger(trigger) for trigger in graph["triggers"]]
    return graph


def _trigger(raw: Mapping[str, Any]) -> dict[str, Any]:
    defaults = TRIGGER_DEFAULTS.get(raw["type"], {})
    return {
        name: value
        for name, value in raw.items()
        if not (name in defaults and _same(value, defaults[name]))
    }


def _vertex(raw: Mapping[str, Any]) -> dict[str, Any]:
    kind = raw["type"]
    vertex: dict[str, Any] = {"type": kind}
    if raw.get("after"):
        vertex["after"] = sorted(set(raw["after"]))
    for key in CONDITIONS:
        if key in raw:
            vertex[key] = _value(raw[key])
    if raw.get("runIf", SUCCEEDED) != SUCCEEDED:
        vertex["runIf"] = raw["runIf"]
    inputs = _value(raw.get("inputs", {}))
    for name in _EMPTY.get(kind, ()):
        if inputs.get(name) == {}:
            del inputs[name]
    if kind == APPROVAL and inputs.get("required") is True:
        del inputs["required"]
    if inputs:
        vertex["inputs"] = inputs
    defaults = CONFIG_DEFAULTS[kind]
    config = {
        name: _config_value(name, value)
        for name, value in raw.get("config", {}).items()
        if not (name in defaults and _same(value, defaults[name]))
    }
    if config:
        vertex["config"] = config
    return vertex


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def _config_value(name: str, value: Any) -> Any:
    if name == "tolerateChildFailures":
        return sorted({state.upper() for state in value})
    if name == "secrets":
        return sorted(value)
    if name == "expect":
        return sorted(set(value))
    if name == "failureTolerance":
        return {
            key: int(inner) if isinstance(inner, float) and inner.is_integer() else inner
            for key, inner in value.items()
        }
    return value


def _value(value: Any) -> Any:
    """An input's canonical form: references as text where that is possible, quotes where needed."""
    if refs.is_reference(value):
        return {refs.REF: refs.write_path(refs.parse_path(value[refs.REF]))}
    if refs.is_quoted(value):
        return quote(value[refs.VALUE])
    if isinstance(value, dict):
        return {key: _value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner) for inner in value]
    return value


def quote(constant: Any) -> Any:
    """A constant that is no reference whatever it looks like, with as few quotes as possible."""
    if constant is None:
        return {refs.VALUE: None}
    if isinstance(constant, dict):
        if refs.REF in constant or refs.VALUE in constant:
            return {refs.VALUE: constant}
        return {key: quote(inner) for key, inner in constant.items()}
    if isinstance(constant, list):
        return [quote(inner) for inner in constant]
    return constant
