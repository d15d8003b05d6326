"""Time zones by their names in the IANA database.

Beside them lie files that mean something else: `localtime` and `posixrules` are whatever zone the
machine is set to, `Factory` is none yet, and `right/UTC` counts leap seconds. A schedule or a file
that names one of them would mean another moment on another machine.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

_OF_THE_MACHINE: Final = frozenset({"localtime", "posixrules", "Factory"})


def named(name: str) -> ZoneInfo:
    """The zone; ValueError for what is none, or is not known here."""
    try:
        zone = ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # what it raises for names and for odd paths
        zone = None
    if zone is None or name not in _names():
        msg = f"{name!r} is no time zone"
        raise ValueError(msg)
    return zone


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    """Found by looking through the machine's files, which takes a while."""
    return frozenset(available_timezones()) - _OF_THE_MACHINE
