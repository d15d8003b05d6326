"""Numbers of a JSON text that would not survive as what Python makes of them.

A number is kept when the decimal number that is written equals the one that `repr` of its float
prints (`0.1`, `1.10`, `1e5`), or when it is a whole number of 64 bits. All others would change
without a word: 12345678901234567.89 into 12345678901234568, 1e-400 into nothing.

Fifteen significant digits always survive, so that almost every text is let through by one search
for a longer number or a large exponent. What that finds may lie inside a text (an id, a hash); only
then the texts are taken out and the numbers judged one by one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any, Final

import orjson

SMALLEST: Final = -(2**63)
LARGEST: Final = 2**64 - 1
#: No float is printed with more; what is longer keeps its value only by zeros.
_FLOAT_DIGITS: Final = 17
_INTEGER_CHARACTERS: Final = 20
_SHOWN_CHARACTERS: Final = 60
#: Numbers that are looked at together.
_BATCH: Final = 1_000

#: What follows a number tells it from most ids and hashes.
_SUSPECT: Final = re.compile(
    rb"[0-9](?:[0-9.]{15,35}+(?![^0-9.\s,\]}eE])|[eE][+-]?[0-9]{3}(?![^0-9\s,\]}]))"
)
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_LONG: Final = re.compile(rb"-?[0-9](?:[0-9.]{15}|[0-9.]*+[eE][+-]?[0-9]{3})[-+.0-9eE]*+")


class Changed:
    """Stands where a number stood that would change."""

    __slots__ = ("reason", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        if is_whole(text):
            self.reason = "the integer does not fit into 64 bits"
        else:
            cut = text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
            self.reason = f"{cut} cannot be kept exactly as a number"


def may_change(raw: bytes, keep: Callable[[str], bool] | None = None) -> bool:
    """Does a number of this JSON text change? (Of no JSON the answer means nothing.)"""
    keep = keep or kept
    if _SUSPECT.search(raw) is None:
        return False
    without_texts = _TEXT.sub(b'""', raw)
    suspects = (found[0] for found in _LONG.finditer(without_texts))
    while batch := list(islice(suspects, _BATCH)):
        if not _as_printed(batch) and not all(keep(each.decode()) for each in batch):
            return True
    return False


def _as_printed(batch: list[bytes]) -> bool:
    """Are all of them written as a program prints its floats? (What most long numbers are.)"""
    text = (b"[" + b",".join(batch) + b"]").replace(b"E", b"e").replace(b"e+", b"e")
    try:
        return orjson.dumps(orjson.loads(text)) == text
    except orjson.JSONDecodeError:
        return False


def read(raw: bytes, number: Callable[[str], Any]) -> Any:
    """The JSON value with every number made by `number` from its text. Raises ValueError."""
    return json.loads(
        raw.decode(), parse_int=number, parse_float=number, parse_constant=_refuse_constant
    )


def judged(text: str) -> int | float | Changed:
    """The number, or what says that it would change."""
    if not kept(text):
        return Changed(text)
    return int(text) if is_whole(text) else float(text)


def kept(text: str) -> bool:
    """Is this JSON number the same as a Python value?"""
    if is_whole(text):
        return len(text) <= _INTEGER_CHARACTERS and SMALLEST <= int(text) <= LARGEST
    return float_kept(text)


def kept_by_postgres(text: str) -> bool:
    """Is this number of a jsonb the same? PostgreSQL writes the float 1e22 out as an integer."""
    return kept(text) or float_kept(text)


def from_postgres(text: str) -> int | float | Changed:
    """`judged` for the text of a jsonb."""
    return float(text) if not kept(text) and float_kept(text) else judged(text)


def float_kept(text: str) -> bool:
    """Does the float of this number print the same number?"""
    number = float(text)
    printed = repr(number)
    if printed == text:
        return True
    mantissa = text.lower().partition("e")[0]
    if len(mantissa.replace(".", "").lstrip("+-").strip("0")) > _FLOAT_DIGITS:
        return False
    try:
        return math.isfinite(number) and Decimal(printed) == Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds
        return False


def is_whole(text: str) -> bool:
    """Is it written as an integer?"""
    return "." not in text and "e" not in text and "E" not in text


def _refuse_constant(name: str) -> Any:
    msg = f"{name} is no JSON number"
    raise ValueError(msg)
