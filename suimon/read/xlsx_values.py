"""One cell as a value: text, whole or other number, true/false, date, time, or a bad value."""

from __future__ import annotations

import re
from typing import Any, Final

from suimon.read.schema import Bad
from suimon.read.xlsx_container import damaged
from suimon.read.xlsx_dates import NUMBER, from_iso, to_moment
from suimon.read.xlsx_sheet import Raw, lacks_value
from suimon.read.xlsx_strings import unescaped
from suimon.read.xlsx_workbook import Workbook

_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_EXACT: Final = 2**53


def value_of(book: Workbook, cell: Raw, *, as_formula: bool) -> Any:
    """The value; None for a blank. A formula nobody has calculated is text only if that was said"""
    if cell.formula is not None and as_formula and lacks_value(book, cell):
        return f"={cell.formula}"  # a formula shared with other cells stands only in the first
    text = cell.value
    if text is None or (text == "" and cell.type not in ("str", "inlineStr")):
        return None
    match cell.type:
        case "s":
            return _shared(book, text)
        case "inlineStr" | "str":
            return unescaped(text)
        case "b":
            return text.strip() in ("1", "true")
        case "e":
            return Bad(text, f"the cell shows the error {text}")
        case "d":
            moment = from_iso(text)
            return Bad(text, f'"{text[:60]}" is no date') if moment is None else moment
        case "":
            return _number(book, cell, text)
        case _:
            raise damaged(book.name, f"a cell has the unknown type {cell.type!r}")


def _shared(book: Workbook, text: str) -> str:
    if book.texts is None or not (text.isascii() and text.isdigit() and len(text) < 10):
        raise damaged(book.name, f"a cell names text number {text[:20]!r}, which is not there")
    return book.texts[int(text)]


def _number(book: Workbook, cell: Raw, text: str) -> Any:
    text = text.strip()
    kind = book.kind_of_style(cell.style)
    if kind == NUMBER and _WHOLE.fullmatch(text):
        return int(text)
    if len(text) > 400 or not _NUMBER.fullmatch(text):
        raise damaged(book.name, f"a cell holds {text[:40]!r} as a number")
    number = float(text)
    if number in (float("inf"), float("-inf")):
        return Bad(text, f"{text} is too large for a number")
    if kind != NUMBER:
        return to_moment(number, kind, from_1904=book.from_1904)
    if abs(number) < _EXACT and number == int(number):
        return int(number)
    return number
