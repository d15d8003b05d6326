"""JSON that survives the journey into PostgreSQL and back, or a clear refusal.

Python's and PostgreSQL's ideas of JSON differ where it hurts: NaN becomes null, a NUL or half a
surrogate pair is refused by jsonb long after the work was done, a huge integer turns into a float,
and a number with more digits than a float holds turns into another one. Nothing here is repaired
silently: each such value is refused with its path (`$.rows[3].price`), before it leaves the process
that made it.

The fast path is one call of orjson. Only a text that holds `null` or an escaped NUL, that orjson
refuses, or a number of which would change (`numbers`) is walked in Python: to tell None from NaN,
and to find the path.
"""

from __future__ import annotations

import dataclasses
import decimal
import hashlib
import json
import math
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from suimon.core import numbers
from suimon.errors import InvalidJson, PayloadTooLarge

#: The largest input, result or signal, in bytes of JSON.
MAX_BYTES: Final = 16 * 1024 * 1024
#: What orjson itself can nest; also what keeps the walk's recursion bounded.
MAX_DEPTH: Final = 254

_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def dumps(value: Any, *, what: str = "value", limit: int = MAX_BYTES) -> bytes:
    """Canonical JSON (sorted keys, no spaces, UTF-8), or InvalidJson / PayloadTooLarge.

    `what` names the value in the message: "result", "input", "item".
    """
    try:
        text = orjson.dumps(value, default=_encode, option=_OPTIONS)
    except (TypeError, RecursionError) as error:
        raise _refusal(value, what, fallback=str(error)) from None
    if b"null" in text or b"\\u0000" in text:
        problem = _find_problem(value, 0)
        if problem is not None:
            raise _as_error(problem, what)
    if len(text) > limit:
        raise too_large(len(text), what=what, limit=limit)
    return text


def loads(text: bytes | str, *, what: str = "value", limit: int = MAX_BYTES) -> Any:
    """Read JSON that came from outside and check that it can be stored unharmed."""
    raw = as_bytes(text, what=what, limit=limit)
    return parse(raw, what=what, number=numbers.judged if numbers.may_change(raw) else None)


def loads_stored(text: bytes | str, *, what: str = "value") -> Any:
    """Read the text of a jsonb, which may have come from SQL, by the same rules.

    PostgreSQL keeps numbers and depths that no reader of JSON takes.
    """
    raw = as_bytes(text, what=what)
    changes = numbers.may_change(raw, numbers.kept_by_postgres)
    return parse(raw, what=what, number=numbers.from_postgres if changes else None)


def parse(raw: bytes, *, what: str, number: Callable[[str], Any] | None) -> Any:
    """The value of a text that is bounded already; `number` makes each number from its text.

    None is orjson's way, which is for texts whose numbers all keep their digits.
    """
    try:
        value = orjson.loads(raw) if number is None else numbers.read(raw, number)
    except (ValueError, RecursionError) as error:
        msg = f"the {what} is not valid JSON"
        raise InvalidJson(msg, detail=str(error), hint=_syntax_hint(raw)) from None
    if b"\\u0000" in raw or number is not None:
        problem = _find_problem(value, 0)
        if problem is not None:
            raise _as_error(problem, what)
    return value


def as_bytes(text: bytes | str, *, what: str, limit: int = MAX_BYTES) -> bytes:
    """The text in UTF-8, or InvalidJson / PayloadTooLarge."""
    raw = _as_bytes(text, what)
    if len(raw) > limit:
        raise too_large(len(raw), what=what, limit=limit)
    return raw


def escaped(value: Any) -> Any:
    """The same, with escapes in texts that no JSON can carry: a file may have any name."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {escaped(name): escaped(each) for name, each in value.items()}
    return [escaped(each) for each in value] if isinstance(value, list) else value


def content_hash(text: bytes) -> int:
    """A signed 64-bit hash of canonical JSON: the manifest's mark of one item."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True)


def too_large(size: int, *, what: str, limit: int) -> PayloadTooLarge:
    msg = f"the {what} is {size:,} bytes of JSON; the limit is {limit:,}"
    hint = "put the data into a file or a table and pass its name"
    return PayloadTooLarge(msg, size=size, limit=limit, hint=hint)


def path_text(parts: list[str | int]) -> str:
    """`["a", 3, "odd key"]` as `$.a[3]["odd key"]`."""
    text = "$"
    for part in parts:
        if isinstance(part, str) and _PLAIN_KEY.fullmatch(part):
            text += f".{part}"
        else:
            shown = part if isinstance(part, int) else json.dumps(part)
            text += f"[{shown}]"
    return text


# --------------------------------------------------------------------------- what is encodable


def _encode(value: Any) -> Any:
    """What orjson does not know by itself, one level deep."""
    model_dump = getattr(value, "model_dump", None)
    if model_dump is not None and not isinstance(value, type):
        return model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, decimal.Decimal):
        return str(value)  # text keeps every digit; a JSON number would not
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, tuple):
        return list(value)
    if type(value).__module__ == "numpy":
        return value.tolist()
    raise TypeError(_unsupported(value))


def _unsupported(value: Any) -> str:
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    advice = {
        "set": "; use sorted(...) to make it a list",
        "frozenset": "; use sorted(...) to make it a list",
        "bytes": "; decode it, or use base64",
        "generator": "; use list(...)",
        "coroutine": "; await it",
    }.get(name, "")
    return f"a value of type {name} has no JSON form{advice}"


# --------------------------------------------------------------------------- finding the culprit

# What is wrong, and the path to it from the inside out (reversed when it is shown).
_Problem = tuple[str, list[str | int]]


def _find_problem(value: Any, depth: int) -> _Problem | None:
    """The first part of `value` that must be refused; None when all of it is fine."""
    if depth > MAX_DEPTH:
        return f"it is nested deeper than {MAX_DEPTH} levels, or contains itself", []
    if isinstance(value, str):
        return _problem_of_text(value)
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        fits = numbers.SMALLEST <= value <= numbers.LARGEST
        return None if fits else ("the integer does not fit into 64 bits; send it as text", [])
    if isinstance(value, numbers.Changed):
        return f"{value.reason}; send it as text", []
    if type(value) is float:
        fine = math.isfinite(value)
        return None if fine else (f"{value!r} is no JSON number; use null or text", [])
    if isinstance(value, dict | list) or type(value) is tuple:
        return _problem_inside(value, depth)
    return _problem_of_other(value, depth)


def _problem_of_text(text: str) -> _Problem | None:
    if "\x00" in text:
        return "the text holds a NUL character (U+0000), which PostgreSQL cannot store", []
    try:
        text.encode()
    except UnicodeEncodeError as error:
        lone = ord(text[error.start])
        return f"the text holds half a surrogate pair (U+{lone:04X}), which is no character", []
    return None


def _problem_inside(value: Any, depth: int) -> _Problem | None:
    parts: Iterator[tuple[Any, Any]]
    is_object = isinstance(value, dict)
    parts = iter(value.items()) if is_object else enumerate(value)
    for key, inner in parts:
        if is_object:
            if not isinstance(key, str):
                return f"the key {key!r} is {type(key).__name__}, not text", []
            bad_key = _problem_of_text(key)
            if bad_key is not None:
                return f"in the key {key!r}, {bad_key[0]}", []
        problem = _find_problem(inner, depth + 1)
        if problem is not None:
            problem[1].append(key)
            return problem
    return None


def _problem_of_other(value: Any, depth: int) -> _Problem | None:
    try:
        encoded = _encode(value)
    except TypeError:
        try:
            orjson.dumps(value)  # dates, UUIDs and enums are orjson's own
        except TypeError:
            return _unsupported(value), []
        return None
    except Exception as error:  # noqa: BLE001 - a model's own serializer may raise anything
        return f"{type(value).__name__} could not be turned into JSON: {error}", []
    return _find_problem(encoded, depth + 1)


def _refusal(value: Any, what: str, *, fallback: str) -> InvalidJson:
    """The error for a value that orjson would not write."""
    problem = _find_problem(value, 0)
    return _as_error(problem or (fallback, []), what)


def _as_error(problem: _Problem, what: str) -> InvalidJson:
    path = path_text(problem[1][::-1])
    msg = f"the {what} cannot be stored as JSON: at {path}, {problem[0]}"
    return InvalidJson(msg, path=path)


def _as_bytes(text: bytes | str, what: str) -> bytes:
    try:
        return text if isinstance(text, bytes) else text.encode()
    except UnicodeEncodeError as error:
        msg = f"the {what} is not valid UTF-8"
        raise InvalidJson(msg, detail=str(error)) from None


def _syntax_hint(raw: bytes) -> str | None:
    if re.search(rb"\b(NaN|-?Infinity)\b", raw):
        return "JSON has no NaN and no Infinity; use null or text"
    if re.search(rb"\\u[dD][89a-fA-F]", raw):
        return "half a surrogate pair is no character"
    return None
