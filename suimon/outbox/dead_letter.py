"""Deliveries in people's hands: what waits, what died and why, and the decisions about it.

A dead letter is a delivery that could not become a run: its input is not what the pipeline reads,
or its pipeline stayed full for a week. It is never pruned. Somebody mends the cause and requeues it
(one, all of a cause, with another input), or discards it (for seven days that can be taken back).
Each act writes its audit record in its own transaction; a requeued delivery goes to the place of
its arrival, before what came later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from suimon.core import jsonsafe
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, InputRefused, NotThere
from suimon.run import audit, read, submit
from suimon.run.finish import INLINE_BYTES
from suimon.run.read import named
from suimon.store import payload
from suimon.store.payload import Kept

SQL = statements(__package__, "dead_letter.sql")

STATES: Final = ("waiting", "delivered", "folded", "missed", "refused", "dead", "discarded")
#: Deliveries of one transaction of a requeue by cause.
BATCH: Final = 500
#: What one requeue by cause takes at most; whoever has more asks again.
MANY: Final = 100_000
#: Deliveries that one call names.
IDS: Final = 1_000
_NAMES: Final = (
    "id", "state", "pipeline", "trigger", "source", "arrived_at", "ended_at", "tries", "run_id",
    "duplicate", "code", "why",
)  # fmt: skip
_WHOLE: Final = (
    "id", "state", "pipeline", "trigger", "trigger_id", "source", "key", "arrived_at", "ended_at",
    "tries", "run_id", "duplicate", "code", "why", "input", "detail",
)  # fmt: skip
_PARTICULAR: Final = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{22}|\"[^\"]{0,300}\"|'[^']{0,300}'|\d[\d.,:]*"
)


@dataclass(slots=True)
class Group:
    """Dead letters with one cause."""

    pipeline: str | None
    code: str | None
    cause: str
    count: int = 0
    first: str = ""
    last: str = ""
    ids: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "code": self.code,
            "cause": self.cause,
            "count": self.count,
            "first": self.first,
            "last": self.last,
        }


# ------------------------------------------------------------------------------------- looking


def listed(
    conn: Connection,
    *,
    states: Sequence[str] = (),
    pipeline: str | None = None,
    trigger: str | None = None,
    since_s: float | None = None,
    before: str | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Deliveries, newest first, at most 1,000: those of the last ``since_s`` seconds, and before
    the last id of the page before.
    """
    for state in states:
        if state not in STATES:
            msg = f'there is no state "{state}" of a delivery'
            raise InputRefused(msg, path="state", hint=f"One of {', '.join(STATES)}.")
    where = {
        "states": list(states),
        "pipeline": pipeline,
        "trigger": trigger,
        "since_s": since_s,
        "before": before,
        "n": limit,
    }
    return [named(_NAMES, row) for row in conn.execute(SQL.listed, where).fetchall()]


def resolve(conn: Connection, given: str) -> str:
    """The whole id of a delivery, from it or from a beginning of at least six digits."""
    digits = given.strip().lower().replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{6,32}", digits):
        msg = f'"{given}" is no delivery id'
        raise InputRefused(msg, path="id", hint="Give the id or its first digits, at least 6.")
    bounds = {"low": digits.ljust(32, "0"), "high": digits.ljust(32, "f")}
    found = [str(row[0]) for row in conn.execute(SQL.by_prefix, bounds).fetchall()]
    if len(found) == 1:
        return found[0]
    msg = f"there is no delivery {given}"
    if found:
        msg = f'{len(found)} deliveries begin with "{given}"'
    raise NotThere(msg, hint="List them: suimon deliveries list")


def show(conn: Connection, delivery: str) -> dict[str, Any]:
    """One delivery with its input; that of a delivered one is its run's."""
    row = conn.execute(SQL.one, {"id": delivery}).fetchone()
    if row is None:
        msg = f"there is no delivery {delivery}"
        raise NotThere(msg, hint="It may have been pruned; see: suimon deliveries list")
    *shown, content = row
    found = named(_WHOLE, shown)
    return {**found, "input": read.parsed(payload.text(conn, found["input"], content))}


def normalised(why: str | None) -> str:
    """A cause without what is particular: ids, numbers, quoted names."""
    return _PARTICULAR.sub("#", (why or "").strip())[:200]


def groups(conn: Connection, *, pipeline: str | None = None) -> list[Group]:
    """Dead letters by pipeline, code and cause, the largest first; counts at most 100,000."""
    found: dict[tuple[Any, ...], Group] = {}
    after = seen = 0
    while rows := _page(conn, None, pipeline, after, BATCH):
        for delivery, after, of, code, why in rows:  # noqa: B007
            cause = normalised(why)
            group = found.setdefault((of, code, cause), Group(of, code, cause, first=delivery))
            group.count, group.last = group.count + 1, delivery
        seen += len(rows)
        if seen >= MANY:
            break
    return sorted(found.values(), key=lambda group: -group.count)


def _page(
    conn: Connection, code: str | None, pipeline: str | None, after: int, n: int
) -> list[tuple[Any, ...]]:
    where = {"state": "dead", "code": code, "pipeline": pipeline, "after": after, "n": n}
    return conn.execute(SQL.dead, where).fetchall()


# ------------------------------------------------------------------------------------- deciding


def requeue(conn: Connection, ids: Sequence[str], *, actor: str, why: str = "") -> list[str]:
    """dead → waiting for these; Conflict, and nothing done, where one is not dead."""
    return _all_or_none(conn, "requeue", ids, "dead", actor, why)


def requeue_edited(
    conn: Connection, delivery: str, value: Any, *, actor: str, why: str = ""
) -> None:
    """dead → waiting with another input. Raises Conflict, InvalidJson, PayloadTooLarge."""
    text = jsonsafe.dumps(value, what="input").decode()

    def act(kept: Kept) -> None:
        with transaction(conn):
            given = {"id": delivery, "input": text}
            if conn.execute(SQL.set_input, given).fetchone() is None:
                raise _not(conn, [delivery], "dead")
            conn.execute(SQL.drop_payload, {"id": delivery})
            if kept:
                kept.write(conn)
                payload.refer(conn, [(delivery, "delivery", kept[text])])
            _back(conn, [delivery])
            audit.note(conn, "requeue", [delivery], actor=actor, why=why, detail={"edited": True})
            conn.execute(SQL.tell_keepers)

    payload.keeping(conn, _large(text), lambda kept: retrying(lambda: act(kept)))


def _large(text: str) -> list[str]:
    return [text] if len(text.encode()) > INLINE_BYTES else []


def discard(conn: Connection, ids: Sequence[str], *, actor: str, why: str = "") -> list[str]:
    """dead → discarded for these; they can be restored for seven days, then they are pruned."""
    return _all_or_none(conn, "discard", ids, "dead", actor, why)


def restore(conn: Connection, ids: Sequence[str], *, actor: str, why: str = "") -> list[str]:
    """discarded → dead."""
    return _all_or_none(conn, "restore", ids, "discarded", actor, why)


def _all_or_none(
    conn: Connection, action: str, ids: Sequence[str], state: str, actor: str, why: str
) -> list[str]:
    if len(ids) > IDS:
        msg = f"{len(ids):,} deliveries at once; at most {IDS:,} are accepted"
        raise InputRefused(msg, path="id", hint="Choose them by --group.")
    wanted = sorted(set(ids))

    def act() -> list[str]:
        with transaction(conn):
            done = _moved(conn, action, wanted)
            if len(done) < len(wanted):
                raise _not(conn, sorted(set(wanted) - set(done)), state)
            audit.note(conn, action, wanted, actor=actor, why=why)
            if action == "requeue":
                conn.execute(SQL.tell_keepers)
            return done

    return retrying(act)


def _moved(conn: Connection, action: str, ids: Sequence[str]) -> list[str]:
    """Those that were in the state the act expects."""
    if action == "requeue":
        return _back(conn, ids)
    return [str(row[0]) for row in conn.execute(SQL[action], {"ids": list(ids)}).fetchall()]


def _back(conn: Connection, ids: Sequence[str]) -> list[str]:
    """dead → waiting."""
    conn.execute(SQL.lock_triggers, {"ids": list(ids)})
    return [str(row[0]) for row in conn.execute(SQL.requeue, {"ids": list(ids)}).fetchall()]


def _not(conn: Connection, ids: Sequence[str], state: str) -> Conflict:
    found = show(conn, ids[0])
    msg = f'delivery {ids[0]} is "{found["state"]}", not "{state}"'
    hint = "Only a dead letter is requeued or discarded; a delivered one again: "
    return Conflict(msg, hint=f"{hint}suimon deliveries again ID")


def count_dead(conn: Connection, *, code: str | None = None, pipeline: str | None = None) -> int:
    """How many a requeue by cause would take; counted up to 100,000."""
    count = after = 0
    while rows := _page(conn, code, pipeline, after, BATCH):
        count, after = count + len(rows), rows[-1][1]
        if count >= MANY:
            break
    return count


def requeue_all(
    conn: Connection,
    *,
    code: str | None = None,
    pipeline: str | None = None,
    actor: str,
    why: str = "",
    each: Callable[[int], None] | None = None,
) -> int:
    """dead → waiting for all with this code, in batches; returns how many.

    Broken off, it is gone on with by asking again. What dies anew meanwhile is not taken again:
    each is passed once, in the order of arrival.
    """
    count = after = 0
    chosen = {"code": code, "pipeline": pipeline}
    while count < MANY:
        rows = _page(conn, code, pipeline, after, BATCH)
        if not rows:
            break
        ids, after = [str(row[0]) for row in rows], rows[-1][1]
        count += retrying(lambda ids=ids: _requeue_batch(conn, ids, chosen, actor, why))  # type: ignore[misc]
        if each is not None:
            each(count)
    return count


def _requeue_batch(
    conn: Connection, ids: Sequence[str], chosen: dict[str, Any], actor: str, why: str
) -> int:
    with transaction(conn):
        done = _back(conn, ids)
        if done:
            audit.note(conn, "requeue", done, actor=actor, why=why, detail=chosen)
            conn.execute(SQL.tell_keepers)
        return len(done)


def again(conn: Connection, delivery: str, *, actor: str, why: str = "") -> str:
    """The same thing once more, as a new delivery that will have a run of its own; its id.

    For what was delivered, folded, missed or refused. Raises Conflict when its input was not kept,
    or its trigger is unknown; a dead letter is requeued instead.
    """
    new = submit.uuid7()

    def act() -> str:
        with transaction(conn):
            found = show(conn, delivery)
            if found["state"] in ("waiting", "dead", "discarded"):
                msg = f'delivery {delivery} is "{found["state"]}": it has not become a run yet'
                raise Conflict(msg, hint="A dead letter: suimon deliveries requeue ID")
            if found["trigger_id"] is None or found["input"] is None:
                msg = f"what delivery {delivery} brought was not kept"
                raise Conflict(msg, hint="Ask its sender to send it again.")
            text = jsonsafe.dumps(found["input"], what="input").decode()
            given = {
                "new": new,
                "id": delivery,
                "trigger": found["trigger_id"],
                "source": found["source"],
                "input": text,
            }
            conn.execute(SQL.again, given)
            if large := _large(text):
                kept = payload.ready(conn, large)
                kept.write(conn)
                payload.refer(conn, [(new, "delivery", kept[text])])
            audit.note(conn, "again", [delivery], actor=actor, why=why, detail={"new": new})
            conn.execute(SQL.tell_keepers)
            return new

    return retrying(act)
