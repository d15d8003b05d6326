"""What a thread says of a database that is away: once, then now and then, and once that it is back.

A thread that tries twice a second would bury in its log what else happens.
"""

from __future__ import annotations

import logging
from typing import Final

from suimon.core import clock

SAY_SECONDS: Final = 10.0


class Away:
    """Of one thread; ``name`` is how its lines begin."""

    def __init__(self, name: str, log: logging.Logger) -> None:
        self._name, self._log = name, log
        self._since: float | None = None
        self._said = 0.0

    def lost(self, error: Exception) -> None:
        """A try has failed."""
        now = clock.boottime()
        if self._since is not None and now - self._said < SAY_SECONDS:
            return
        text = str(error).partition("\n")[0] or type(error).__name__
        lasts = "" if self._since is None else f" (for {now - self._since:.0f} s)"
        self._log.warning("%s: %s%s; trying again", self._name, text, lasts)
        self._since, self._said = now if self._since is None else self._since, now

    def back(self) -> None:
        """A connection stands; said only after one that was missed."""
        if self._since is not None:
            lasted = clock.boottime() - self._since
            self._log.info("%s: the database is back after %.0f s", self._name, lasted)
            self._since = None
