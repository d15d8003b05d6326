"""What operators did: who, what, to what, when and why.

``note`` is called inside the transaction of the act itself, so that there is no act without its
record and no record without its act. Records outlive the runs they name; pruning leaves them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.errors import InputRefused, RunNotFound
from suimon.run import read
from suimon.run.read import named

SQL = statements(__package__, "audit.sql")

#: Characters of a name and of a reason.
ACTOR_CHARS: Final = 200
WHY_CHARS: Final = 4000
#: Targets of one record of many; the others are counted in its detail.
TARGETS: Final = 1000


def note(
    conn: Connection,
    action: str,
    targets: Sequence[str],
    *,
    actor: str,
    why: str = "",
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Record an act on these targets (at most 1,000 of them by name)."""
    text = orjson.dumps({"why": why[:WHY_CHARS], **(detail or {})}).decode()
    given = {"actor": checked(actor), "action": action, "targets": list(targets[:TARGETS])}
    conn.execute(SQL.note, {**given, "detail": text})


def checked(actor: str) -> str:
    """A name that can be kept and shown. Raises InputRefused."""
    name = actor.strip()
    if not name or len(name) > ACTOR_CHARS or not name.isprintable():
        msg = "the name of who asks cannot be used"
        hint = f"1 to {ACTOR_CHARS} printable characters: --as NAME"
        raise InputRefused(msg, path="as", hint=hint)
    return name


def must_change(wanted: Mapping[str, Any], names: Sequence[str]) -> None:
    """An edit names something of what it may. Raises InputRefused."""
    if not wanted:
        hint = f"Give {' or '.join(names)}."
        msg = "nothing is to be changed"
        raise InputRefused(msg, path=names[0], hint=hint)


def target_of(conn: Connection, given: str) -> str:
    """The whole id of a run; one that was pruned has to be given whole."""
    try:
        return read.resolve(conn, given)
    except RunNotFound:
        return given


def listed(
    conn: Connection,
    *,
    target: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """The records, newest first; ``before`` is the last id of the page before."""
    names = ("id", "at", "actor", "action", "target", "detail")
    where = {"target": target, "actor": actor, "action": action, "before": before, "n": limit}
    return [named(names, row) for row in conn.execute(SQL.listed, where).fetchall()]
