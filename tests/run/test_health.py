"""What `suimon status` counts, on a database in the states that a verdict has to tell apart."""

from __future__ import annotations

from typing import Any

import pytest
from support.lab import SPAWN_GRAPH, Lab
from support.plans import explain

from suimon.run import health, pause

TRIGGERS = [{"type": "EVENT", "event": "order.*"}]


@pytest.fixture(autouse=True)
def done(lab: Lab) -> None:
    """The duties were done a moment ago, however old the database is."""
    lab.sql("update suimon.duties set last_at = now()")


def level(lab: Lab) -> tuple[str, str]:
    judged = health.overall(lab.conn)["verdict"]
    return judged["level"], judged["sentence"]


def age(lab: Lab, seconds: int, where: str = "true") -> None:
    """These runs were made so long ago."""
    lab.sql(
        f"update suimon.runs set created_at = created_at - interval '{seconds} s' where {where}"
    )


def pool_of(found: dict[str, Any], name: str = "default") -> dict[str, Any]:
    return next(one for one in found["pools"] if one["pool"] == name)


def test_ready_runs_without_a_worker_are_slow_and_then_stopped(lab: Lab) -> None:
    lab.pipeline("p")
    lab.submit_many("p", 3)
    assert level(lab)[0] == "slow"
    age(lab, 200)
    assert level(lab) == (
        "stopped",
        "pool default has 3 runs ready and no live worker for 3 m 20 s",
    )
    found = health.overall(lab.conn)
    assert not found["ok"]
    assert found["counts"]["pools_without_workers"] == 1


def test_a_pool_that_is_paused_is_held_and_fine(lab: Lab) -> None:
    lab.pipeline("p")
    lab.submit_many("p", 3)
    age(lab, 200)
    pause.pause(lab.conn, "pool:default", "me")
    assert level(lab) == ("held", "on purpose: 3 paused:pool:default")
    assert health.overall(lab.conn)["ok"]


def test_a_paused_pipelines_runs_are_not_ready_wherever_they_are(lab: Lab) -> None:
    """In the queue and not met yet, held back, and behind its lane."""
    lab.pipeline("p")
    lab.pipeline("serial", concurrency=1)
    lab.submit_many("p", 3)
    lab.submit_many("serial", 2)
    age(lab, 200)
    worker = lab.worker()
    for name in ("p", "serial"):
        pause.pause(lab.conn, f"pipeline:{name}", "me")
    rows = lab.claim(worker, 2)
    made = lab.batch(worker, [])
    made.held_back = [(r.id, r.claim_no, f"paused:{r.paused}") for r in rows]
    from suimon.worker import batch as batches

    batches.execute(lab.conn, made)
    found = health.overall(lab.conn)
    assert pool_of(found)["ready"] == 0
    assert level(lab)[0] == "held"
    told = {one["reason"]: one["runs"] for one in found["held"]}
    assert told == {"paused:pipeline:p": 3, "paused:pipeline:serial": 2}


def test_a_full_pool_is_saturated_and_a_stuck_one_is_stopped(lab: Lab) -> None:
    """The starts that workers say with their beats tell one from the other."""
    lab.pipeline("p")
    worker = lab.worker()
    lab.submit_many("p", 6)
    lab.claim(worker, 2)
    age(lab, 200)
    assert "full of long runs: 2 in 2 slots, 4 wait; the longest is" in level(lab)[1]
    lab.sql("update suimon.workers set starts = 50, ends = 40")
    assert level(lab) == (
        "slow",
        "pool default is saturated: 50 started in the last minute, 4 wait, about 6 s",
    )
    lab.sql("update suimon.workers set starts = 0, slots = 5")
    assert level(lab)[0] == "stopped"
    assert "3 free slots, and nothing was started in the last minute" in level(lab)[1]


@pytest.mark.parametrize("how", ["dead = true, left_at = beat_at", "beat = beat"])
def test_runs_whose_worker_is_gone_are_lost(lab: Lab, how: str) -> None:
    """Dead, or alive in the table and silent."""
    lab.pipeline("p")
    lab.submit("p")
    worker = lab.worker()
    lab.claim(worker)
    assert health.overall(lab.conn)["counts"]["lost"] == 0
    lab.sql(f"update suimon.workers set beat_at = beat_at - interval '200 s', {how}")
    lab.sql("update suimon.workers set left_at = beat_at where dead")
    assert level(lab) == (
        "stopped",
        "1 run of dead workers is not taken back, for 3 m 20 s",
    )
    assert health.overall(lab.conn)["counts"]["lost"] == 1


def test_duties_that_nobody_does(lab: Lab) -> None:
    lab.pipeline("p", triggers=TRIGGERS)
    worker = lab.worker()
    lab.submit("p")
    lab.claim(worker)
    lab.sql("update suimon.duties set last_at = now()")
    assert level(lab)[0] == "ok"
    lab.sql("update suimon.duties set last_at = now() - interval '10 m' where name = 'doors'")
    assert level(lab) == ("stopped", 'nobody keeps the duties: "doors" was not done for 10 m')
    assert any("duty doors" in one for one in health.overall(lab.conn)["problems"])


def test_deliveries_that_wait(lab: Lab) -> None:
    """For nobody's reason: stopped; for a pause: held; for a full pipeline: neither."""
    lab.pipeline("p", triggers=TRIGGERS)
    lab.sql(
        "insert into suimon.deliveries (id, trigger_id, state, source, arrived_at)"
        " select suimon.uuid7(), id, 'waiting', 'x', now() - interval '6 m' from suimon.triggers"
    )
    assert level(lab) == (
        "stopped",
        "deliveries do not become runs: 1 waits, the oldest for 6 m",
    )
    pause.pause(lab.conn, "pipeline:p", "me", triggers_only=True)
    assert level(lab) == ("held", "on purpose: 1 paused:triggers:p (deliveries)")
    pause.resume(lab.conn, "pipeline:p", "me")
    lab.sql("update suimon.triggers set retry_at = now() + interval '10 s'")
    assert level(lab)[0] == "ok"


def test_what_waits_for_a_time_is_named_with_it(lab: Lab) -> None:
    lab.pipeline("p")
    worker = lab.worker()
    row = lab.claim_run(worker, lab.submit("p"))
    lab.again(worker, row, 3600.0)
    found, sentence = level(lab)
    assert found == "held"
    assert sentence.startswith("nothing can run now: 1 retry (the first at ")
    assert health.overall(lab.conn)["counts"]["waiting"] == 1


def test_a_waiting_parent_with_running_children_is_ok(lab: Lab) -> None:
    lab.pipeline("parents", SPAWN_GRAPH)
    worker = lab.worker()
    lab.fan_out(worker, "parents", 3)
    assert level(lab)[0] == "ok"


def test_an_idle_system_names_its_next_start(lab: Lab) -> None:
    lab.pipeline("p", triggers=[{"type": "CRON", "cron": "0 2 * * *"}])
    lab.sql("update suimon.triggers set next_at = '2030-01-01T02:00:00Z'")
    lab.sql("update suimon.duties set last_at = now()")
    assert level(lab) == (
        "idle",
        "nothing is queued and nothing runs, next start at 2030-01-01T02:00:00+00:00",
    )


def test_a_start_in_the_past_is_due_and_not_the_next(lab: Lab) -> None:
    """As after a first deploy without a worker."""
    lab.pipeline("p", triggers=[{"type": "EVERY", "every": "1h"}])
    lab.sql("update suimon.triggers set next_at = clock_timestamp() - interval '125 s'")
    lab.sql("update suimon.duties set last_at = now()")
    found = health.overall(lab.conn)
    assert (found["next_start_at"], found["start_due_s"] >= 125) == (None, True)
    sentence = "nothing is queued and nothing runs; a start has been due for 2 m 5 s"
    assert level(lab) == ("idle", sentence)


def test_the_oldest_is_one_that_never_began_where_there_is_one(lab: Lab) -> None:
    """A run that waited three days for a signal and is ready now has not been ready for so long."""
    lab.pipeline("p")
    worker = lab.worker()
    row = lab.claim_run(worker, lab.submit("p"))
    age(lab, 300_000)
    lab.again(worker, row)
    lab.sql("update suimon.runs set status = 'queued', reason = null, wake_at = null")
    lab.submit("p")
    assert pool_of(health.overall(lab.conn))["oldest_s"] < 100


def test_counts_stop_at_their_bounds(lab: Lab) -> None:
    lab.pipeline("p", maxQueued="unlimited")
    lab.submit_many("p", 5000)
    lab.submit_many("p", 5000)
    lab.submit_many("p", 100)
    found = health.overall(lab.conn)
    assert (pool_of(found)["ready"], pool_of(found)["more"]) == (10_000, True)
    assert "ready" in found["counts"]["more"]


def test_no_statement_walks_the_table_of_runs(lab: Lab) -> None:
    """20,000 finished runs: their pages are not what an answer costs."""
    lab.pipeline("p", triggers=TRIGGERS)
    lab.submit_many("p", 20)
    graph = lab.one("select graph_id from suimon.pipelines")
    lab.sql("alter table suimon.runs disable trigger user")
    lab.sql(
        "insert into suimon.runs (id, root_id, rank, graph_id, pipeline, pool, status, finished_at)"
        " select id, id, 1, %s, 'p', 'default', 'succeeded', now()"
        " from (select suimon.uuid7() as id from generate_series(1, 20000)) x",
        graph,
    )
    lab.sql("alter table suimon.runs enable trigger user")
    lab.sql("vacuum analyze suimon.runs")
    for name, text in health.SQL.items():
        plan = explain(lab.conn, text, {"seconds": 300.0})
        assert "runs" not in plan.scans("Seq Scan"), (name, plan.tree)
        assert plan.buffers < 300, (name, plan.buffers)
