"""Destinations as people see and change them: their limits, who is calling, holds by hand.

A definition declares them, somebody may edit rate, burst and concurrency, and from then on a deploy
leaves those as they are (the address and the secret's name are the code's). An edit may name the
version that it expects to replace. Each change is told to the workers at once (``suimon_limits``):
raised limits are used, lowered ones take nobody's place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from suimon.core import durations, gcra
from suimon.core.suggest import did_you_mean
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, InputRefused, NotThere
from suimon.run import audit
from suimon.run.read import named

SQL = statements(__package__, "destinations.sql")

#: What an edit may change.
NAMES: Final = ("rate", "burst", "concurrency")
MOST: Final = 100_000
LONGEST_HOLD_SECONDS: Final = 366 * 86_400.0
_LISTED: Final = (
    "name", "rate", "burst", "concurrency", "base_url", "auth", "timeout_ms", "declared", "version",
    "edited_at", "held", "held_until", "held_why", "held_by", "paused_by", "at_once", "parked",
    "calls_now",
)  # fmt: skip
_TIMEOUT: Final = "10s"


@dataclass(frozen=True, slots=True)
class Declared:
    """One checked declaration, as the definition holds it."""

    name: str
    given: dict[str, Any]


def declare(
    conn: Connection, declared: Sequence[Declared], *, only_new: bool = False
) -> list[tuple[str, str]]:
    """Keep what a deploy declares, in its transaction; (name, new or changed) of what moved."""
    moved: list[tuple[str, str]] = []
    for one in sorted(declared, key=lambda each: each.name):
        given = one.given
        row = conn.execute(
            SQL.declare,
            {
                "name": one.name,
                **_limits(given.get("rate"), given.get("burst"), given.get("concurrency")),
                "base_url": given.get("baseUrl"),
                "auth": given.get("auth"),
                "timeout_ms": durations.milliseconds(given.get("timeout", _TIMEOUT)),
                "declared": orjson.dumps(given, option=orjson.OPT_SORT_KEYS).decode(),
                "only_new": only_new,
            },
        ).fetchone()
        if row is not None:
            moved.append((one.name, "new" if row[0] else "changed"))
    if moved:
        conn.execute(SQL.tell, {"names": [name for name, _ in moved]})
    return moved


def _limits(rate: str | None, burst: int | None, concurrency: int | None) -> dict[str, Any]:
    per_second = None if rate is None else gcra.per_second(rate)
    if per_second is None:
        burst = None
    elif burst is None:
        burst = gcra.default_burst(per_second)
    return {"rate": rate, "per_second": per_second, "burst": burst, "concurrency": concurrency}


# ------------------------------------------------------------------------------------ looking


def listed(conn: Connection) -> list[dict[str, Any]]:
    """All of them, by name."""
    return [_shown(row) for row in conn.execute(SQL.listed, {"name": None}).fetchall()]


def show(conn: Connection, name: str) -> dict[str, Any]:
    """One of them, with who is calling and since when. Raises NotThere."""
    row = conn.execute(SQL.listed, {"name": name}).fetchone()
    if row is None:
        raise _unknown(conn, name)
    names = ("run_id", "pipeline", "worker", "since", "expires_at")
    holders = [named(names, one) for one in conn.execute(SQL.holders, {"name": name}).fetchall()]
    return {**_shown(row), "holders": holders}


def _shown(row: Sequence[Any]) -> dict[str, Any]:
    found = named(_LISTED, row)
    found["timeout"] = durations.text_of(found.pop("timeout_ms"))
    found["edited"] = found["edited_at"] is not None
    given = found["declared"]
    limits = _limits(given.get("rate"), given.get("burst"), given.get("concurrency"))
    found["declared_limits"] = {name: limits[name] for name in NAMES}
    return found


def _unknown(conn: Connection, name: str) -> NotThere:
    known = [row[0] for row in conn.execute(SQL.names).fetchall()]
    near = did_you_mean(name, known)
    return NotThere(
        f'there is no destination "{name}"', hint=near or "See them: suimon limits list"
    )


# ------------------------------------------------------------------------------------ changing


def change(
    conn: Connection,
    name: str,
    wanted: Mapping[str, Any],
    *,
    actor: str,
    why: str = "",
    expected: int | None = None,
) -> dict[str, Any]:
    """Change the limits that are named (None: no such limit); returns the destination.

    A rate that is changed without a burst gets the usual one. Raises NotThere, InputRefused, and
    Conflict when its version is not the ``expected`` one.
    """
    _check(wanted)

    def act() -> None:
        with transaction(conn):
            row = conn.execute(SQL.lock, {"name": name}).fetchone()
            if row is None:
                raise _unknown(conn, name)
            if expected not in (None, row[3]):
                msg = f'the limits of destination "{name}" have changed meanwhile'
                raise Conflict(msg, hint=f"Look again: suimon limits show {name}")
            before = dict(zip(NAMES, row[:3], strict=True))
            after = {**before, **wanted}
            if "rate" in wanted and "burst" not in wanted:
                after["burst"] = None
            limits = _limits(after["rate"], after["burst"], after["concurrency"])
            _check_burst(after["rate"], limits["burst"], limits["per_second"])
            conn.execute(SQL.change, {"name": name, **limits})
            detail = {"from": before, "to": {key: limits[key] for key in NAMES}}
            audit.note(conn, "limits", [f"destination:{name}"], actor=actor, why=why, detail=detail)
            conn.execute(SQL.tell, {"names": [name]})

    retrying(act)
    return show(conn, name)


def _check(wanted: Mapping[str, Any]) -> None:
    audit.must_change(wanted, NAMES)
    for name, value in wanted.items():
        if name not in NAMES:
            msg = f'a destination has no limit "{name}"'
            raise InputRefused(msg, path=name, hint=f"It has {', '.join(NAMES)}.")
        if value is None:
            continue
        if name == "rate":
            try:
                gcra.per_second(value)
            except ValueError as error:
                raise InputRefused(str(error), path=name) from None
        elif type(value) is not int or not 1 <= value <= MOST:
            msg = f'"{name}" cannot be {value}'
            raise InputRefused(msg, path=name, hint=f"A whole number from 1 to {MOST:,}, or none.")


def _check_burst(rate: str | None, burst: int | None, per_second: float | None) -> None:
    if per_second is None or burst is None:
        return
    least = gcra.least_burst(per_second)
    if burst < least:
        msg = f"a burst of {burst} at {rate} is less than can be kept to"
        raise InputRefused(msg, path="burst", hint=f"Give it at least {least}.")


def hold(
    conn: Connection, name: str, *, seconds: float | None, actor: str, why: str = ""
) -> dict[str, Any]:
    """Nobody calls it for so long, or until it is released. Raises NotThere."""
    if seconds is not None and not 0 < seconds <= LONGEST_HOLD_SECONDS:
        msg = "a hold is from 1 ms to 366 days"
        raise InputRefused(msg, path="for")

    def act() -> None:
        with transaction(conn):
            given = {"name": name, "seconds": seconds, "why": why, "by": audit.checked(actor)}
            if conn.execute(SQL.hold, given).rowcount == 0:
                raise _unknown(conn, name)
            detail = {"seconds": seconds}
            audit.note(conn, "hold", [f"destination:{name}"], actor=actor, why=why, detail=detail)
            conn.execute(SQL.tell, {"names": [name]})

    retrying(act)
    return show(conn, name)


def release(conn: Connection, name: str, *, actor: str, why: str = "") -> dict[str, Any]:
    """Let calls go on, whoever held it; with ``changed``. Raises NotThere."""

    def act() -> bool:
        with transaction(conn):
            changed = conn.execute(SQL.release, {"name": name}).fetchone() is not None
            if changed:
                audit.note(conn, "release", [f"destination:{name}"], actor=actor, why=why)
                conn.execute(SQL.tell, {"names": [name]})
            return changed

    changed = retrying(act)
    return {**show(conn, name), "changed": changed}
