"""References: how a vertex says "the `total` of `rows`", and how that becomes a value.

In the graph a reference is an object with the one key `$ref`: `{"$ref": "rows.total"}`, or in list
form `{"$ref": ["rows", "odd.key", 0]}` where a key is no plain word. A constant that looks like
one is quoted: `{"$value": {"$ref": "not me"}}`. References may stand inside lists and objects. The
first part is a root: `input`, `run`, or the id of a vertex.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from suimon.core.suggest import one_of
from suimon.errors import InputRefused

REF: Final = "$ref"
VALUE: Final = "$value"
ROOTS: Final = ("input", "run")

Part = str | int


@dataclass(frozen=True, slots=True)
class Reference:
    """One reference and where it stands: `place` is the path inside the value that holds it."""

    place: tuple[Part, ...]
    path: tuple[Part, ...]

    @property
    def root(self) -> str:
        return str(self.path[0])


def parse_path(written: object) -> tuple[Part, ...]:
    """The parts of what stands under `$ref`. Raises ValueError for the author."""
    if isinstance(written, str):
        parts: tuple[Part, ...] = tuple(written.split("."))
    elif isinstance(written, list):
        parts = tuple(written)
    else:
        msg = 'a reference is text like "rows.total" or a list like ["rows", "odd.key", 0]'
        raise ValueError(msg)
    well_formed = bool(parts) and all(
        (isinstance(part, str) and part != "") or (type(part) is int and part >= 0)
        for part in parts
    )
    if not well_formed or not isinstance(parts[0], str):
        msg = f"the reference {written!r} has an empty or impossible part"
        raise ValueError(msg)
    return parts


def write_path(parts: Sequence[Part]) -> str | list[Part]:
    """The canonical form: text when every part is a plain word, else the list form."""
    plain = all(isinstance(part, str) and part and "." not in part for part in parts)
    return ".".join(str(part) for part in parts) if plain else list(parts)


def is_reference(value: object) -> bool:
    return isinstance(value, dict) and len(value) == 1 and REF in value


def is_quoted(value: object) -> bool:
    return isinstance(value, dict) and len(value) == 1 and VALUE in value


def find(value: Any, place: tuple[Part, ...] = ()) -> Iterator[Reference]:
    """Every reference inside a value, in a fixed order. Malformed ones raise ValueError."""
    if is_reference(value):
        yield Reference(place, parse_path(value[REF]))
    elif isinstance(value, dict) and not is_quoted(value):
        for key in sorted(value):
            yield from find(value[key], (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from find(inner, (*place, index))


def resolve(value: Any, sources: Mapping[str, Any], *, vertex: str, field: str = "inputs") -> Any:
    """`value` with every reference replaced; raises InputRefused naming what exists instead."""
    if isinstance(value, dict):
        if is_quoted(value):
            return value[VALUE]
        if is_reference(value):
            return _follow(parse_path(value[REF]), sources, vertex, field)
        return {
            key: resolve(inner, sources, vertex=vertex, field=f"{field}.{key}")
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [
            resolve(inner, sources, vertex=vertex, field=f"{field}[{index}]")
            for index, inner in enumerate(value)
        ]
    return value


def _follow(path: tuple[Part, ...], sources: Mapping[str, Any], vertex: str, field: str) -> Any:
    current: Any = sources
    for depth, part in enumerate(path):
        if isinstance(current, Mapping) and str(part) in current:
            current = current[str(part)]
        elif isinstance(current, list) and _index(part) in range(len(current)):
            current = current[int(part)]
        else:
            raise _missing(path, depth, current, vertex, field)
    return current


def _index(part: Part) -> int | None:
    if isinstance(part, int):
        return part
    return int(part) if part.isascii() and part.isdigit() and len(part) < 10 else None


def _missing(
    path: tuple[Part, ...], depth: int, current: Any, vertex: str, field: str
) -> InputRefused:
    """What was asked, how far the path leads, and what stands there."""
    asked = ".".join(str(part) for part in path)
    reached = ".".join(str(part) for part in path[:depth]) or "the run"
    if isinstance(current, Mapping):
        found = f'"{reached}" has no "{path[depth]}"'
        hint = one_of(str(path[depth]), [str(key) for key in current])
    elif isinstance(current, list):
        found = f'"{reached}" is a list of {len(current)}; it has no element {path[depth]!r}'
        hint = "count from 0"
    else:
        kind = "null" if current is None else type(current).__name__
        found = f'"{reached}" is {kind}, so it has no "{path[depth]}"'
        hint = None
    msg = f'vertex "{vertex}", {field}: the reference "{asked}" leads nowhere: {found}'
    return InputRefused(msg, path=f"$.{asked}", hint=hint)
