"""A worker's side of destinations: rounds in which it is given calls and places, a few a second.

One round is one call of ``suimon.take_calls`` (db/schema.sql): one transaction in one round trip,
so that a worker that freezes never holds the row's lock. What it gives is told in seconds from the
database's *now*; ``sent`` and ``got``, the worker's clock before and after the round trip, bound
where that now lies on it: what may not be early counts from ``got``, what may not be late from
``sent``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from suimon.core import clock, gcra
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements

SQL = statements(__package__, "destination.sql")


@dataclass(frozen=True, slots=True)
class Ask:
    """What a worker wants of one destination, and what it gives back and goes on using."""

    name: str
    calls: int = 0
    places: int = 0
    wants: int = 0
    waiting: int = 0
    back: Sequence[int] = ()
    #: Places by token, and the run that uses each; None: nobody.
    used: Sequence[tuple[int, str | None]] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """A destination as it stands now."""

    name: str
    version: int
    per_second: float | None
    burst: int | None
    concurrency: int | None
    base_url: str | None
    auth: str | None
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Given:
    """A round's answer; instants are on the worker's monotonic clock. ``terms`` None: unknown."""

    terms: Terms | None
    kept: frozenset[int] = frozenset()
    places: tuple[int, ...] = ()
    #: Of each booked call: not before, not after.
    calls: tuple[tuple[float, float], ...] = ()
    #: From when on the places of this round may have expired.
    expires: float = 0.0
    held_until: float | None = None
    give_back: int = 0
    #: This worker's part of all that ask.
    part: float = 1.0
    parked: bool = False
    pools: tuple[str, ...] = field(default=())
    sent: float = 0.0


def take(conn: Connection, worker: int, ask: Ask) -> Given:
    """One round. Safe to send twice: what the first one gave and nobody heard of expires."""
    params: dict[str, Any] = {
        "worker": worker, "name": ask.name, "calls": ask.calls, "places": ask.places,
        "wants": ask.wants, "waiting": ask.waiting, "back": list(ask.back),
        "used": [token for token, _ in ask.used], "runs": [run for _, run in ask.used],
    }  # fmt: skip
    sent = clock.monotonic()

    def act() -> Any:
        nonlocal sent
        sent = clock.monotonic()
        return conn.execute(SQL.round, params).fetchone()

    row = retrying(act)
    got = clock.monotonic()
    if row is None or row[0] is None:
        return Given(None, sent=sent)
    name, version, per_second, burst, at_once, base_url, auth, timeout_ms = row[:8]
    terms = Terms(name, version, per_second, burst, at_once, base_url, auth, timeout_ms / 1000)
    kept, places, n, first_s, step_s, lease_s, held_s, give_back, part, parked, pools = row[8:]
    calls: list[tuple[float, float]] = []
    if n and terms.per_second is not None and terms.burst is not None:
        slack = gcra.slack(terms.per_second, terms.burst)
        for i in range(n):
            in_s = max(0.0, first_s + i * step_s)
            calls.append((got + in_s, sent + in_s + slack))
    return Given(
        terms, frozenset(kept), tuple(places), tuple(calls), sent + lease_s,
        None if held_s is None else got + held_s, give_back, part, parked, tuple(pools), sent,
    )  # fmt: skip


def hold(conn: Connection, name: str, seconds: float, why: str) -> None:
    """The far side said: not before. All workers are told."""

    def act() -> None:
        with transaction(conn):
            held = conn.execute(SQL.hold, {"name": name, "seconds": seconds, "why": why}).fetchone()
            if held is not None:
                conn.execute(SQL.tell, {"name": name})

    retrying(act)


def give_back(conn: Connection, worker: int, tokens: Sequence[int]) -> None:
    """Places that are not used any more."""
    conn.execute(SQL.give_back, {"worker": worker, "tokens": list(tokens)})


def parked(conn: Connection) -> list[str]:
    """Destinations that some run waits for."""
    return [str(row[0]) for row in conn.execute(SQL.parked).fetchall()]
