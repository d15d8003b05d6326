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
from suimon.errors import RunNotFound
from suimon.run.read import named

SQL = statements(__package__, "logs.sql")

PAGE: Final = 200
LOOK_SECONDS: Final = 0.5
#: Looks after the end: text of subprocesses may be stored a moment later than the run's end.
LAST_LOOKS: Final = 2
_PIECE: Final = ("claim_no", "seq", "stream", "at", "text")


def tries(conn: Connection, run_id: str) -> list[dict[str, Any]]:
    """The claims of a run that left text, oldest first; ``attempt`` is None where it did not end
    a try (released, or parked between two steps).
    """
    names = ("claim_no", "attempt", "how", "worker", "vertex")
    return [named(names, row) for row in conn.execute(SQL.tries, {"id": run_id}).fetchall()]


def pieces(
    conn: Connection,
    run_id: str,
    *,
    follow: bool = False,
    claims: Sequence[int] | None = None,
    stream: str | None = None,
) -> Iterator[dict[str, Any]]:
    """The text in its order; with ``follow`` as it comes, until the run has ended."""
    after, left = (-1, -1), LAST_LOOKS if follow else 0
    while True:  # ends with the run; a page that is full is followed at once by the next
        where = {
            "id": run_id,
            "after_claim": after[0],
            "after_seq": after[1],
            "claims": None if claims is None else list(claims),
            "stream": stream,
            "n": PAGE,
        }
        rows = conn.execute(SQL.look, where).fetchall()
        if not rows:
            msg = f"there is no run {run_id}"
            raise RunNotFound(msg, hint="List them: suimon runs list")
        found = [named(_PIECE, row[1:]) for row in rows if row[1] is not None]
        yield from found
        if found:
            after = (found[-1]["claim_no"], found[-1]["seq"])
        if len(found) == PAGE:
            continue
        if not follow or RunStatus(rows[0][0]) in TERMINAL:
            if left <= 0:
                return
            left -= 1
        time.sleep(LOOK_SECONDS)
