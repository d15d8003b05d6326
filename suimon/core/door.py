"""What a start must bring: the fields of `input` that the graph refers to.

Asked at every door, before anything is stored, from the stored graph alone: no code is needed to
say that an input lacks a field which the run would stumble over an hour later.
"""

from __future__ import annotations

from typing import Any

from suimon.core import refs, shape
from suimon.core.shape import Graph
from suimon.errors import InputRefused


def input_references(graph: Graph) -> list[tuple[str, refs.Reference]]:
    """(vertex, reference) for each reference to the run's input, in a fixed order."""
    found: list[tuple[str, refs.Reference]] = []
    for name in sorted(shape.vertices(graph)):
        inputs = shape.vertices(graph)[name].get("inputs") or {}
        found += [(name, ref) for ref in refs.find(inputs) if ref.root == "input"]
    found += [("output", ref) for ref in refs.find(graph.get("output")) if ref.root == "input"]
    return found


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
