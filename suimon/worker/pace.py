"""How many runs began and ended in the last minute: what tells slow from stopped.

Counted in the worker's memory, a cell for each second, and said with each heartbeat: the database
could not answer it without an index that every claim would have to write.
"""

from __future__ import annotations

from typing import Final

from suimon.core import clock

SECONDS: Final = 60


class Pace:
    """Written by the main thread, read by the heartbeat's; a count may be a run behind."""

    def __init__(self) -> None:
        self._seconds = [-1] * SECONDS
        self._began = [0] * SECONDS
        self._ended = [0] * SECONDS

    def began(self, runs: int) -> None:
        """So many claimed runs were taken in."""
        self._began[self._cell()] += runs

    def ended(self, runs: int) -> None:
        """So many ends were written down."""
        self._ended[self._cell()] += runs

    def last_minute(self) -> tuple[int, int]:
        """(began, ended)."""
        oldest = int(clock.monotonic()) - SECONDS
        cells = [i for i, second in enumerate(self._seconds) if second > oldest]
        return sum(self._began[i] for i in cells), sum(self._ended[i] for i in cells)

    def _cell(self) -> int:
        second = int(clock.monotonic())
        cell = second % SECONDS
        if self._seconds[cell] != second:
            self._began[cell] = self._ended[cell] = 0
            self._seconds[cell] = second
        return cell
