"""The fields of CRON and EVERY triggers, judged when they are written.

A cron line is judged by what walks it later, so that nothing is accepted that the scheduler could
not read, and a date that never comes is refused instead of waited for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from suimon.core import durations, instants, zones
from suimon.graph_fields import Rule, duration, instant, one_of

#: A rhythm is not faster than one look after the other can keep.
FASTEST_MS: Final = 1_000
MAX_JITTER_MS: Final = 12 * 3_600_000

_FIELD: Final = re.compile(r"[0-9A-Za-z*,/#-]+", re.ASCII)
_ALIAS: Final = re.compile(r"@(hourly|daily|midnight|weekly|monthly|yearly|annually)")


def cron(value: Any) -> str | None:
    if isinstance(value, str) and len(value) <= 200:
        fields = value.split()
        if (len(fields) == 5 and all(map(_FIELD.fullmatch, fields))) or _ALIAS.fullmatch(value):
            return instants.check(value)
    return f'must be five fields, like "30 2 * * *", not {value!r}'


def time_zone(value: Any) -> str | None:
    try:
        known = isinstance(value, str) and zones.named(value) is not None
    except ValueError:
        known = False
    return None if known else f'must be a time zone like "Europe/Berlin" or "UTC", not {value!r}'


def every(value: Any) -> str | None:
    problem = duration(value)
    if problem is None and durations.milliseconds(value) < FASTEST_MS:
        return f"must be at least 1s, not {value!r}"
    return problem


def jitter(value: Any) -> str | None:
    problem = duration(value)
    if problem is None and durations.milliseconds(value) > MAX_JITTER_MS:
        return f"must be at most 12h, not {value!r}"
    return problem


def anchor(value: Any) -> str | None:
    problem = instant(value)
    if problem is None and not 1900 <= datetime.fromisoformat(value).year <= 9000:
        return f"must lie between the years 1900 and 9000, not {value!r}"
    return problem


_CATCH_UP: Final = one_of("last", "all", "none")

CRON: Final[Mapping[str, Rule]] = {
    "cron": cron,
    "tz": time_zone,
    "gap": one_of("next", "skip"),
    "fold": one_of("first", "last", "both"),
    "catchUp": _CATCH_UP,
    "jitter": jitter,
}
EVERY: Final[Mapping[str, Rule]] = {
    "every": every,
    "anchor": anchor,
    "catchUp": _CATCH_UP,
    "jitter": jitter,
}


def together(trigger: Mapping[str, Any]) -> tuple[str, str] | None:
    """(field, what is wrong) with what the fields of a rhythm say together."""
    span, rhythm = trigger.get("jitter"), trigger.get("every")
    if trigger.get("type") != "EVERY" or jitter(span) or every(rhythm):
        return None
    if durations.milliseconds(span) > durations.milliseconds(rhythm):
        return "jitter", f"jitter {span} is longer than the rhythm of {rhythm}"
    return None
