"""Definitions as text: JSON and YAML become plain values, bounded, with the line of every key.

YAML is read by the 1.2 core schema, where `on` and `no` are words, `12:30` is text and `010` is
ten. The library gives the events of the text (PyYAML, because its C parser is fast and ships in
every wheel); what they mean is decided here, so that there is no tag, no object to construct and no
surprise of YAML 1.1. An alias stands for a copy and counts as one: ten lines that unfold into
thousands of millions of values are refused after the first hundred thousand.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from suimon.core import numbers
from suimon.errors import DefinitionError, Mistake
from suimon.graph_fields import MAX_DEPTH, MAX_TEXT_BYTES

#: Values in one file, counting those that aliases repeat.
MAX_VALUES: Final = 100_000
MAX_DOCUMENTS: Final = 1_000

Path = tuple[str | int, ...]
Lines = Mapping[Path, int]

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE"})
_FALSE: Final = frozenset({"false", "False", "FALSE"})
_INT: Final = re.compile(r"[-+]?[0-9]+", re.ASCII)
_BASED: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NO_NUMBER: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MAX_DIGITS: Final = 400


@dataclass(frozen=True, slots=True)
class Document:
    """One definition as it was written, and where each part of it stands."""

    value: Any
    lines: Lines = field(default_factory=dict)


def read_json(text: bytes | str, file: str | None) -> Any:
    """JSON text to Python, bounded in size, with duplicate keys refused."""
    try:
        return json.loads(
            _decoded(text, file),
            object_pairs_hook=_object,
            parse_float=_float,
            parse_constant=_refuse_constant,
        )
    except RecursionError:
        msg = "the definition is nested far too deeply"
        raise _unreadable(msg, file) from None
    except json.JSONDecodeError as error:
        message = f"the definition is not valid JSON: {error.msg}, column {error.colno}"
        raise _unreadable(message, file, line=error.lineno) from None
    except ValueError as error:
        raise _unreadable(str(error), file) from None


def json_lines(text: bytes | str) -> Lines:
    """Where the parts of a JSON text stand: it is YAML too. Empty when that cannot be told."""
    try:
        return next((one.lines for one in yaml_documents(text, None)), {})
    except DefinitionError:
        return {}


def yaml_documents(text: bytes | str, file: str | None) -> Iterator[Document]:
    """Each document of a YAML text; an empty one is left out. Raises DefinitionError."""
    import yaml  # not loaded by slots and workers

    parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    reader = _Documents(yaml.parse(_decoded(text, file), Loader=parser))
    try:
        yield from reader
    except _RefusedError as error:
        mistake = Mistake(error.vertex, None, error.message, error.hint, None, file, error.line)
        raise DefinitionError([mistake]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", column {mark.column + 1}" if mark else ""
        message = f"the definition is not valid YAML: {error.problem}{where}"
        raise _unreadable(message, file, line=mark.line + 1 if mark else None) from None
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())[:200]
        msg = f"the definition is not valid YAML: {said}"
        raise _unreadable(msg, file) from None


def line_of(lines: Lines, vertex: str | None, place: str | None) -> int | None:
    """The line of a field of a vertex, or of the nearest thing around it."""
    parts: list[str | int] = [] if vertex is None else ["vertices", vertex]
    if place and place.startswith("$"):
        parts, place = [], place[1:]
    for word in re.findall(r"[^.\[\]]+", place or ""):
        parts.append(int(word) if word.isascii() and word.isdigit() and len(word) < 10 else word)
    for end in range(len(parts), -1, -1):
        line = lines.get(tuple(parts[:end]))
        if line is not None:
            return line
    return None


# --------------------------------------------------------------------------- JSON


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        msg = f'the key "{twice}" stands twice in one object'
        raise ValueError(msg)
    return result


def _float(text: str) -> float:
    number = float(text)
    if math.isfinite(number) and not numbers.float_kept(text):
        msg = f"{numbers.Changed(text).reason}; put it in quotes, as text"
        raise ValueError(msg)
    return number


def _refuse_constant(name: str) -> Any:
    msg = f"{name} is no JSON number"
    raise ValueError(msg)


def _decoded(text: bytes | str, file: str | None) -> str:
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_TEXT_BYTES:
        message = f"the definition is {len(raw):,} bytes; the limit is {MAX_TEXT_BYTES:,}"
        raise _unreadable(message, file, hint="a definition holds steps, not data")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"the definition is not valid UTF-8 at byte {error.start}"
        raise _unreadable(message, file) from None


def _unreadable(
    message: str, file: str | None, *, line: int | None = None, hint: str | None = None
) -> DefinitionError:
    return DefinitionError([Mistake(None, None, message, hint, file=file, line=line)])


# --------------------------------------------------------------------------- YAML


class _RefusedError(Exception):
    """Something that YAML allows and a definition does not."""

    def __init__(self, message: str, path: Path, line: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.line, self.hint = message, line, hint
        in_vertex = len(path) > 1 and path[0] == "vertices"
        self.vertex = str(path[1]) if in_vertex else None


class _Documents:
    """Composes values from events. Depth, values and documents are bounded while it goes."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._left = MAX_VALUES
        self._lines: dict[Path, int] = {}
        self._anchors: dict[str, tuple[Any, int]] = {}

    def __iter__(self) -> Iterator[Document]:
        number = 0
        for event in self._events:
            if type(event).__name__ != "DocumentStartEvent":
                continue
            number += 1
            if number > MAX_DOCUMENTS:
                message = f"more than {MAX_DOCUMENTS:,} documents in one file"
                raise _RefusedError(message, (), event.start_mark.line + 1)
            if event.version not in (None, (1, 2)):
                message = "the text says that it is another YAML than 1.2"
                hint = "leave the %YAML line out; definitions are read as YAML 1.2"
                raise _RefusedError(message, (), event.start_mark.line + 1, hint)
            self._lines, self._anchors = {}, {}
            value = self._node(next(self._events), ())
            if value is not None:
                yield Document(value, self._lines)

    def _node(self, event: Any, path: Path) -> Any:
        line = event.start_mark.line + 1
        self._lines.setdefault(path, line)
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._alias(event.anchor, path, line)
        if event.tag is not None:
            hint = "definitions hold plain values only; leave the tag out"
            msg = f"the tag {event.tag} is not allowed"
            raise _RefusedError(msg, path, line, hint)
        before = self._left
        self._take(1, path, line)
        if kind == "ScalarEvent":
            value = _plain(event.value, path, line) if event.implicit[0] else event.value
        elif len(path) >= MAX_DEPTH:
            msg = f"nested deeper than {MAX_DEPTH} levels"
            raise _RefusedError(msg, path, line)
        elif kind == "SequenceStartEvent":
            value = self._sequence(path)
        else:
            value = self._mapping(path)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, before - self._left
        return value

    def _sequence(self, path: Path) -> list[Any]:
        values: list[Any] = []
        while type(event := next(self._events)).__name__ != "SequenceEndEvent":
            values.append(self._node(event, (*path, len(values))))
        return values

    def _mapping(self, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while type(event := next(self._events)).__name__ != "MappingEndEvent":
            line = event.start_mark.line + 1
            key = self._key(event, path, line)
            if key in values:
                msg = f'the key "{key}" stands twice'
                raise _RefusedError(msg, (*path, key), line)
            self._lines[*path, key] = line
            values[key] = self._node(next(self._events), (*path, key))
        return values

    def _key(self, event: Any, path: Path, line: int) -> str:
        is_scalar = type(event).__name__ == "ScalarEvent"
        key = self._node(event, (*path, "?")) if is_scalar else None
        self._lines.pop((*path, "?"), None)
        if not isinstance(key, str):
            found = f"{event.value!r} is read as {type(key).__name__}" if is_scalar else "not text"
            msg = f"a key must be text: {found}"
            raise _RefusedError(msg, path, line, "put it in quotes")
        return key

    def _alias(self, name: str, path: Path, line: int) -> Any:
        if name not in self._anchors:
            message = f"the alias *{name} names nothing that is complete before it"
            raise _RefusedError(message, path, line)
        value, size = self._anchors[name]
        self._take(size, path, line)
        return value

    def _take(self, number: int, path: Path, line: int) -> None:
        self._left -= number
        if self._left < 0:
            message = f"the text unfolds into more than {MAX_VALUES:,} values"
            hint = "a definition holds steps, not data; aliases count as what they repeat"
            raise _RefusedError(message, path, line, hint)


def _plain(text: str, path: Path, line: int) -> Any:
    """A scalar without quotes, by the core schema of YAML 1.2."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _NO_NUMBER.fullmatch(text):
        msg = f"{text} is no JSON number"
        raise _RefusedError(msg, path, line, "put it in quotes")
    if len(text) > _MAX_DIGITS and (_FLOAT.fullmatch(text) or _BASED.fullmatch(text)):
        message = f"a number of {len(text):,} characters"
        raise _RefusedError(message, path, line, "put it in quotes, as text")
    if _INT.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text[2:], 8 if text[1] == "o" else 16)
    if _FLOAT.fullmatch(text):
        value = float(text)
        if math.isinf(value):
            msg = f"{text} is too large for a number"
            raise _RefusedError(msg, path, line)
        if not numbers.float_kept(text):
            msg = numbers.Changed(text).reason
            raise _RefusedError(msg, path, line, "put it in quotes, as text")
        return value
    return text
