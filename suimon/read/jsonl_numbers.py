"""Numbers of a JSON row as they are written, where what Python makes of them would not do.

declared "text", "decimal", "number"   judged by its text, like a cell of a CSV
declared "integer"                     exactly, however long it is written (`37`, `37.0`)
any other place                        the number that it is; one that would change is a bad
                                       value, and so is the list or object it stands in
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from suimon.core import jsonsafe, numbers
from suimon.read.schema import Bad, Misfit, convert

_BY_TEXT: Final = ("text", "decimal", "number")
_NUMBER: Final = r"-?[0-9][-+.0-9eE]*+"
_SPELLED: Final = ("text", "decimal")


class Written(str):
    """A number of a JSON text, as it is written there."""

    __slots__ = ()


class Spelled:
    """The columns in which 1.10 and 1.1 are not the same."""

    def __init__(self, schema: Mapping[str, str]) -> None:
        self._columns = [
            (column, f'"{column}"', re.compile(rf'"{re.escape(column)}"\s*:\s*({_NUMBER})'))
            for column, kind in schema.items()
            if kind in _SPELLED
        ]

    def put_into(self, row: Any, line: str) -> bool:
        """Numbers of these columns become their texts; False: that takes another reading.

        Where no backslash stands a name is found as it is, and one that is there once is the key.
        """
        if not self._columns or not isinstance(row, dict):
            return True
        for column, quoted, pattern in self._columns:
            value = row.get(column)
            if not isinstance(value, float) and (value != 0 or type(value) is not int):
                continue  # no number, or one that has a single form
            found = pattern.search(line)
            if found is None or "\\" in line or line.count(quoted) != 1:
                return False
            row[column] = found[1]
        return True


def settled(value: Any, schema: Mapping[str, str]) -> Any:
    """A row whose numbers are all `Written`, with numbers, texts and bad values instead."""
    if not isinstance(value, dict):
        return _cell(value, None)
    return {column: _cell(inside, schema.get(column)) for column, inside in value.items()}


def _cell(value: Any, kind: str | None) -> Any:
    if not isinstance(value, Written):
        try:
            return _inside(value, [])
        except Misfit as misfit:
            return Bad(_as_json(value), str(misfit))
    text = str(value)
    if kind in _BY_TEXT:
        return text
    number = numbers.judged(text)
    if not isinstance(number, numbers.Changed):
        return number
    if kind == "integer":
        return _whole(text)
    return Bad(text, f'{number.reason}; declare it "decimal" or "text"')


def _whole(text: str) -> int | str:
    """The integer, or the text that is none: `convert` refuses it."""
    try:
        exact: Decimal = convert(text, "decimal")
    except Misfit:
        return text
    fits = numbers.SMALLEST <= exact <= numbers.LARGEST
    return int(exact) if fits and exact == int(exact) else text


def _inside(value: Any, place: list[str | int]) -> Any:
    """Lists and objects with their numbers; raises Misfit at the first that would change."""
    if isinstance(value, Written):
        number = numbers.judged(str(value))
        if isinstance(number, numbers.Changed):
            msg = f"at {jsonsafe.path_text(place)}, {number.reason}; write it as text"
            raise Misfit(msg)
        return number
    if isinstance(value, dict):
        return {key: _inside(inside, [*place, key]) for key, inside in value.items()}
    if isinstance(value, list):
        return [_inside(inside, [*place, index]) for index, inside in enumerate(value)]
    return value


def _as_json(value: Any) -> str:
    """The cell as JSON, its numbers as they are written."""
    if isinstance(value, Written):
        return str(value)
    if isinstance(value, dict):
        inside = (f"{_as_json(key)}:{_as_json(each)}" for key, each in value.items())
        return f"{{{','.join(inside)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_as_json, value))}]"
    return json.dumps(value, ensure_ascii=False)
