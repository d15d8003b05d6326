"""The merge: what a settled fan-out means for its parent, and the end of a run that has fan-outs.

The verdict is the database's (``suimon.is_over`` over the frozen count); here it becomes the step's
result: counts and first failures, or the error that says how many failed and names the first of
them.

A run may not succeed with an open fan-out below it (a child may have been retried meanwhile), so a
parent ends through ``finish_parent``: it locks its fan-outs first, and parks again if one is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from suimon.core import shape
from suimon.db.connect import Connection, retrying, transaction
from suimon.errors import MergeFailed
from suimon.run import cancel, finish, lane, retry, spawn, step, stream
from suimon.run.finish import Ended, Settled
from suimon.run.spawn import FanoutState, Holder
from suimon.store import payload
from suimon.store.payload import Kept


@dataclass(frozen=True, slots=True)
class Judged:
    """A merge's result: the step's output, or its error (both as JSON values)."""

    output: dict[str, Any] | None
    error: dict[str, Any] | None


def is_over(fanout: FanoutState, grace_s: float) -> bool:
    """Whether the merge may go on: settled, and its stragglers have stopped or had their grace."""
    if fanout.state != "settled":
        return False
    return fanout.complete or fanout.stragglers == "finish" or fanout.settled_for_s >= grace_s


def judge(conn: Connection, fanout: FanoutState) -> Judged:
    """The result of a settled fan-out."""
    failures = [
        {
            "position": p,
            "key": k,
            "state": s,
            "error": None if e is None else orjson.loads(e),
            "run_id": i,
        }
        for p, k, s, e, i in stream.first_failures(conn, fanout.id)
    ]
    bad = fanout.failed + fanout.timed_out + fanout.cancelled
    counts = {
        "total": fanout.succeeded + bad,
        "succeeded": fanout.succeeded,
        "failed": fanout.failed,
        "timed_out": fanout.timed_out,
        "cancelled": fanout.cancelled,
    }
    if fanout.verdict == "succeeded":
        return Judged({"counts": counts, "first_failures": failures}, None)
    return Judged(None, _error(fanout, counts, failures))


def _error(
    fanout: FanoutState, counts: dict[str, int], failures: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    ends = [f"{counts[s]} {s}" for s in ("failed", "timed_out", "cancelled") if counts[s]]
    total = fanout.expected if fanout.expected is not None else counts["total"]
    allowed = "no failure" if not fanout.allowed else f"at most {fanout.allowed}"
    message = f'fan-out "{fanout.vertex}": {", ".join(ends)} of {total}; {allowed} is tolerated'
    # the cause, not a straggler that was cancelled because of it
    causes = [f for f in failures if f["state"] != "cancelled"] or list(failures)
    if causes:
        cause = causes[0]
        name = f"child {cause['position']}" + (f" ({cause['key']})" if cause["key"] else "")
        text = (cause["error"] or {}).get("message", cause["state"])
        message += f"; first: {name}: {text}"
    return {
        "type": "MergeFailed",
        "code": MergeFailed.code,
        "message": message[:2000],
        "counts": counts,
        "first_failures": [
            {k: f[k] for k in ("position", "key", "state", "run_id")} for f in causes
        ],
    }


@dataclass(frozen=True, slots=True)
class ParentEnd:
    """What became of a parent's finish: done, parked again below an open fan-out, or not ours."""

    done: bool
    parked: bool
    settled: Settled
    pools: tuple[str, ...] = ()


def finish_parent(
    conn: Connection, holder: Holder, ended: Ended, graph: dict[str, Any], *, grace_s: float
) -> ParentEnd:
    """running → succeeded for a run with fan-outs, unless one of them was opened again."""
    lanes = [ended.lane] if ended.lane is not None else []

    def act(kept: Kept) -> ParentEnd:
        with transaction(conn):
            if lanes:
                lane.lock(conn, lanes)
            below = conn.execute(retry.SQL.below, {"run": holder.run_id}).fetchall()
            reopened = [(fanout, vertex) for fanout, vertex, state, _ in below if state == "open"]
            merged = [vertex for _, vertex, state, n in below if state == "open" and n]
            if reopened and (
                ended.status == "succeeded" or (merged and _is_stale(conn, holder, graph, merged))
            ):
                parked = _park_again(conn, holder, graph, reopened, grace_s)
                return ParentEnd(done=False, parked=parked, settled=Settled())
            done = finish.send(conn, holder.worker, [ended]).fetchall()
            fanouts = [ended.fanout_id] if ended.fanout_id is not None and done else []
            follows = finish.settled(finish.send_settle(conn, fanouts))
            pools = set(follows.pools)
            if lanes and done:
                pools |= lane.admitted(lane.send_admit(conn, lanes))
            if kept:  # last, as in a batch
                kept.write(conn)
                finish.send_large(conn, [ended], kept)
            return ParentEnd(bool(done), parked=False, settled=follows, pools=tuple(sorted(pools)))

    large = [ended.output] if len(ended.output) > finish.INLINE_BYTES else []
    return payload.keeping(conn, large, lambda kept: retrying(lambda: act(kept)))


def _is_stale(
    conn: Connection, holder: Holder, graph: dict[str, Any], merged: Sequence[str]
) -> bool:
    """Whether the run fails by nothing but a merge that is open again, or by what came after it.

    Its record may have been forgotten by the retry that opened it.
    """
    after = set[str]().union(*(shape.affected_by_remerge(graph, vertex) for vertex in merged))
    return all(
        vertex in after or status == "succeeded"
        for _, vertex, status, _, _ in step.of_runs(conn, [holder.run_id])
    )


def _park_again(
    conn: Connection,
    holder: Holder,
    graph: dict[str, Any],
    reopened: Sequence[tuple[int, str]],
    grace_s: float,
) -> bool:
    """Forget the merge and what came after it; the run waits for its children once more.

    False, and nothing forgotten, when the run is not ours any more or was asked to stop.
    """
    row = conn.execute(
        spawn.SQL.park,
        {
            "parent": holder.run_id,
            "worker": holder.worker,
            "claim_no": holder.claim_no,
            "fanouts": [fanout for fanout, _ in reopened],
            "grace_s": grace_s,
        },
    ).fetchone()
    if row is None:
        return False
    for _, vertex in reopened:
        steps = sorted(shape.affected_by_remerge(graph, vertex))
        conn.execute(
            retry.SQL.forget_steps, {"ids": [holder.run_id] * len(steps), "vertices": steps}
        )
    return True


def seal_short(conn: Connection, holder: Holder, fanout: spawn.Fanout) -> tuple[int, Settled]:
    """The fan-out ended before its list did (fail-fast, cancel): what exists is what there is.

    Returns (children that exist, what follows). Raises LostRunError.
    """

    def act() -> tuple[int, Settled]:
        with transaction(conn):
            conn.execute(spawn.SQL.lock, {"fanout": fanout.id})
            spawn.fence(conn, holder)
            last = conn.execute(spawn.SQL.beyond, {"base": fanout.base, "n": 0}).fetchone()
            n = 0 if last is None else int(last[0]) + 1
            conn.execute(spawn.SQL.seal, {"fanout": fanout.id, "n": n})
            return n, finish.settled(finish.send_settle(conn, [fanout.id]))

    return retrying(act)


def stop_parent(conn: Connection, holder: Holder) -> bool:
    """A running parent was asked to stop: True if it now waits for children that are alive."""

    def act() -> bool:
        with transaction(conn):
            conn.execute(cancel.SQL.lock_fanouts, {"ids": [holder.run_id]})
            cancel.seal_stopped(conn, [holder.run_id], holder.worker)
            row = conn.execute(
                cancel.SQL.park_cancelling,
                {"parent": holder.run_id, "worker": holder.worker, "claim_no": holder.claim_no},
            ).fetchone()
            return row is not None

    return retrying(act)
