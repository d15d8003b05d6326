"""Storage pressure: what is held back while the payload store or the disk is nearly full.

The marks are live values of one row (``suimon.store``): pressure begins at the high one and is over
below the low one. Meanwhile fan-outs are deferred as a whole by a durable timer, and doors refuse
what is large; running work ends as always, with all that it stores, and whoever sees the end wakes
the deferred ones, the oldest first and no more than there is room for.

A fan-out with large items says with its first chunk how much it will store, and is let in only with
room for all of it: two that are half stored could wait for each other for ever. Its estimate may be
wrong; what then happens is told beside ``suimon.goes_first`` in the schema.

With no marks set this costs a chunk one row's reading, inside a statement that it sends anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from suimon.core import sizes
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, InputRefused, StoragePressure
from suimon.run import audit, wake
from suimon.run.read import as_json, named

SQL = statements(__package__, "pressure.sql")

#: What an edit may change.
NAMES: Final = ("high_bytes", "low_bytes", "disk_min_bytes")
#: The low mark where none is given, of the high one.
LOW: Final = 0.8
MOST_BYTES: Final = 2**50
#: Items and inputs above it go to the payload store (as ``finish.INLINE_BYTES``).
LARGE_BYTES: Final = 8192
#: Deferred ones that are asked, under pressure, whether they may go on: those before may be stuck.
LOOKS: Final = 10
#: Room that is reckoned for a list of unknown size.
_UNKNOWN_BYTES: Final = 1024 * 1024
_STATE: Final = (
    "high_bytes", "low_bytes", "disk_min_bytes", "disk_ok_bytes", "disk_free", "disk_total",
    "bytes", "above_since", "scarce_since", "version", "edited_by", "edited_at", "deferred",
    "refused",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spawner:
    """Who asks for room: a claim of a run, one of its steps, and that step's fan-out."""

    run_id: str
    claim_no: int
    vertex: str
    fanout: int
    base: str


# ------------------------------------------------------------------------------- fan-outs


def admit(
    conn: Connection, spawner: Spawner, *, last: int | None, items: str, ahead: int | None
) -> float | None:
    """None: go on. Else the step is deferred, in the caller's transaction and under its fence, and
    this is the number of seconds until its next try.

    ``last``: the position of the chunk's last item; None: its list is not read yet. ``ahead``:
    the bytes of all large items of the list, if its first chunk said so.
    """
    texts = items.encode().split(b"\x1e") if items else []
    large = sum(len(text) for text in texts if len(text) > LARGE_BYTES)
    asked = {"fanout": spawner.fanout, "base": spawner.base, "last": last}
    row = conn.execute(SQL.may_spawn, {**asked, "large": large, "ahead": ahead}).fetchone()
    assert row is not None
    if row[0]:
        return None
    where = {"run": spawner.run_id, "vertex": spawner.vertex, "claim_no": spawner.claim_no}
    wants = None if last is None else max(ahead or 0, large)
    later = conn.execute(SQL.defer, {**where, "ahead": wants}).fetchone()
    assert later is not None
    conn.execute(SQL.prune_soon)
    return float(later[0])


def look(conn: Connection) -> int:
    """See whether pressure has begun or is over; wake who may go on. Returns how many were woken.

    One statement where no marks are set.
    """
    watch = conn.execute(SQL.watch).fetchone()
    if not (watch and watch[0]) and conn.execute(SQL.deferred).fetchone() is None:
        return 0
    row = conn.execute(SQL.see).fetchone()
    return _wake(conn, under_pressure=bool(row and row[0]))


def _wake(conn: Connection, *, under_pressure: bool) -> int:
    """waiting → queued for as many as there is room for; at most 100 at once."""

    def act() -> int:
        with transaction(conn):
            ids = _next(conn, conn.execute(SQL.deferred).fetchall(), under_pressure=under_pressure)
            if not ids:
                return 0
            pools = [str(row[0]) for row in conn.execute(SQL.wake, {"ids": ids}).fetchall()]
            wake.wake(conn, pools)
            return len(pools)

    return retrying(act)


def _next(conn: Connection, deferred: list[Any], *, under_pressure: bool) -> list[str]:
    if under_pressure:  # one at most, where nothing else can make room
        for run_id, _, fanout, _ in deferred[:LOOKS]:
            row = conn.execute(SQL.goes_first, {"fanout": fanout}).fetchone()
            if row and row[0]:
                return [run_id]
        return []
    row = conn.execute(SQL.room).fetchone()
    room = None if row is None else row[0]
    chosen: list[str] = []
    for run_id, ahead, _, half_stored in deferred:
        if room is not None and not half_stored:
            room -= ahead or _UNKNOWN_BYTES
            if room < 0 and chosen:
                break
        chosen.append(run_id)
    return chosen


def prune_again(conn: Connection) -> None:
    """After a prune: the next one soon, while anything is held back."""
    conn.execute(SQL.prune_again)


# ------------------------------------------------------------------------------- doors


def refuses(conn: Connection, size: int) -> bool:
    """Whether an input of so many bytes has to be refused now; small ones cost no statement."""
    if size <= LARGE_BYTES:
        return False
    row = conn.execute(SQL.judged).fetchone()
    return row is not None and bool(row[0] or row[1])


def refusal(conn: Connection, size: int) -> StoragePressure:
    """The error for an input of so many bytes."""
    found = state(conn)
    msg = f"{found['text']}: an input of {sizes.text_of(size)} cannot be stored now"
    return StoragePressure(
        msg,
        detail="Nothing was stored.",
        hint="Ask again later; small inputs go on. What holds it up: suimon storage",
    )


# ------------------------------------------------------------------------------- people


def state(conn: Connection) -> dict[str, Any]:
    """Marks, use, and what is held back; ``text`` says it in a few words."""
    row = conn.execute(SQL.state).fetchone()
    assert row is not None
    found = named(_STATE, row)
    found["bytes"] = int(found["bytes"])
    high = found["high_bytes"]
    found["percent"] = None if high is None else round(100 * found["bytes"] / high, 1)
    found["pressure"] = bool(found["above_since"] or found["scarce_since"])
    found["text"] = _text(found)
    return found


def _text(found: Mapping[str, Any]) -> str:
    if found["scarce_since"] is not None:
        free = found["disk_free"]
        left = "an unknown amount" if free is None else sizes.text_of(free)
        least = sizes.text_of(found["disk_min_bytes"])
        return f"storage pressure: {left} of disk free, the mark is {least}"
    if found["high_bytes"] is None:
        return f"the store holds {sizes.text_of(found['bytes'])}; it has no mark"
    used, high = found["percent"], sizes.text_of(found["high_bytes"])
    word = "storage pressure: " if found["pressure"] or found["deferred"] else ""
    return f"{word}{used:.0f} % of {high}"


def of_run(conn: Connection, run_id: str) -> dict[str, Any]:
    """``{text, storage, vertex, since, next_try_at, tries, half_stored}`` of a run that waits for
    room.
    """
    found = state(conn)
    row = conn.execute(SQL.step, {"run": run_id}).fetchone()
    if row is None:
        return {"text": found["text"], "storage": found}
    vertex, due_at, tries, since, half = row
    text = f"{found['text']}, next try {due_at.astimezone():%H:%M}"
    return {
        "text": text,
        "storage": found,
        "vertex": vertex,
        "since": since,
        "next_try_at": as_json(due_at),
        "tries": tries,
        "half_stored": half,
    }


def oldest(conn: Connection) -> dict[str, Any] | None:
    """The step that waits for room the longest; ``alone``: nothing that can end would make any."""
    names = ("run", "pipeline", "vertex", "waited_s", "due_at", "half", "alone")
    row = conn.execute(SQL.oldest).fetchone()
    return None if row is None else named(names, row)


def change(
    conn: Connection,
    wanted: Mapping[str, Any],
    *,
    actor: str,
    why: str = "",
    expected: int | None = None,
) -> dict[str, Any]:
    """Change the marks that are named, in bytes (``high_bytes`` None: no marks); returns the state.

    A high mark that comes without a low one gets one of four fifths. Raises InputRefused, and
    Conflict when the version is not the ``expected`` one.
    """

    def act() -> None:
        with transaction(conn):
            row = conn.execute(SQL.lock).fetchone()
            assert row is not None
            if expected not in (None, row[3]):
                msg = "the marks of the store have changed meanwhile"
                raise Conflict(msg, hint="Look again: suimon storage")
            before = dict(zip(NAMES, row[:3], strict=True))
            after = _after(before, wanted)
            conn.execute(SQL.change, {**after, "by": audit.checked(actor)})
            detail = {"from": before, "to": after}
            audit.note(conn, "storage", ["storage"], actor=actor, why=why, detail=detail)

    retrying(act)
    look(conn)
    return state(conn)


def _after(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    audit.must_change(wanted, NAMES)
    for name, value in wanted.items():
        if name not in NAMES:
            msg = f'the store has no mark "{name}"'
            raise InputRefused(msg, path=name, hint=f"It has {', '.join(NAMES)}.")
        least = 0 if name == "disk_min_bytes" else 1
        none = value is None and name != "disk_min_bytes"
        if not none and (type(value) is not int or not least <= value <= MOST_BYTES):
            msg = f'"{name}" cannot be {value}'
            hint = f"A whole number of bytes from {least} to {MOST_BYTES:,}."
            raise InputRefused(msg, path=name, hint=hint)
    after = {**before, **wanted}
    if after["high_bytes"] is None:
        if wanted.get("low_bytes") is not None:
            msg = "a low mark needs a high one"
            raise InputRefused(msg, path="low_bytes")
        after["low_bytes"] = None
    elif wanted.get("low_bytes") is None and ("high_bytes" in wanted or "low_bytes" in wanted):
        after["low_bytes"] = max(1, int(after["high_bytes"] * LOW))
    if after["low_bytes"] is not None and after["low_bytes"] > after["high_bytes"]:
        msg = "the low mark is above the high one"
        raise InputRefused(msg, path="low_bytes", hint="Pressure ends below the low mark.")
    return after
