"""What waits, by reason: how many runs for each, and which they are.

The counts are ``run/health.py``'s, so that a list and ``suimon status`` say the same; each has a
bound. A list holds children too: who waits for a destination is seldom a run of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from suimon.core import reasons
from suimon.core.suggest import one_of
from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.errors import InputRefused
from suimon.run import health, pages

SQL = statements(__package__, "by_reason.sql")

#: Rows of each source that are walked (see the statement).
WALKED: Final = 20_000


def groups(conn: Connection) -> list[dict[str, Any]]:
    """``{reason, runs, more, until}`` for everything that waits, the most frequent first."""
    return health.by_reason(conn)


def checked(reason: str) -> str:
    """A reason of the closed list, with its name or without. Raises InputRefused."""
    word = reason.partition(":")[0]
    if word not in reasons.REASONS:
        msg = f'there is no reason "{word}"'
        raise InputRefused(msg, path="reason", hint=one_of(word, reasons.REASONS))
    return reason


def runs(
    conn: Connection,
    reason: str,
    *,
    pipeline: str | None = None,
    before: str | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Runs that wait for it, newest first: ``limit:crm``, or all of a word (``limit``).

    ``before`` is the last id of the page before. Raises InputRefused.
    """
    wanted = [checked(reason)]
    if ":" not in reason:
        known = [one["reason"] for one in groups(conn)]
        wanted += [one for one in known if one.partition(":")[0] == reason]
    where = {
        "reasons": wanted,
        "before": before or pages.LAST_ID,
        "lanes": any(one.partition(":")[0] in ("lane", "lane_held") for one in wanted),
        "pools": _named(wanted, "no_slot:", "no_worker:", "paused:pool:"),
        "pipelines": _named(wanted, "paused:pipeline:"),
        "pipeline": pipeline,
        "n": max(1, min(limit, pages.PAGE)),
    }
    rows = conn.execute(SQL.runs, where).fetchall()
    return [pages.listed_run(row) for row in rows]


def _named(wanted: Sequence[str], *before: str) -> list[str]:
    found = {one.removeprefix(each) for one in wanted for each in before if one.startswith(each)}
    return sorted(found)
