"""Log text as people read it: by try, a page at a time, or followed until the run has ended.

Text is stored in pieces, in the order in which it came, at most 1 MB of what Python prints and logs
a try and 1 MB of what its subprocesses write. A follower looks at most twice a second: one
statement says how the run stands and what is new.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from suimon.core.states import TERMINAL, RunStatus
from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.errors import InputRefused, RunNotFound
from suimon.run.read import named

SQL = statements(__package__, "logs.sql")

PAGE: Final = 200
LOOK_SECONDS: Final = 0.5
#: Looks after the end: text of subprocesses may be stored a moment later than the run's end.
LAST_LOOKS: Final = 2
FROM_THE_START: Final = (-1, -1)
#: What text is of: the logger, what was printed, what the engine says about it.
STREAMS: Final = ("log", "stdout", "stderr", "note")
_PIECE: Final = ("claim_no", "seq", "stream", "at", "text")


def tries(conn: Connection, run_id: str) -> list[dict[str, Any]]:
    """The claims of a run that left text, oldest first; ``attempt`` is None where it did not end
    a try (released, or parked between two steps).
    """
    names = ("claim_no", "attempt", "how", "worker", "vertex")
    return [named(names, row) for row in conn.execute(SQL.tries, {"id": run_id}).fetchall()]


def claims_of(run_id: str, tries: list[dict[str, Any]], number: int) -> list[int]:
    """The claims of one try. Raises InputRefused when it left no text."""
    claims = [one["claim_no"] for one in tries if one["attempt"] == number]
    if not claims:
        known = sorted({one["attempt"] for one in tries if one["attempt"] is not None})
        msg = f"try {number} of run {run_id} left no log text"
        hint = f"These did: {', '.join(map(str, known))}" if known else None
        raise InputRefused(msg, path="try", hint=hint)
    return claims


def look(
    conn: Connection,
    run_id: str,
    *,
    after: tuple[int, int] = FROM_THE_START,
    claims: Sequence[int] | None = None,
    stream: str | None = None,
    limit: int = PAGE,
) -> tuple[bool, list[dict[str, Any]]]:
    """(Is the run over? Its next pieces after that claim and number.) Raises RunNotFound."""
    where = {
        "id": run_id,
        "after_claim": after[0],
        "after_seq": after[1],
        "claims": None if claims is None else list(claims),
        "stream": stream,
        "n": limit,
    }
    rows = conn.execute(SQL.look, where).fetchall()
    if not rows:
        msg = f"there is no run {run_id}"
        raise RunNotFound(msg, hint="List them: suimon runs list")
    found = [named(_PIECE, row[1:]) for row in rows if row[1] is not None]
    return RunStatus(rows[0][0]) in TERMINAL, found


def pieces(
    conn: Connection,
    run_id: str,
    *,
    follow: bool = False,
    claims: Sequence[int] | None = None,
    stream: str | None = None,
) -> Iterator[dict[str, Any]]:
    """The text in its order; with ``follow`` as it comes, until the run has ended."""
    after, left = FROM_THE_START, LAST_LOOKS if follow else 0
    while True:  # ends with the run; a page that is full is followed at once by the next
        over, found = look(conn, run_id, after=after, claims=claims, stream=stream)
        yield from found
        if found:
            after = (found[-1]["claim_no"], found[-1]["seq"])
        if len(found) == PAGE:
            continue
        if not follow or over:
            if left <= 0:
                return
            left -= 1
        time.sleep(LOOK_SECONDS)
