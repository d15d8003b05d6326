"""Sizes as people write and read them: `20MB`, `10 GB`, `512 KiB`; decimal and binary units."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_FACTORS: Final = {
    "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_PATTERN: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,3}))? ?([a-zA-Z]*)", re.ASCII)


def parse(text: str) -> int:
    """Bytes. Raises ValueError with a message for whoever wrote it.

    >>> parse("20MB"), parse("1.5 GiB")
    (20000000, 1610612736)
    """
    match = _PATTERN.fullmatch(text.strip())
    factor = _FACTORS.get(match[3].lower()) if match is not None else None
    if text.strip() == "0":
        return 0
    if match is None or factor is None:
        msg = f"{text!r} is no size; write a number and a unit, like 20MB, 10GB or 512MiB"
        raise ValueError(msg)
    digits = match[2] or ""
    scale: int = 10 ** len(digits)
    return int(match[1] + digits) * factor // scale


def text_of(count: float) -> str:
    """At most one decimal, in decimal units.

    >>> text_of(10_000_000_000), text_of(1_434_000)
    ('10 GB', '1.4 MB')
    """
    for unit in _UNITS:
        if round(count, 1) < 1000 or unit == _UNITS[-1]:
            return (
                f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}".replace(".0 ", " ")
            )
        count /= 1000
    raise AssertionError
