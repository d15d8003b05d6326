"""Values and what they are declared as: text stays text unless a schema says otherwise.

`convert` gives the value of the declared type or raises `Misfit` with the reason. No value is made
to fit: "1,234" is no integer, "22/05/2000" no date, and a number that a float would change is no
"number" (declare it "decimal"). An empty text is no value (None) for every type but "text".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL: Final = re.compile(
    r"[+-]?([0-9]{1,200}(\.[0-9]{0,200})?|\.[0-9]{1,200})([eE][+-]?[0-9]{1,4})?"
)
_DATE: Final = re.compile(r"([0-9]{4})([-/])([0-9]{2})\2([0-9]{2})")
_CLOCK: Final = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_TIME: Final = re.compile(_CLOCK)
_DATETIME: Final = re.compile(
    rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ]{_CLOCK}(Z|[+-][0-9]{{2}}:?[0-9]{{2}})?"
)
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**64 - 1


class Misfit(Exception):  # noqa: N818 - a finding, not a failure of the program
    """The value is not of the declared type; the text says why."""


class Bad:
    """A cell that holds no value: an Excel error, NaN, a day that does not exist."""

    __slots__ = ("reason", "text")

    def __init__(self, text: str, reason: str) -> None:
        self.text = text
        self.reason = reason


def convert(value: Any, kind: str) -> Any:
    """The value as the declared type, or Misfit. None is None in every type."""
    if value is None or (kind != "text" and value == "" and isinstance(value, str)):
        return None
    return _CONVERTERS[kind](value)


def as_text(value: Any) -> str:
    """A value as the text it is written with in JSON, without the quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value)


def _shown(value: Any) -> str:
    text = as_text(value)
    cut = text if len(text) <= 60 else text[:57] + "..."
    return f'"{cut}"' if isinstance(value, str) else cut


def _misfit(value: Any, wanted: str) -> Misfit:
    kind = "" if isinstance(value, str) else f" ({_kind(value)})"
    return Misfit(f"{_shown(value)}{kind} is no {wanted}")


def _kind(value: Any) -> str:
    for known, name in _KINDS:
        if isinstance(value, known):
            return name
    return type(value).__name__


_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "true or false"),
    (int, "a number"),
    (float, "a number"),
    (Decimal, "a number"),
    (datetime, "a date with time"),
    (date, "a date"),
    (time, "a time"),
    (dict, "an object"),
    (list, "a list"),
)


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        raise _misfit(value, "text")
    return as_text(value)


def _integer(value: Any) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, float | Decimal) and value == int(value):
        number = int(value)
    else:
        raise _misfit(value, "integer")
    if not _SMALLEST <= number <= _LARGEST:
        msg = f'{_shown(value)} does not fit into 64 bits; declare it "text" or "decimal"'
        raise Misfit(msg)
    return number


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise _misfit(value, "number")
    if isinstance(value, float):
        return value
    exact = _decimal(value)
    number = float(exact)
    if not math.isfinite(number) or Decimal(repr(number)) != exact:
        msg = f'{_shown(value)} cannot be kept exactly as a number; declare it "decimal" or "text"'
        raise Misfit(msg)
    return number


def _decimal(value: Any) -> Decimal:
    if isinstance(value, str):
        if not _DECIMAL.fullmatch(value):
            raise _misfit(value, "number")
        try:
            return Decimal(value)
        except InvalidOperation:
            raise _misfit(value, "number") from None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _misfit(value, "number")
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    found = _BOOLEANS.get(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise _misfit(value, "true or false")
    return found


_BOOLEANS: Final = {"true": True, "false": False, "1": True, "0": False}


def _date(value: Any) -> date:
    """A calendar date. A time of day that an Excel date carries stays with it: nothing is cut."""
    if isinstance(value, date):
        return value
    found = _DATE.fullmatch(value) if isinstance(value, str) else None
    try:
        if found:
            return date(int(found[1]), int(found[3]), int(found[4]))
    except ValueError:
        pass
    raise _misfit(value, "date")


def _datetime(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001 - no zone was said
    try:
        if isinstance(value, str) and _DATETIME.fullmatch(value):
            return datetime.fromisoformat(value)
    except ValueError:
        pass
    raise _misfit(value, "date with time")


def _time(value: Any) -> time:
    if isinstance(value, time):
        return value
    try:
        if isinstance(value, str) and _TIME.fullmatch(value):
            return time.fromisoformat(value)
    except ValueError:
        pass
    raise _misfit(value, "time")


_CONVERTERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "text": _text,
    "integer": _integer,
    "number": _number,
    "decimal": _decimal,
    "boolean": _boolean,
    "date": _date,
    "datetime": _datetime,
    "time": _time,
}
