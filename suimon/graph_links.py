"""What the vertices of one graph say about each other: references, order, merges, cycles.

Called with vertices that are well-formed each by itself. Every rule here is one that would
otherwise show itself as a run that fails, or waits, for a reason nobody sees in the definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from suimon.core import refs, shape
from suimon.core.shape import MERGE, SPAWNER
from suimon.core.suggest import one_of

Graph = Mapping[str, Any]

_RUN_FIELDS = ("created_at", "id", "pipeline")
_MERGE_FIELDS = ("counts", "first_failures")
_COUNTS = ("cancelled", "failed", "succeeded", "timed_out", "total")
_STREAMS = ("failed", "succeeded")
_READ_FIELDS = ("format", "options", "path")
_NEVER_BOOL = (shape.APPROVAL, shape.MERGE, shape.READ)
_APPROVAL_FIELDS = ("approved", "at", "by", "comment", "decision")


class Notes(Protocol):
    def add(
        self, vertex: str | None, field: str | None, message: str, hint: str | None = None
    ) -> None: ...


def check_links(graph: Graph, notes: Notes) -> None:
    """References and order first; merges and cycles only when every name is known."""
    known = _check_names(graph, notes)
    _check_merges(graph, notes)
    if known:
        for chain in shape.cycles(graph):
            shown = " -> ".join(chain)
            message = f"the vertices need each other: {shown}"
            notes.add(chain[0], None, message, "a graph has no cycles; cut one of these links")


def _check_names(graph: Graph, notes: Notes) -> bool:
    """Do all references and all of `after` name something that exists and has a value?"""
    known = True
    for name, vertex in shape.vertices(graph).items():
        for place, ref in shape.references(vertex):
            field = place + "".join(f".{part}" for part in ref.place)
            known &= _check_reference(graph, name, field, ref, notes)
        for other in vertex.get("after") or []:
            known &= _check_after(graph, name, other, notes)
        _check_error_branch(name, vertex, notes)
    for ref in refs.find(graph.get("output")):
        field = "output" + "".join(f".{part}" for part in ref.place)
        known &= _check_reference(graph, None, field, ref, notes)
    return known


def _check_error_branch(name: str, vertex: Mapping[str, Any], notes: Notes) -> None:
    """A branch for failures that needs the value of what failed would never run."""
    after = set(vertex.get("after") or [])
    roots = {ref.root for _, ref in shape.references(vertex)}
    if vertex.get("runIf") == shape.FAILED and after and after <= roots:
        listed = ", ".join(sorted(after))
        message = f'it runs when "{listed}" failed, and then "{listed}" has no value'
        notes.add(name, "inputs", message, "give it what was known before, or the input")


def _check_reference(
    graph: Graph, vertex: str | None, field: str, ref: refs.Reference, notes: Notes
) -> bool:
    root, rest = ref.root, ref.path[1:]
    if root == "input":
        return True
    if root == "run":
        if rest and rest[0] not in _RUN_FIELDS:
            notes.add(vertex, field, f'"run" has no "{rest[0]}"', one_of(str(rest[0]), _RUN_FIELDS))
        return True
    if root not in shape.vertices(graph):
        names = [*shape.vertices(graph), *refs.ROOTS]
        notes.add(vertex, field, f'there is no vertex "{root}"', one_of(root, names))
        return False
    kind = shape.kind(graph, root)
    if kind == shape.SPAWNER:
        _check_spawner_reference(graph, vertex, field, ref, notes)
    elif kind == shape.MERGE:
        is_items = field == "inputs.items" and vertex is not None
        _check_merge_path(root, rest, vertex, field, notes, is_items=is_items)
    elif kind == shape.READ and rest and rest[0] not in _READ_FIELDS:
        hint = "refer to the READ as a whole to get its rows"
        notes.add(vertex, field, f'the READ "{root}" has no "{rest[0]}"', hint)
    else:
        _check_fields(graph, vertex, field, ref, notes)
    if field in shape.CONDITIONS and not rest and kind in _NEVER_BOOL:
        hint = f'refer to "{root}.approved"' if kind == shape.APPROVAL else "let a task decide"
        message = f'the result of the {kind} "{root}" is neither true nor false'
        notes.add(vertex, field, message, hint)
    return True


def _check_fields(
    graph: Graph, vertex: str | None, field: str, ref: refs.Reference, notes: Notes
) -> None:
    """Results whose fields are known before there is one."""
    kind = shape.kind(graph, ref.root)
    config = shape.vertices(graph)[ref.root].get("config") or {}
    known: tuple[str, ...] | None = None
    if kind == shape.APPROVAL:
        known = _APPROVAL_FIELDS
    elif kind == shape.START and not config.get("wait", True):
        known = ("run_id",)
    elif kind == shape.WAIT and "signal" not in config:
        known = ()
    if known is not None and len(ref.path) > 1 and ref.path[1] not in known:
        hint = one_of(str(ref.path[1]), known) if known else 'use "after" to come behind it'
        notes.add(vertex, field, f'the {kind} "{ref.root}" has no "{ref.path[1]}"', hint)


def _check_spawner_reference(
    graph: Graph, vertex: str | None, field: str, ref: refs.Reference, notes: Notes
) -> None:
    """A spawner's result is its merge's. Only `output` may mean the one nobody wrote."""
    merge = shape.merge_step(graph, ref.root)
    if merge in shape.vertices(graph):
        hint = f'refer to its merge, "{merge}"'
    elif vertex is None:
        return _check_merge_path(ref.root, ref.path[1:], vertex, field, notes, is_items=False)
    else:
        hint = f'add a MERGE with "after": ["{ref.root}"] and refer to that'
    return notes.add(vertex, field, f'the SPAWNER "{ref.root}" has no value of its own', hint)


def _check_merge_path(
    root: str,
    rest: tuple[refs.Part, ...],
    vertex: str | None,
    field: str,
    notes: Notes,
    *,
    is_items: bool,
) -> None:
    if not rest:
        if is_items:
            hint: str | None = "make the list in a task and refer to its result"
            notes.add(vertex, field, f'the result of the MERGE "{root}" is not a list', hint)
        return
    if rest[0] in _STREAMS:
        hint = f'refer to "{root}" as a whole; the task then reads `.{rest[0]}`'
        message = f'"{root}.{rest[0]}" is a stream of results, not a value'
        notes.add(vertex, field, message, hint)
    elif rest[0] not in _MERGE_FIELDS:
        hint = one_of(str(rest[0]), _MERGE_FIELDS)
        notes.add(vertex, field, f'the MERGE "{root}" has no "{rest[0]}"', hint)
    elif rest[0] == "counts" and len(rest) > 1 and rest[1] not in _COUNTS:
        hint = one_of(str(rest[1]), _COUNTS)
        notes.add(vertex, field, f'"{root}.counts" has no "{rest[1]}"', hint)


def _check_after(graph: Graph, name: str, other: str, notes: Notes) -> bool:
    if other not in shape.vertices(graph):
        hint = one_of(other, shape.vertices(graph))
        notes.add(name, "after", f'there is no vertex "{other}"', hint)
        return False
    is_merge = shape.kind(graph, name) == MERGE
    is_spawner = shape.kind(graph, other) == SPAWNER
    if is_merge and not is_spawner:
        message = f'a MERGE comes after a SPAWNER; "{other}" is a {shape.kind(graph, other)}'
        notes.add(name, "after", message, one_of(other, shape.of_kind(graph, SPAWNER)))
    if is_spawner and not is_merge:
        merge = shape.merge_step(graph, other)
        hint = (
            f'write "after": ["{merge}"]'
            if merge in shape.vertices(graph)
            else f'add a MERGE of "{other}" and come after that'
        )
        message = f'"after" a SPAWNER does not wait for its children ("{other}")'
        notes.add(name, "after", message, hint)
    return True


def _check_merges(graph: Graph, notes: Notes) -> None:
    """Each MERGE has exactly one spawner, and each spawner at most one MERGE."""
    merged = shape.merges(graph)
    spawners = shape.of_kind(graph, SPAWNER)
    owner: dict[str, str] = {}
    for merge in shape.of_kind(graph, MERGE):
        after = shape.vertices(graph)[merge].get("after") or []
        if len(set(after)) > 1:
            notes.add(merge, "after", "a MERGE merges one SPAWNER", "write one MERGE for each")
        elif merge not in merged:
            left = [name for name in spawners if name not in merged.values()]
            listed = ", ".join(left) or "none is left"
            message = "it is not clear which SPAWNER this MERGE merges"
            notes.add(merge, "after", message, f'name it in "after" ({listed})')
        elif merged[merge] in owner:
            message = f'"{merged[merge]}" is merged by "{owner[merged[merge]]}" already'
            notes.add(merge, "after", message, "one SPAWNER has one MERGE")
        else:
            owner[merged[merge]] = merge
