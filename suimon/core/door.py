"""What a start must bring: the fields of `input` that the graph refers to.

Asked at every door, before anything is stored, from the stored graph alone: no code is needed to
say that an input lacks a field which the run would stumble over an hour later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from suimon.core import refs, shape
from suimon.core.shape import Graph
from suimon.errors import InputRefused

_ON_TIME: Final = ("folded", "previous_at", "scheduled_at")

#: type of trigger -> the fields of the input of a run that it starts.
TRIGGER_INPUT: Final[Mapping[str, tuple[str, ...]]] = {
    "CRON": _ON_TIME,
    "EVENT": ("event_id", "occurred_at", "payload", "type"),
    "EVERY": _ON_TIME,
    "FILE": ("event_id", "folder", "mtime", "name", "path", "size"),
    "WEBHOOK": ("body", "delivery_id", "headers", "received_at"),
}


def ignorable(graph: Graph, vertex: str) -> list[str]:
    """Fields that the function of this vertex need not name: it takes the whole input, and those
    are what the pipeline's triggers bring of themselves. A person's typing error is none of them.
    """
    if shape.vertices(graph)[vertex].get("inputs") != {refs.REF: "input"}:
        return []
    kinds = {trigger["type"] for trigger in graph.get("triggers", [])}
    return sorted({field for kind in kinds for field in TRIGGER_INPUT[kind]})


def input_references(graph: Graph) -> list[tuple[str, refs.Reference]]:
    """(vertex, reference) for each reference to the run's input, in a fixed order."""
    found: list[tuple[str, refs.Reference]] = []
    for name in sorted(shape.vertices(graph)):
        of_vertex = shape.references(shape.vertices(graph)[name])
        found += [(name, ref) for _, ref in of_vertex if ref.root == "input"]
    found += [("output", ref) for ref in refs.find(graph.get("output")) if ref.root == "input"]
    return found


def needs(graph: Graph) -> list[list[str]]:
    """The paths of the input that the graph reads, each once, for doors that only SQL knows; an
    empty one is the whole of it.
    """
    paths = {tuple(str(part) for part in ref.path[1:]) for _, ref in input_references(graph)}
    limit = graph.get("concurrency")
    if isinstance(limit, dict):
        paths.add(tuple(str(limit["per"]).split(".")))
    return [list(path) for path in sorted(paths)]


def check_input(graph: Graph, value: Any) -> None:
    """Raise InputRefused, with the path of the field, when a reference would lead nowhere."""
    references = input_references(graph)
    if references and not isinstance(value, dict):
        kind = "null" if value is None else type(value).__name__
        fields = sorted({str(ref.path[1]) for _, ref in references if len(ref.path) > 1})
        msg = f"the input must be an object, not {kind}"
        wanted = f"the pipeline reads {', '.join(fields)}" if fields else None
        raise InputRefused(msg, path="$", hint=wanted)
    for vertex, ref in references:
        try:
            refs.resolve({refs.REF: list(ref.path)}, {"input": value}, vertex=vertex)
        except InputRefused as error:
            field = ".".join(str(part) for part in ref.path[1:])
            msg = f'the input lacks "{field}", which vertex "{vertex}" reads'
            path = "$." + field
            raise InputRefused(msg, path=path, detail=error.message, hint=error.hint) from None
    lane_key(graph, value)


def lane_key(graph: Graph, value: Any) -> str | None:
    """Which of a pipeline's lanes this input belongs to; None when it has one lane, or none.

    `concurrency: {"limit": 3, "per": "customer"}` gives each customer a lane. An input without a
    customer is refused: it may not slip past a limit.
    """
    limit = graph.get("concurrency")
    if not isinstance(limit, dict):
        return None
    per = str(limit["per"])
    try:
        found = refs.resolve({refs.REF: f"input.{per}"}, {"input": value}, vertex="concurrency")
    except InputRefused as error:
        msg = f'the input lacks "{per}", which tells the lanes of this pipeline apart'
        raise InputRefused(msg, path=f"$.{per}", detail=error.message) from None
    if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
        kind = "null" if found is None else type(found).__name__
        msg = f'"{per}" tells the lanes of this pipeline apart; it must be text, not {kind}'
        raise InputRefused(msg, path=f"$.{per}", hint="text or a whole number")
    return str(found)
