"""C11: a million finished runs with steps and logs, of fifty pipelines, and 2,000 queued ones.

What must hold is asked of plans and buffers, not of a clock: taking work, the run list (first,
filtered and last page), a pipeline's page, switching a trigger off. None of them may read all runs.
`python -m bench history` measures the times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.database import Databases
from support.lab import Lab
from support.plans import Plan, Recorder, explain, explain_as_sent

from bench.history import load
from suimon.db.connect import connect
from suimon.run import claim, pages, pause

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("c11"),
]
RUNS = 1_000_000
#: Pages of 8 KB that one request may touch: the table has more than a hundred thousand.
FEW = 25_000


@pytest.fixture(scope="module")
def history(databases: Databases) -> Iterator[Lab]:
    with databases.fresh() as url, connect(url, name="history") as conn:
        lab = Lab(conn)
        load(conn, RUNS)
        yield lab


def _plans(lab: Lab, act: Callable[[], Any]) -> list[Plan]:
    """Of every statement that an act sends which reads or writes rows."""
    recorder = Recorder(lab.conn)
    with lab.conn.transaction(force_rollback=True):
        act()
    sent, recorder.sent = list(recorder.sent), []
    words = ("select", "with", "insert", "update", "delete")
    return [
        explain_as_sent(lab.conn, query, params)
        for query, params in sent
        if str(query).lstrip().startswith(words)
    ]


def test_c11_taking_work_beside_a_million_finished_runs(history: Lab) -> None:
    """Ten of the 2,000 queued ones."""
    worker = history.worker()
    floors = {f"floor{p}": 0 for p in range(4)}
    given = {"pool": "default", "worker": worker, "n": 10, "capped": False, **floors}
    plan = explain(history.conn, claim.SQL.claim, given)
    assert plan.tree["Actual Rows"] == 10
    assert plan.scans("Seq Scan") == set()
    assert plan.buffers < 1_000


@pytest.mark.parametrize("page", ["first", "filtered", "last", "of one", "pipelines", "pipeline"])
def test_c11_no_page_reads_all_runs(history: Lab, page: str) -> None:
    """Each page of the list, the list of pipelines, and one of them."""
    oldest = history.one("select id::text from suimon.runs order by id limit 1 offset 60")
    acts: dict[str, Callable[[], Any]] = {
        "first": lambda: pages.runs(history.conn),
        "filtered": lambda: pages.runs(history.conn, pipeline="p7", statuses=["failed"]),
        "last": lambda: pages.runs(history.conn, before=oldest),
        "of one": lambda: pages.runs(history.conn, pipeline="p7"),
        "pipelines": lambda: pages.pipelines(history.conn),
        "pipeline": lambda: pages.pipeline(history.conn, "p7"),
    }
    found = acts[page]()
    assert found
    for plan in _plans(history, acts[page]):
        assert "runs" not in plan.scans("Seq Scan"), plan.tree
        assert plan.buffers < FEW, (page, plan.buffers)


def test_c11_a_trigger_is_switched_off(history: Lab) -> None:
    """And on again, with what a resume does for runs that were held back."""
    trigger = history.one("select id from suimon.triggers where pipeline = 'p7'")
    for act in (pause.pause, pause.resume):
        for plan in _plans(history, lambda act=act: act(history.conn, f"trigger:{trigger}", "me")):
            assert plan.scans("Seq Scan").isdisjoint({"runs", "steps", "logs"}), plan.tree
            assert plan.buffers < 1_000
