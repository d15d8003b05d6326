"""JSONL: one JSON value per line, streamed. Blank lines are no rows.

A value that could not be stored later (NUL, half a surrogate pair) is refused here, with its row,
instead of in the middle of a fan-out; so is an object that names one key twice, of which most
parsers would silently keep the last. A number that would change is given to its declared type as it
is written, and is a bad value where none is declared (`jsonl_numbers`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

from suimon.core import jsonsafe, numbers
from suimon.errors import FileRefused, InvalidJson, PayloadTooLarge
from suimon.read.checks import Numbered
from suimon.read.jsonl_numbers import Spelled, Written, settled
from suimon.read.table import FileEmpty
from suimon.read.text import TextLines


def read_jsonl(
    file: BinaryIO,
    name: str,
    schema: Mapping[str, str],
    *,
    encoding: str = "utf-8",
    skip: int = 0,
) -> Numbered:
    """The values of an open file. Raises FileRefused at the row that cannot be read."""
    lines = TextLines(file, name=name, encoding=encoding)
    as_written = Spelled(schema)
    found_any = False
    for number, line in enumerate(lines, start=1):
        found_any = True
        if number <= skip or not line.strip():
            continue
        try:
            value = _value(line, schema, as_written)
            _refuse_double_keys(line, value)
        except (InvalidJson, PayloadTooLarge) as error:
            row = lines.row + 1
            said = f"{error.message}: {error.detail}" if error.detail else error.message
            msg = f'"{name}", row {row} (line {number}): {said}'
            raise FileRefused(msg, path=name, row=row, hint=error.hint) from None
        lines.row += 1
        yield lines.row, value
    if not found_any:
        msg = f'"{name}" is empty: it has no rows'
        raise FileEmpty(msg, path=name)


def _value(line: str, schema: Mapping[str, str], spelled: Spelled) -> Any:
    raw = jsonsafe.as_bytes(line, what="row")
    if not numbers.may_change(raw):
        value = jsonsafe.parse(raw, what="row", number=None)
        if spelled.put_into(value, line):
            return value
    return settled(jsonsafe.parse(raw, what="row", number=Written), schema)


def _refuse_double_keys(line: str, value: Any) -> None:
    if ":" not in line or (isinstance(value, dict) and line.count(":") == len(value)):
        return  # each key has a colon, and no colon is left for another one
    try:
        json.loads(line, object_pairs_hook=_unique)
    except RecursionError:
        msg = "the row is nested too deeply"
        raise InvalidJson(msg) from None


def _unique(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            msg = f'the row names the key "{key[:60]}" twice in one object'
            raise InvalidJson(msg)
        seen.add(key)
