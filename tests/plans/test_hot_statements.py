"""Each hot statement, on an empty table and on 100,000 rows, walks the index it should.

A plan frozen on an empty table, or for one lucky parameter, costs half the speed or more; the
worker's connection therefore has generic plans, and these tests hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.lab import Lab, Parent
from support.plans import Plan, Recorder, explain, new_runs

from suimon.duties import sweep
from suimon.run import claim, finish, lane, rescue, spawn, step, submit, wake
from suimon.run.claim import Claimed
from suimon.worker import batch as batches

#: Nobody here measures the disk.
TAKE = {"disk_free": None, "disk_total": None}
SMALL = {
    "pools", "workers", "lanes", "duties", "pipelines", "graphs", "flows", "fanouts", "meta",
    "channels", "store", "store_usage", "store_holds", "pool_caps",
}  # fmt: skip


@pytest.fixture(params=["empty", "full"])
def any_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The engine on no rows but a test's own few, and on 100,000; all is undone in the end."""
    lab: Lab = request.getfixturevalue("full" if request.param == "full" else "lab")
    if request.param == "empty":
        lab.pipeline("parents")
        lab.pipeline("p")
        lab.pipeline("serial", concurrency=1)
    with lab.conn.transaction(force_rollback=True):
        yield lab


def _plans(lab: Lab, act: Callable[[], object], *queries: str) -> list[Plan]:
    """The plans of these statements with the parameters that `act` sends, before it is done."""
    recorder = Recorder(lab.conn)
    with lab.conn.transaction(force_rollback=True):
        act()
    plans = [explain(lab.conn, query, recorder.params(query)) for query in queries]
    for plan in plans:
        assert plan.scans("Seq Scan") <= SMALL, plan.tree
        assert plan.kinds().isdisjoint({"Bitmap Heap Scan", "Hash Join", "Merge Join"}), plan.tree
    return plans


def _running(lab: Lab, n: int = 300) -> tuple[int, Parent, list[Claimed]]:
    """A worker that holds the n children of a parent."""
    worker = lab.worker()
    parent = lab.fan_out(worker, "parents", n)
    lab.sql("update suimon.runs set rank = -1 where fanout_id = %s", parent.fanout.id)
    return worker, parent, lab.claim(worker, n, floors=[-1, -1, -1, -1])


def test_the_claim_walks_the_ready_index(any_lab: Lab) -> None:
    """One probe a priority, and the update by the primary key."""
    worker = any_lab.worker()
    (plan,) = _plans(any_lab, lambda: any_lab.claim(worker, 500), claim.SQL.claim)
    assert plan.on("runs") == {"runs_ready", "runs_pkey"}


def test_a_capped_claim_counts_what_is_held_by_its_index(any_lab: Lab) -> None:
    """Three workers of the pool hold 300 runs: the same plan, at most a page for each."""
    holders = [_running(any_lab, 100)[0] for _ in range(3)]
    any_lab.sql("insert into suimon.pool_caps (name, cap) values ('default', 1000)")
    recorder = Recorder(any_lab.conn)
    with any_lab.conn.transaction(force_rollback=True):
        any_lab.claim(holders[0], 10, capped=True)
    given = recorder.params(claim.SQL.claim)
    capped = explain(any_lab.conn, claim.SQL.claim, given)
    any_lab.sql("delete from suimon.pool_caps")
    free = explain(any_lab.conn, claim.SQL.claim, given)
    assert capped.on("runs") == free.on("runs") == {"runs_ready", "runs_pkey"}
    assert capped.buffers <= free.buffers + 300, (capped.buffers, free.buffers)


def test_finish_and_settle_use_primary_keys_only(any_lab: Lab) -> None:
    """Above all not `runs_held`, which the planner takes for one row (finding 7)."""
    worker, _, rows = _running(any_lab)
    finished, settled = _plans(
        any_lab, lambda: any_lab.end(worker, rows), finish.SQL.finish, finish.SQL.settle
    )
    assert finished.on("runs") == {"runs_pkey"}
    assert finished.on("fanouts") <= {"fanouts_pkey", "fanouts_open"}
    assert settled.on("runs") <= {"runs_pkey", "runs_cancelling"}  # both by id
    assert settled.on("fanouts") <= {"fanouts_pkey", "fanouts_open"}
    removed = sum(n.get("Rows Removed by Join Filter", 0) for n in finished.nodes())
    assert removed <= len(rows), "no loop of all rows over all rows"
    assert finished.buffers < 40 * len(rows) + 200


def test_the_other_ends_of_a_claim_use_the_primary_key(any_lab: Lab) -> None:
    """Tries that come again, what goes back, what a dead slot held, and records of steps."""
    worker, _, rows = _running(any_lab)
    made = any_lab.batch(worker, [])
    made.again = [finish.Again(r.id, r.claim_no, 1.0, "failed", "", "{}") for r in rows[:50]]
    made.released = [(r.id, r.claim_no) for r in rows[50:100]]
    made.interrupted = [(r.id, r.claim_no) for r in rows[100:150]]
    made.held_back = [(r.id, r.claim_no, "no_code:m:f") for r in rows[150:200]]
    made.steps = [step.Step(r.id, r.claim_no, "v", "succeeded", 1, "{}", "") for r in rows[200:250]]
    queries = (
        finish.SQL.retry_later, claim.SQL.release, rescue.SQL.interrupt, claim.SQL.hold_back,
        step.SQL.record,
    )  # fmt: skip
    for plan in _plans(any_lab, lambda: batches.execute(any_lab.conn, made), *queries):
        assert plan.on("runs") == {"runs_pkey"}, plan.tree
        removed = sum(n.get("Rows Removed by Join Filter", 0) for n in plan.nodes())
        assert removed <= 50 * 50


def test_admission_counts_and_finds_by_index_and_updates_by_id_alone(any_lab: Lab) -> None:
    """The live, the waiting, the primary key: another predicate tempts it (a tenth as fast)."""
    for _ in range(3):
        any_lab.submit_only("serial")
    (plan,) = _plans(any_lab, lambda: lane.admit(any_lab.conn, ["pipeline:serial"]), lane.SQL.admit)
    assert plan.on("runs") <= {"runs_lane_live", "runs_lane_one", "runs_lane_waiting", "runs_pkey"}
    updated = [
        n
        for n in plan.nodes()
        if n["Node Type"] == "ModifyTable" and n.get("Relation Name") == "runs"
    ]
    inner = [
        n["Index Name"]
        for top in updated
        for n in _below(top)
        if n.get("Relation Name") == "runs" and "Index Name" in n
    ]
    assert inner == ["runs_pkey"]


def _below(node: dict[str, object]) -> Iterator[dict[str, object]]:
    for child in node.get("Plans", []):  # type: ignore[attr-defined]
        yield child
        yield from _below(child)


def test_a_chunk_and_its_check_use_the_primary_key(any_lab: Lab) -> None:
    """A thousand children: inserted without a look, then each looked up by its id."""
    worker = any_lab.worker()
    parent = any_lab.parent(worker, "parents")
    # sent twice, as by a spawner that is read again: only then is there something to check
    chunk, check = _plans(
        any_lab,
        lambda: [any_lab.chunk(parent, 0, 1000) for _ in range(2)],
        spawn.SQL.chunk,
        spawn.SQL.check,
    )
    assert chunk.on("runs") == set()
    assert check.on("runs") == {"runs_pkey"}


@pytest.mark.parametrize("n", [1, 1000])
def test_submit_reads_heads_and_the_pipelines_last_rank(any_lab: Lab, n: int) -> None:
    """Never the queue's head by the index: the pools row says it."""
    recorder = Recorder(any_lab.conn)
    with any_lab.conn.transaction(force_rollback=True):
        any_lab.submit_many("p", n)
    params = recorder.params(submit.SQL.submit)
    plan = explain(any_lab.conn, new_runs(any_lab.conn), params)
    assert plan.on("runs") <= {"runs_queued_roots"}


def test_what_beats_and_sweeps_read_is_found_by_index(any_lab: Lab) -> None:
    """The heartbeat with its question for cancels, and the statement of an idle sweep."""
    worker = any_lab.worker()
    any_lab.sql("update suimon.duties set next_at = clock_timestamp()")
    (beat,) = _plans(
        any_lab, lambda: rescue.beat(any_lab.conn, worker, draining=False), rescue.SQL.beat
    )
    assert beat.on("runs") <= {"runs_held", "runs_cancelling", "runs_held_back"}
    taken = explain(any_lab.conn, sweep.SQL.take, TAKE | {"worker": worker})
    assert taken.scans("Seq Scan") <= SMALL, taken.tree
    assert taken.buffers < 1000, "each question is a probe of one partial index"


@pytest.mark.parametrize("query", ["due", "orphans", "holdings", "waiting_lanes"])
def test_what_the_rare_ones_read_is_found_by_index(any_lab: Lab, query: str) -> None:
    """Timers, a dead worker's runs, what a worker holds, lanes with somebody behind them."""
    worker = any_lab.worker()
    text, params = {
        "due": (wake.SQL.due, {}),
        "orphans": (rescue.SQL.orphans, {}),
        "holdings": (claim.SQL.holdings, {"worker": worker}),
        "waiting_lanes": (lane.SQL.waiting_lanes, {"after": ""}),
    }[query]
    plan = explain(any_lab.conn, text, params)
    assert plan.scans("Seq Scan") <= SMALL, plan.tree
    assert plan.buffers < 1000, "not the table: that has several thousand pages"
