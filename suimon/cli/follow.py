"""Waiting for a run in front of a person: what it does now, and the exit code that its end means.

On a terminal one line that moves, with a bar for fan-outs; elsewhere a line every ten seconds. The
same table of exit codes holds for a run that is over already. Ctrl-C leaves the run running, and
says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from suimon.cli import show
from suimon.core import clock
from suimon.errors import EXIT_CANCELLED, EXIT_GAVE_UP, EXIT_INTERRUPTED, EXIT_NEGATIVE

if TYPE_CHECKING:
    from suimon.db.connect import Connection

EXIT_CODES: Final = {
    "succeeded": 0,
    "failed": EXIT_NEGATIVE,
    "timed_out": EXIT_NEGATIVE,
    "cancelled": EXIT_CANCELLED,
}
_LINE_SECONDS: Final = 10.0
_DRAW_SECONDS: Final = 0.1
_BAR: Final = 32


class Progress:
    """Draws what a run does; call ``look`` as often as you like."""

    def __init__(self, conn: Connection, run_id: str) -> None:
        self._conn, self._run_id = conn, run_id
        self._moves = sys.stderr.isatty()
        self._next = clock.monotonic() + (0.0 if self._moves else _LINE_SECONDS)
        self._drawn = 0

    def look(self) -> None:
        """Draw, if it is time to."""
        now = clock.monotonic()
        if now < self._next:
            return
        self._next = now + (_DRAW_SECONDS if self._moves else _LINE_SECONDS)
        self._write(self.line())

    def line(self) -> str:
        """What stands there now, in one line."""
        from suimon.run.read import SQL

        rows = self._conn.execute(SQL.progress, {"id": self._run_id}).fetchall()
        if not rows:
            return ""
        status, reason = rows[0][0], rows[0][1]
        parts = [_of_fanout(row[2:], bar=self._moves) for row in rows if row[2] is not None]
        head = f"{status} ({reason})" if reason and not parts else str(status)
        return " | ".join([head, *parts[:3]])

    def end(self) -> None:
        """Clear the moving line."""
        if self._moves and self._drawn:
            sys.stderr.write("\r" + " " * self._drawn + "\r")
            sys.stderr.flush()
            self._drawn = 0

    def _write(self, text: str) -> None:
        if not self._moves:
            sys.stderr.write(text + "\n")
        else:
            sys.stderr.write("\r" + text.ljust(self._drawn))
            self._drawn = len(text)
        sys.stderr.flush()


def _of_fanout(row: Any, *, bar: bool) -> str:
    vertex, expected, succeeded, failed, timed_out, cancelled, _ = row
    bad = failed + timed_out + cancelled
    ended = succeeded + bad
    total = "?" if expected is None else f"{expected:,}"
    text = f"{vertex} {ended:,}/{total}" + (f", {bad:,} not well" if bad else "")
    if not bar or not expected:
        return text
    filled = min(_BAR, ended * _BAR // expected)
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {ended * 100 // expected:3d} % {text}"


def until_end(
    conn: Connection,
    run_id: str,
    *,
    timeout_s: float | None = None,
    also: Callable[[], None] | None = None,
) -> int:
    """Wait with progress on stderr, calling ``also`` at every look; returns the exit code."""
    from suimon.run import doors

    progress = Progress(conn, run_id)

    def each() -> None:
        progress.look()
        if also is not None:
            also()

    try:
        status = doors.wait(conn, run_id, timeout_s=timeout_s, each=each)
    except KeyboardInterrupt:
        progress.end()
        sys.stderr.write(f"still running: suimon runs show {run_id}\n")
        return EXIT_INTERRUPTED
    progress.end()
    if status is None:
        sys.stderr.write(f"gave up waiting; the run goes on: suimon runs show {run_id}\n")
        return EXIT_GAVE_UP
    return EXIT_CODES[status]


def counts_text(counts: dict[str, Any] | None) -> str:
    """``28,271 of 28,298 succeeded, 27 failed``."""
    if counts is None:
        return ""
    text = f"{counts['succeeded']:,} of {counts['total']:,} succeeded"
    others = ("failed", "timed_out", "cancelled", "running", "unfinished")
    return text + "".join(f", {counts[n]:,} {n.replace('_', ' ')}" for n in others if counts[n])


def result(document: dict[str, Any]) -> None:
    """The end of a run for people."""
    show.lines(f"{document['status']}  {document['id']}  {document['pipeline']}")
    if document["counts"]:
        show.lines(f"children  {counts_text(document['counts'])}")
    if document["error"]:
        kind, message = document["error"].get("type"), document["error"].get("message")
        show.lines(f"error  {kind}: {message}")
        if document["error"].get("hint"):
            show.lines(f"hint  {document['error']['hint']}")
    elif document["status"] == "succeeded":
        show.lines(f"output  {show.value(document['output'])}")
