"""What operators ask for, whole: given ids, a plan, the act, and the answer for programs.

Command line and HTTP call these, so that both do the same and answer with the same names. The acts
themselves are ``retry``'s, ``again``'s and ``operate``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from suimon.db.connect import Connection
from suimon.errors import Conflict, InputRefused
from suimon.run import again, operate, read
from suimon.run import retry as retrying

#: The states of which a retry or a cancel by filter takes runs.
BAD: Final = ("failed", "timed_out", "cancelled")
LIVE: Final = ("queued", "running", "waiting")
#: Runs that are cancelled at once by their ids.
MANY_IDS: Final = 1000


def whole_ids(conn: Connection, given: Sequence[str]) -> list[str]:
    """Each once, in the order given; beginnings of ids are completed."""
    return list(dict.fromkeys(read.resolve(conn, one) for one in given))


def retry(
    conn: Connection,
    ids: Sequence[str],
    *,
    actor: str,
    why: str = "",
    failed_children: bool = False,
    step: str | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Run these again: whole, their failed children, or one step of one of them."""
    if step is not None:
        return _retry_step(conn, ids, step, actor, why, dry_run=dry_run)
    plan = retrying.plan(conn, ids, failed_children=failed_children)
    answer = {**plan.to_json(), "dry_run": dry_run}
    if not dry_run:
        answer["retried"] = retrying.apply(conn, plan, actor=actor, why=why)
    return answer


def _retry_step(
    conn: Connection, ids: Sequence[str], step: str, actor: str, why: str, *, dry_run: bool
) -> dict[str, Any]:
    if len(ids) != 1:
        msg = "a step is retried in one run at a time"
        raise InputRefused(msg, path="step")
    plan = again.plan(conn, ids[0], step)
    if not dry_run:
        again.apply(conn, plan, actor=actor, why=why)
    return {**plan.to_json(), "dry_run": dry_run}


def cancel(
    conn: Connection, ids: Sequence[str], *, actor: str, why: str = "", dry_run: bool = False
) -> dict[str, Any]:
    """Ask these to stop. Raises Conflict when every one of them is over already."""
    if len(ids) > MANY_IDS:
        msg = f"at most {MANY_IDS:,} runs are cancelled at once by their ids"
        raise InputRefused(msg, path="id", hint="For more, use a filter.")
    answer: dict[str, Any] = {"dry_run": True} if dry_run else {}
    if not dry_run:
        asked = operate.cancel(conn, ids, actor=actor, why=why)
        if asked.asked == 0:
            status = read.run(conn, ids[0]).status
            msg = f"run {ids[0]} is over already: {status}"
            raise Conflict(msg, run_id=ids[0])
        answer = {"asked": asked.asked, "over": asked.over}
    states = [{"id": one, "status": read.run(conn, one).status} for one in ids]
    return {**answer, "runs": states}
