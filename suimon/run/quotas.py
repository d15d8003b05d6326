"""Quotas: how many runs may be created in a day and in a month, all together, of one pipeline or
with one label.

Runs are counted where they are born, in SQL (``suimon.quota_*`` in schema.sql): a use locks the
rows of its quotas, so two that race for the last of it cannot both have it. A fan-out whose length
is known takes all of it with its first chunk; what it has not used is given back when its list is
sealed, or by whoever finds that nobody will use it: a quota that is about to refuse, a list that is
asked for, the sweep. Nothing that ends a run has to think of quotas.

Days and months are those of UTC. Where nothing is configured, nothing is counted.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import psycopg

from suimon.core import labels as labelling
from suimon.core.suggest import did_you_mean
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, InputRefused, NotThere, QuotaExceeded
from suimon.run import audit, wake
from suimon.run.read import as_json, named

SQL = statements(__package__, "quotas.sql")

#: What an edit may change.
NAMES: Final = ("per_day", "per_month")
MOST: Final = 2_000_000_000
NAME_CHARACTERS: Final = 200
#: The SQLSTATE of suimon.quota_lock.
BUSY: Final = "SUI42"
#: Batches of 1,000 parked runs that one change or sweep wakes.
WAKES: Final = 100
#: Batches of 1,000 reservations that one sweep gives back.
FREES: Final = 100
#: From this part of its limit on a quota is worth a warning.
NEARLY: Final = 0.8
_LISTED: Final = (
    "name", "per_day", "per_month", "day_used", "month_used", "day_renews_at", "month_renews_at",
    "reserved", "waiting", "version", "edited_by", "edited_at",
)  # fmt: skip
_PIPELINE: Final = re.compile(r"pipeline:[a-z0-9][a-z0-9_-]*")


# ---------------------------------------------------------------------------------- refusals


def refusal(
    conn: Connection, pipeline: str, n: int, labels: Sequence[str] | None = None
) -> QuotaExceeded | None:
    """Why ``n`` more runs of this pipeline cannot be created now; None: quotas have room."""
    params = {"pipeline": pipeline, "n": n, "labels": _given(labels)}
    row = conn.execute(SQL.refusal, params).fetchone()
    return None if row is None else exceeded(row[0], row[1])


def left(conn: Connection, pipeline: str, labels: Sequence[str] | None = None) -> int | None:
    """How many more runs of this pipeline the quotas have room for; None: any number."""
    params = {"pipeline": pipeline, "labels": _given(labels)}
    row = conn.execute(SQL.left, params).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def exist(conn: Connection) -> bool:
    """Whether anything is counted."""
    row = conn.execute(SQL.any).fetchone()
    return row is not None and bool(row[0])


def exceeded(
    found: Mapping[str, Any], renews_in_s: float, *, position: int | None = None
) -> QuotaExceeded:
    """The refusal, from what ``suimon.quota_refusal`` says."""
    name, period, limit, asked = found["quota"], found["period"], found["limit"], found["asked"]
    at = datetime.fromisoformat(found["renews_at"]).astimezone(UTC)
    found = {**found, "renews_at": as_json(at)}
    renews = f"{at:%Y-%m-%d %H:%M} UTC"
    msg = (
        f'quota "{name}": {asked:,} more {_runs(asked)} asked for, {found["left"]:,} of '
        f"{limit:,} a {period} left; it renews at {renews}"
    )
    detail = f"{found['used']:,} have been created or are reserved this {period}."
    if position:
        detail += f" The list was read up to position {position:,}; what exists runs on."
    again = "Ask again after that" if position is None else "Retry the run after that"
    hint = f"{again}, or raise it: suimon quotas set {name} --per-{period} N"
    if asked > limit:
        hint = f"It never has so much: suimon quotas set {name} --per-{period} N, or ask for less."
    return QuotaExceeded(
        msg, refusal=found, renews_in_s=renews_in_s, position=position, detail=detail, hint=hint
    )


@contextlib.contextmanager
def telling_busy() -> Iterator[None]:
    """What meets a quota whose row a transaction of somebody holds is told to come again."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate != BUSY:
            raise
        msg = "a quota is held by a transaction that has started runs and is still open"
        raise QuotaExceeded(
            msg,
            detail="It was waited for a second; nothing was stored.",
            hint="Ask again. Keep transactions that call suimon.submit short.",
        ) from None


def _runs(n: int) -> str:
    return "run" if n == 1 else "runs"


def _given(labels: Sequence[str] | None) -> list[str] | None:
    return list(labels) if labels else None


# ---------------------------------------------------------------------------------- fan-outs


def counts_fanout(conn: Connection, root: str, pipeline: str) -> bool:
    """Whether a fan-out's list shall be counted first: a quota will count its children."""
    row = conn.execute(SQL.count_fanout, {"root": root, "pipeline": pipeline}).fetchone()
    return row is not None and bool(row[0])


def send_chunk(
    conn: Connection,
    root: str,
    fanout: int,
    pipeline: str,
    *,
    first: int,
    n: int,
    total: int | None,
) -> Any:
    """Send what a chunk takes, before it is stored in the same transaction; see ``check``."""
    where = {"root": root, "fanout": fanout, "pipeline": pipeline}
    size = {"first": first, "n": n, "total": total}
    return conn.execute(SQL.chunk, {**where, **size}, prepare=True)


def check(row: Sequence[Any] | None, *, position: int) -> None:
    """Raise what ``send_chunk`` was answered for a chunk at this position, if it was refused."""
    if row is not None and row[0] is not None:
        raise exceeded(row[0], row[1], position=position)


def free(conn: Connection, *, names: Sequence[str] | None = None, fanout: int | None = None) -> int:
    """Give back what fan-outs that are over have reserved and not used; returns how many."""
    params = {"names": None if names is None else list(names), "fanout": fanout}
    row = conn.execute(SQL.free, params).fetchone()
    assert row is not None
    return int(row[0])


def sweep(conn: Connection) -> int:
    """Reservations that nobody will use, then runs that may try again; returns how many."""
    return free_all(conn) + _wake(conn, None)


def free_all(conn: Connection) -> int:
    """``free`` for all of them, at most 100,000 reservations."""
    total = 0
    for _ in range(FREES):
        count = retrying(lambda: free(conn))
        total += count
        if count < 1000:
            break
    return total


def _wake(conn: Connection, name: str | None) -> int:
    """waiting → queued for those a quota held; returns how often workers were told."""

    def act() -> list[str]:
        with transaction(conn):
            pools = [row[0] for row in conn.execute(SQL.wake, {"name": name}).fetchall()]
            wake.wake(conn, pools)
            return pools

    total = 0
    for _ in range(WAKES):
        pools = retrying(act)
        if not pools:
            break
        total += len(pools)
    return total


# ---------------------------------------------------------------------------------- looking


def listed(conn: Connection) -> list[dict[str, Any]]:
    """All of them, by name: used, reserved and left, and when they renew."""
    retrying(lambda: free(conn))
    return [_shown(row) for row in conn.execute(SQL.listed, {"name": None}).fetchall()]


def show(conn: Connection, name: str) -> dict[str, Any]:
    """One of them. Raises NotThere."""
    retrying(lambda: free(conn, names=[name]))
    row = conn.execute(SQL.listed, {"name": name}).fetchone()
    if row is None:
        raise _unknown(conn, name)
    return _shown(row)


def _shown(row: Sequence[Any]) -> dict[str, Any]:
    found = named(_LISTED, row)
    for period in ("day", "month"):
        limit = found[f"per_{period}"]
        found[f"{period}_left"] = None if limit is None else max(limit - found[f"{period}_used"], 0)
    return found


def used(conn: Connection) -> list[dict[str, Any]]:
    """``{name, period, used, limit, nearly}`` by name and day or month, at most 200 of them."""
    names = ("name", "period", "used", "limit")
    found = [named(names, row) for row in conn.execute(SQL.used).fetchall()]
    return [{**one, "nearly": one["used"] >= NEARLY * one["limit"]} for one in found]


def _unknown(conn: Connection, name: str) -> NotThere:
    known = [row[0] for row in conn.execute(SQL.names).fetchall()]
    near = did_you_mean(name, known)
    return NotThere(f'there is no quota "{name}"', hint=near or "See them: suimon quotas list")


# ---------------------------------------------------------------------------------- changing


def change(
    conn: Connection,
    name: str,
    wanted: Mapping[str, int | None],
    *,
    actor: str,
    why: str = "",
    expected: int | None = None,
) -> dict[str, Any]:
    """Set the limits that are named (None: no such limit), at once; returns the quota.

    A quota that is new counts what the database still holds of this day and month; one that is
    raised wakes who waited for it. Raises InputRefused, and Conflict when its version is not the
    ``expected`` one (0: there is none yet).
    """
    check_name(name)
    _check(wanted)

    def act() -> None:
        with transaction(conn):
            by = audit.checked(actor)
            row = conn.execute(SQL.lock, {"name": name}).fetchone()
            before = {"per_day": None, "per_month": None, "version": 0}
            if row is not None:
                before = dict(zip(("per_day", "per_month", "version"), row, strict=True))
            if expected not in (None, before["version"]):
                msg = f'quota "{name}" has changed meanwhile'
                raise Conflict(msg, hint="Look again: suimon quotas list")
            after = {key: wanted.get(key, before[key]) for key in NAMES}
            if after["per_day"] is None and after["per_month"] is None:
                msg = f'quota "{name}" would limit nothing'
                raise InputRefused(msg, path="per_day", hint="To remove it: --remove")
            given = {"name": name, "by": by, **after}
            if row is not None:
                conn.execute(SQL.change, given)
            elif conn.execute(SQL.make, given).fetchone() is None:
                msg = f'quota "{name}" was made by somebody else at this moment'
                raise Conflict(msg, hint="Look again: suimon quotas list")
            else:
                conn.execute(SQL.count_made, {"name": name})
            was = {key: before[key] for key in NAMES}
            detail = {"from": was, "to": after}
            audit.note(conn, "quota", [f"quota:{name}"], actor=actor, why=why, detail=detail)

    retrying(act)
    _wake(conn, name)
    return show(conn, name)


def remove(
    conn: Connection, name: str, *, actor: str, why: str = "", expected: int | None = None
) -> None:
    """Count no more; who waited for it goes on. Raises NotThere, and Conflict as ``change``."""

    def act() -> None:
        with transaction(conn):
            row = conn.execute(SQL.lock, {"name": name}).fetchone()
            if row is None:
                raise _unknown(conn, name)
            if expected not in (None, row[2]):
                msg = f'quota "{name}" has changed meanwhile'
                raise Conflict(msg, hint="Look again: suimon quotas list")
            conn.execute(SQL.remove, {"name": name})
            detail = {"from": dict(zip(NAMES, row, strict=False)), "to": None}
            audit.note(conn, "quota", [f"quota:{name}"], actor=actor, why=why, detail=detail)

    retrying(act)
    _wake(conn, name)


def check_name(name: str) -> None:
    """Raises InputRefused for what can be no quota's name."""
    label = name.removeprefix("label:")
    if name == "all" or (len(name) <= NAME_CHARACTERS and _PIPELINE.fullmatch(name)):
        return
    if label != name and labelling.is_label(label):
        return
    msg = f'"{name}" cannot be the name of a quota'
    raise InputRefused(msg, path="name", hint="all, pipeline:NAME, or label:KEY:VALUE")


def _check(wanted: Mapping[str, Any]) -> None:
    audit.must_change(wanted, NAMES)
    for key, value in wanted.items():
        if key not in NAMES:
            msg = f'a quota has no limit "{key}"'
            raise InputRefused(msg, path=key, hint=f"It has {' and '.join(NAMES)}.")
        if value is not None and (type(value) is not int or not 0 <= value <= MOST):
            msg = f'"{key}" cannot be {value}'
            raise InputRefused(msg, path=key, hint=f"A whole number from 0 to {MOST:,}, or none.")
