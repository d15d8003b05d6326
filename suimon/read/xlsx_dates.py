"""Which numbers of a workbook are dates, and which day each is.

Excel stores a date as a number of days and only the number's format says that it is one. The same
number without such a format stays a number. Days count from 1900 or, in some workbooks, from 1904;
1900 has a day there that never was (number 60), which is no date here.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from typing import Any, Final

from suimon.read.schema import Bad

NUMBER: Final = ""
DATE: Final = "date"
TIME: Final = "time"
DATETIME: Final = "datetime"
ELAPSED: Final = "elapsed"

# Formats that have a number instead of a text in the file; 27 to 58 are those of East Asia, some of
# which are dates or times depending on the language of the program.
_BUILT_IN: Final[dict[int, str]] = {
    **dict.fromkeys((14, 15, 16, 17), DATE),
    **dict.fromkeys((18, 19, 20, 21, 45, 47), TIME),
    22: DATETIME,
    46: ELAPSED,
    **dict.fromkeys((27, 28, 29, 30, 31, 36, 50, 51, 52, 53, 54, 57, 58), DATE),
    **dict.fromkeys((32, 33), TIME),
    **dict.fromkeys((34, 35, 55, 56), DATETIME),
}
_ELAPSED: Final = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
_LITERAL: Final = re.compile(r'"[^"]*"|\\.|_.|\*.|\[[^\]]*\]', re.DOTALL)
_EXPONENT: Final = re.compile(r"e[+-]")
_DAY_MS: Final = 86_400_000
_START_1900: Final = date(1899, 12, 31)
_START_1904: Final = date(1904, 1, 1)
_MIDNIGHT: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - only its clock is used


def format_kind(number: int, code: str | None) -> str:
    """What a number format shows: "" for plain numbers, else date, time, datetime or elapsed."""
    if code is None:
        return _BUILT_IN.get(number, NUMBER)
    first = _split_section(code)
    if _ELAPSED.search(re.sub(r'"[^"]*"', "", first)):
        return ELAPSED
    bare = _LITERAL.sub("", first).lower()
    if bare.startswith(("general", "g/")) or bare.strip() == "@":
        return NUMBER
    bare = _EXPONENT.sub("", bare)
    clock = bool(re.search(r"am/pm|a/p|上午/下午", bare))
    bare = re.sub(r"am/pm|a/p|上午/下午", "", bare)
    clock = clock or "h" in bare or "s" in bare
    day = bool(re.search(r"[ydegb]|aaa", bare)) or ("m" in bare and not clock)
    if day:
        return DATETIME if clock else DATE
    return TIME if clock else NUMBER


def _split_section(code: str) -> str:
    """The first section of a format: up to the first ; outside quotes."""
    quoted = False
    for index, character in enumerate(code):
        if character == '"':
            quoted = not quoted
        elif character == ";" and not quoted and code[index - 1 : index] != "\\":
            return code[:index]
    return code


def to_moment(number: float, kind: str, *, from_1904: bool) -> Any:
    """The date, time or duration that a number in such a format is; Bad when there is none."""
    shown = str(int(number)) if number == int(number) else repr(number)
    milliseconds = round(number * _DAY_MS)
    if kind == ELAPSED:
        return _elapsed(milliseconds)
    days, within = divmod(milliseconds, _DAY_MS)
    clock = (_MIDNIGHT + timedelta(milliseconds=within)).time()
    if kind == TIME and days == 0 and milliseconds >= 0:
        return clock
    day = _day(days, from_1904=from_1904)
    if day is None:
        return Bad(shown, f"the number {shown} is shown as a date but is the number of no day")
    if kind == DATE and within == 0:
        return day
    return datetime.combine(day, clock)


def _day(days: int, *, from_1904: bool) -> date | None:
    start = _START_1904 if from_1904 else _START_1900
    if not from_1904:
        if days < 1 or days == 60:
            return None
        days -= days > 60
    elif days < 0:
        return None
    try:
        return start + timedelta(days=days)
    except OverflowError:
        return None


def _elapsed(milliseconds: int) -> str:
    """Hours may be more than 24: a text like "26:30:00"."""
    sign = "-" if milliseconds < 0 else ""
    seconds, rest = divmod(abs(milliseconds), 1000)
    text = f"{sign}{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{rest:03d}" if rest else text


def from_iso(text: str) -> date | time | datetime | None:
    """The cell type "d" of strict workbooks: a date, a time or both as text."""
    try:
        if "T" in text and not text.startswith("T"):
            return datetime.fromisoformat(text.removesuffix("Z"))
        if ":" in text:
            return time.fromisoformat(text.removeprefix("T").removesuffix("Z"))
        return date.fromisoformat(text)
    except ValueError:
        return None


__all__ = ["format_kind", "from_iso", "to_moment"]
