"""Runs that have ended, old and furnished with all that runs leave; what is left of them."""

from __future__ import annotations

import time
from typing import Any

from support.lab import Lab, Parent

TABLES = (
    "steps", "attempts", "payloads", "logs", "checkpoints", "artifacts", "signals", "approvals",
    "progress",
)  # fmt: skip


def ended(lab: Lab, pipeline: str, n: int, status: str = "succeeded") -> list[str]:
    """Runs of this pipeline that have ended, oldest first."""
    worker = lab.worker()
    runs = []
    for _ in range(n):
        runs.append(lab.submit(pipeline))
        lab.end(worker, lab.claim_run(worker, runs[-1]), status)
    return runs


def tree(lab: Lab, pipeline: str = "trees", n: int = 3) -> Parent:
    """A parent with n children, all ended."""
    worker = lab.worker()
    parent = lab.fan_out(worker, pipeline, n)
    while rows := lab.claim(worker, 100):
        lab.end(worker, rows)
        if any(row.id == parent.id for row in rows):
            break
    assert lab.status(parent.id) == "succeeded"
    return parent


def grow_old(lab: Lab, *runs: str, days: int = 2) -> None:
    """As if they had begun and ended so many days ago (ids keep their time: it only bounds)."""
    for run in runs:
        lab.sql(
            "update suimon.runs set finished_at = finished_at - make_interval(days => %s),"
            " created_at = created_at - make_interval(days => %s) where id = %s",
            days, days, run,
        )  # fmt: skip


def furnish(lab: Lab, run: str) -> None:
    """One row of everything that a run may leave behind."""
    lab.sql("insert into suimon.steps (run_id, vertex, status, attempt, claim_no)"
            " values (%s, 'x', 'succeeded', 1, 1) on conflict do nothing", run)  # fmt: skip
    lab.sql("insert into suimon.attempts (run_id, claim_no, vertex, attempt, how)"
            " values (%s, 99, 'x', 1, 'failed')", run)  # fmt: skip
    lab.sql("insert into suimon.payloads (run_id, name, sha256)"
            " values (%s, 'extra', suimon.keep_text('1'))", run)  # fmt: skip
    lab.sql(
        "insert into suimon.logs (run_id, claim_no, stream, body) values (%s, 1, 'log', 'x')", run
    )
    lab.sql("insert into suimon.checkpoints (run_id, vertex, name, value, claim_no)"
            " values (%s, 'x', 'y', '1', 1)", run)  # fmt: skip
    lab.sql("insert into suimon.artifacts (run_id, vertex, name, sha256, claim_no)"
            " values (%s, 'x', 'y', suimon.keep_text('z'), 1)", run)  # fmt: skip
    lab.sql("insert into suimon.signals (run_id, name, sent_by) values (%s, 's', 'me')", run)
    lab.sql("insert into suimon.approvals (run_id, vertex, pipeline) values (%s, 'x', 'p')", run)
    lab.sql("insert into suimon.progress (run_id, done, total) values (%s, 1, 2)", run)


def left(lab: Lab) -> dict[str, int]:
    """Rows of everything that hangs on runs, tables without any left out."""
    found = {}
    for table in (*TABLES, "runs", "fanouts", "flows"):
        count = lab.one(f"select count(*) from suimon.{table}")
        if count:
            found[table] = count
    return found


def unreachable(lab: Lab) -> list[Any]:
    """Runs without their root or parent, fan-outs without parent, things without a run."""
    wrong = lab.sql(
        "select r.id::text from suimon.runs r"
        " where not exists (select from suimon.runs t where t.id = r.root_id)"
        " or (r.fanout_id is not null"
        "     and not exists (select from suimon.fanouts f where f.id = r.fanout_id))"
        " union all select f.base::text from suimon.fanouts f"
        " where not exists (select from suimon.runs p where p.id = f.parent_id)"
    )
    for table in TABLES:
        wrong += lab.sql(
            f"select '{table} ' || x.run_id from suimon.{table} x"
            " where not exists (select from suimon.runs r where r.id = x.run_id)"
        )
    return wrong


def older_id(lab: Lab, run: str, days: int = 2) -> str:
    """The run gets the id, and the times, that it would have had then."""
    stamp = f"{int((time.time() - days * 86400) * 1000):012x}"
    aged = f"{stamp[:8]}-{stamp[8:12]}{run[13:]}"
    lab.sql("set session_replication_role = replica")
    lab.sql("update suimon.runs set id = %s, root_id = %s where id = %s", aged, aged, run)
    for table in TABLES:
        lab.sql(f"update suimon.{table} set run_id = %s where run_id = %s", aged, run)
    lab.sql(
        "update suimon.fanouts set parent_id = %s, root_id = %s where parent_id = %s",
        aged,
        aged,
        run,
    )
    lab.sql(
        "update suimon.runs set parent_id = %s, root_id = %s where parent_id = %s", aged, aged, run
    )
    lab.sql("set session_replication_role = origin")
    grow_old(lab, aged, days=days)
    return aged
