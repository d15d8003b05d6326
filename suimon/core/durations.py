"""Durations as people write them: `500ms`, `30s`, `5m`, `2h`, `7d`, and ranges `2s..5m`.

One grammar for tasks, merges and triggers: digits and one unit, nothing else. No fractions and no
sums ("1h30m"), so that no text is read differently than it was meant.
"""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PATTERN: Final = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)", re.ASCII)

#: Ten years. A longer wait is a mistake, and it would not fit every clock.
MAX_MS: Final = 3_650 * _UNITS["d"]
GRAMMAR: Final = 'a number and one unit of ms, s, m, h, d, like "30s"'


def milliseconds(text: object) -> int:
    """The duration in milliseconds. Raises ValueError with a message for the author."""
    match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        msg = f"{text!r} is no duration; write {GRAMMAR}"
        raise ValueError(msg)
    value = int(match[1]) * _UNITS[match[2]]
    if value > MAX_MS:
        msg = f"{text!r} is longer than ten years"
        raise ValueError(msg)
    return value


def seconds(text: object) -> float:
    """The duration in seconds."""
    return milliseconds(text) / 1000


def span(text: object) -> tuple[int, int]:
    """`2s..5m` as (2000, 300000); a single duration is a span of one."""
    if not isinstance(text, str):
        msg = f'{text!r} is no range of durations; write it like "2s..5m"'
        raise ValueError(msg)
    first, dots, last = text.partition("..")
    low = milliseconds(first)
    high = milliseconds(last) if dots else low
    if high < low:
        msg = f"{text!r} ends before it begins"
        raise ValueError(msg)
    return low, high


def text_of(value_ms: int) -> str:
    """The shortest text of the grammar for a whole number of milliseconds."""
    for unit in ("d", "h", "m", "s"):
        if value_ms and value_ms % _UNITS[unit] == 0:
            return f"{value_ms // _UNITS[unit]}{unit}"
    return f"{value_ms}ms"
