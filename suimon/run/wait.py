"""running → waiting on a durable timer, a signal or an approval, and what ends such a wait.

A wait holds no slot and no worker: it is a row with a reason and, if it ends by itself, the instant
it does. Whoever ends it (``send_signal``, ``approvals.decide``) locks the run's row first, and so
does whoever parks it, each in a statement of its own; a signal that comes while the run is being
parked therefore finds it parked. A signal that comes early is kept, and the first one of a name
wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict, RunNotFound
from suimon.run import claim, finish, retry, spawn, wake
from suimon.run.spawn import Holder, LostRunError
from suimon.store import payload
from suimon.store.payload import Kept

SQL = statements(__package__, "wait.sql")

#: A run that waits for a quota and for something else looks at the quota as often as this.
QUOTA_LOOK_S: Final = 60.0
#: What a parked run waits for when only its children are out.
_ONLY_CHILDREN: Final[Mapping[str, Any]] = {
    "reason": "children", "in_s": None, "signals": [], "approvals": [], "quotas": [],
}  # fmt: skip
_NONE: Final[Mapping[int, Sequence[str]]] = {}
#: A signal's or a voter's name.
NAME_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Waited:
    """How a wait stands: over (done or timed out) with its JSON text, or parked for ``in_s``."""

    over: bool
    timed_out: bool = False
    value: str = "null"
    in_s: float | None = None


def fence(conn: Connection, holder: Holder) -> None:
    row = conn.execute(
        SQL.fence, {"run": holder.run_id, "worker": holder.worker, "claim_no": holder.claim_no}
    ).fetchone()
    if row is None or row[1]:
        raise LostRunError(holder.run_id)


@dataclass(frozen=True, slots=True)
class On:
    """One thing a run waits for: a fan-out, a signal, an approval, room in a quota, or only a time
    (seconds) - its own, or the next try of a fan-out for which the store has no room.
    """

    fanout: int | None = None
    signal: str | None = None
    approval: str | None = None
    quota: str | None = None
    storage: bool = False
    in_s: float | None = None


def park(
    conn: Connection,
    holder: Holder,
    waits: Sequence[On],
    *,
    grace_s: float,
    merged: Mapping[int, Sequence[str]] = _NONE,
) -> tuple[bool, float | None]:
    """running → waiting on all of these. (parked, seconds to its timer); not parked: one is over.

    ``merged`` is each fan-out whose merge the run has used, with the steps from there on. Where one
    was opened again meanwhile, these steps are forgotten, with what they have asked, and the run
    waits for its children alone. Raises LostRunError.
    """
    fanouts = sorted(w.fanout for w in waits if w.fanout is not None)
    short = sorted({w.quota for w in waits if w.quota is not None})
    reason = _reason(waits)
    # a raised quota looks for its word; behind another one, the run looks by itself
    look_s = QUOTA_LOOK_S if short and not reason.startswith("quota:") else float("inf")
    timers = [min(w.in_s, look_s) if w.quota else w.in_s for w in waits if w.in_s is not None]
    params = {
        "run": holder.run_id,
        "worker": holder.worker,
        "claim_no": holder.claim_no,
        "reason": reason,
        "in_s": min(timers, default=None),
        "grace_s": grace_s,
        "fanouts": fanouts,
        "signals": [w.signal for w in waits if w.signal is not None],
        "approvals": [w.approval for w in waits if w.approval is not None],
        "quotas": short,
    }

    def act() -> tuple[bool, float | None]:
        with transaction(conn):
            for fanout in sorted({*fanouts, *merged}):
                conn.execute(spawn.SQL.lock, {"fanout": fanout})
            fence(conn, holder)
            opened = _opened_again(conn, holder, merged)
            if opened:
                conn.execute(SQL.park, {**params, **_ONLY_CHILDREN, "fanouts": opened})
                return True, None
            if short:  # who raises it comes after this, and finds the run parked
                conn.execute(SQL.share_quotas, {"quotas": short})
            row = conn.execute(SQL.park, params).fetchone()
            return row is not None, (None if row is None else row[0])

    return retrying(act)


def _opened_again(
    conn: Connection, holder: Holder, merged: Mapping[int, Sequence[str]]
) -> list[int]:
    if not merged:
        return []
    opened = [row[0] for row in conn.execute(SQL.opened_again, {"merged": list(merged)}).fetchall()]
    steps = sorted({step for fanout in opened for step in merged[fanout]})
    if steps:
        forget = {"ids": [holder.run_id] * len(steps), "vertices": steps}
        conn.execute(retry.SQL.forget_steps, forget)
    return opened


def _reason(waits: Sequence[On]) -> str:
    """Children first: the settle looks for that word; of several others the first is shown."""
    if any(w.fanout is not None for w in waits):
        return "children"
    for one in waits:
        if one.signal is not None:
            return f"signal:{one.signal}"
        if one.approval is not None:
            return f"approval:{one.approval}"
        if one.quota is not None:
            return f"quota:{one.quota}"
        if one.storage:
            return "storage"
    return "timer"


def wait_for(
    conn: Connection,
    holder: Holder,
    vertex: str,
    *,
    after_s: float | None = None,
    until: str | None = None,
    signal: str | None = None,
) -> Waited:
    """A WAIT vertex: over by now, or not. ``after_s`` is the timer, or the signal's timeout.

    Raises LostRunError, and StoreUnavailable for a large signal.
    """
    large: list[bytes | None] = []

    def act() -> Waited:
        large.clear()
        with transaction(conn):
            fence(conn, holder)
            opened = conn.execute(
                SQL.open_step,
                {
                    "run": holder.run_id,
                    "vertex": vertex,
                    "claim_no": holder.claim_no,
                    "until": until,
                    "after_s": after_s,
                },
            ).fetchone()
            assert opened is not None
            due, in_s = bool(opened[0]), opened[1]
            if signal is not None:
                found = conn.execute(
                    SQL.signal_of, {"run": holder.run_id, "name": signal}
                ).fetchone()
                if found is not None:
                    large.append(found[1])
                    return Waited(over=True, value=found[0] or "null")
                if due:
                    return Waited(over=True, timed_out=True)
                return Waited(over=False, in_s=in_s)
            if due:
                return Waited(over=True, value="{}")
            return Waited(over=False, in_s=in_s)

    waited = retrying(act)
    if any(large):  # (read after the commit: nobody waits for an object store under a lock)
        return replace(waited, value=payload.text(conn, None, large[0]) or "null")
    return waited


def open_deadline(conn: Connection, holder: Holder, vertex: str | None, deadline_s: float) -> float:
    """Seconds left of a task's deadline, which its first try begins; not positive: it has passed.

    ``vertex`` is None for a run of one vertex, whose own row keeps it. Raises LostRunError.
    """

    def act() -> float:
        with transaction(conn):
            fence(conn, holder)
            if vertex is None:
                row = conn.execute(
                    claim.SQL.set_deadline,
                    {
                        "run": holder.run_id,
                        "worker": holder.worker,
                        "claim_no": holder.claim_no,
                        "deadline_s": deadline_s,
                    },
                ).fetchone()
                return float(row[0]) if row is not None else 0.0
            opened = conn.execute(
                SQL.open_step,
                {
                    "run": holder.run_id,
                    "vertex": vertex,
                    "claim_no": holder.claim_no,
                    "until": None,
                    "after_s": deadline_s,
                },
            ).fetchone()
            assert opened is not None
            return 0.0 if opened[0] else float(opened[1])

    return retrying(act)


def send_signal(conn: Connection, run_id: str, name: str, data: bytes, *, by: str) -> bool:
    """Keep a signal (checked JSON), wake the run if it waits for it; False: one was there already.

    Raises RunNotFound, and Conflict when the run has ended.
    """

    small = len(data) <= finish.INLINE_BYTES

    def act(kept: Kept) -> bool:
        with transaction(conn):
            status, _ = lock_run(conn, run_id)
            if status in ("succeeded", "failed", "timed_out", "cancelled"):
                msg = f"run {run_id} has ended ({status}); nobody would hear the signal"
                raise Conflict(msg, hint="Signals are for runs that are not over.")
            first = conn.execute(
                SQL.keep_signal,
                {"run": run_id, "name": name, "data": data.decode() if small else None, "by": by},
            ).fetchone()
            if first is None:
                return False
            if not small:
                kept.write(conn)
                payload.refer(conn, [(run_id, f"signal:{name}", kept[data])])
            wake_it(conn, run_id)
            return True

    large = [] if small else [data]
    return payload.keeping(conn, large, lambda kept: retrying(lambda: act(kept)))


def lock_run(conn: Connection, run_id: str) -> tuple[str, str | None]:
    row = conn.execute(SQL.lock_run, {"run": run_id}).fetchone()
    if row is None:
        msg = f"there is no run {run_id}"
        raise RunNotFound(msg, hint="List them: suimon runs list")
    return str(row[1]), row[2]


def wake_it(conn: Connection, run_id: str) -> None:
    row = conn.execute(SQL.wake_waiter, {"run": run_id}).fetchone()
    if row is not None:
        wake.wake(conn, [row[0]])


def send_later(conn: Connection, worker: int, tries: Sequence[tuple[str, int, float, str]]) -> Any:
    """Send running → waiting for tasks that raised ``Later``, or that wait for their turn at a
    destination: (id, claim_no, seconds, reason).
    """
    return conn.execute(
        SQL.park_tries,
        {
            "worker": worker,
            "ids": finish.array([i for i, _, _, _ in tries]),
            "claims": finish.array([c for _, c, _, _ in tries]),
            "delays": [d for _, _, d, _ in tries],
            "reasons": [reason for _, _, _, reason in tries],
        },
        prepare=True,
    )
