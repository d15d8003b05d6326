"""Triggers that stop after bad ends in a row, and go on after a good one or somebody's word."""

from __future__ import annotations

import pytest
from support.lab import Lab

from suimon.duties import sweep
from suimon.run import pause

EVERY_MINUTE = [{"type": "CRON", "cron": "* * * * *"}]


def fail(lab: Lab, pipeline: str, status: str = "failed") -> str:
    """A run that nobody's trigger started ends like this."""
    worker = lab.worker()
    row = lab.claim_run(worker, lab.submit(pipeline))
    lab.end(worker, row, status)
    return row.id


@pytest.fixture
def failing(lab: Lab) -> Lab:
    lab.pipeline("p", triggers=EVERY_MINUTE, pauseAfter=3)
    return lab


def test_enough_bad_ends_in_a_row_stop_the_triggers_once(failing: Lab) -> None:
    failing.sql(
        "insert into suimon.channels (name, kind, target, kinds)"
        " values ('c', 'webhook', 'http://127.0.0.1:9/', array['pipeline.*'])"
    )
    runs = [fail(failing, "p"), fail(failing, "p", "timed_out")]
    assert pause.check(failing.conn, "p") == 0
    runs.append(fail(failing, "p"))
    assert pause.check(failing.conn, "p") == 1
    assert pause.check(failing.conn, "p") == pause.check(failing.conn) == 0
    (found,) = pause.listed(failing.conn)
    assert (found["what"], found["automatic"], found["by"]) == ("triggers:p", True, "suimon")
    assert found["runs"] == runs
    assert all(run in found["why"] for run in runs)
    assert "3 of them started by hand, which count too" in found["why"]
    (notice,) = failing.sql("select kind, payload ->> 'why' from suimon.notices")
    assert notice == ("pipeline.paused", found["why"])


def test_cancelled_runs_count_neither_way_and_a_good_one_ends_the_row(failing: Lab) -> None:
    ends = ["failed", "failed", "succeeded", "failed", "cancelled", "failed"]
    for status in ends:
        fail(failing, "p", status)
    assert pause.check(failing.conn, "p") == 0
    fail(failing, "p", "cancelled")
    assert pause.check(failing.conn, "p") == 0
    fail(failing, "p")
    assert pause.check(failing.conn, "p") == 1


def test_a_pipeline_without_triggers_or_that_never_pauses_goes_on(lab: Lab) -> None:
    lab.pipeline("bare", pauseAfter=1)
    lab.pipeline("never", triggers=EVERY_MINUTE, pauseAfter="never")
    fail(lab, "bare")
    for _ in range(6):
        fail(lab, "never")
    assert pause.check(lab.conn) == 0


def test_five_is_the_number_where_nobody_said_one(lab: Lab) -> None:
    lab.pipeline("p", triggers=EVERY_MINUTE)
    for _ in range(4):
        fail(lab, "p")
    assert pause.check(lab.conn) == 0
    fail(lab, "p")
    assert pause.check(lab.conn) == 1


def test_a_good_end_by_hand_lifts_it_and_a_bad_one_does_not(failing: Lab) -> None:
    for _ in range(3):
        fail(failing, "p")
    assert pause.check(failing.conn, "p") == 1
    fail(failing, "p")
    assert pause.check(failing.conn, "p") == 0
    fail(failing, "p", "succeeded")
    assert pause.check(failing.conn, "p") == 1
    assert pause.listed(failing.conn) == []
    fail(failing, "p")
    fail(failing, "p")
    assert pause.check(failing.conn, "p") == 0, "counted anew"


def test_a_good_end_of_a_triggers_run_does_not_lift_it(failing: Lab) -> None:
    worker = failing.worker()
    run = failing.submit("p")
    failing.sql(
        "insert into suimon.deliveries (id, trigger_id, state, ended_at, run_id, source)"
        " select suimon.uuid7(), id, 'delivered', now(), %s, 'x' from suimon.triggers",
        run,
    )
    row = failing.claim_run(worker, run)  # under way while the others fail
    failing.sql("update suimon.lanes set lane_limit = 9")
    for _ in range(3):
        failing.sql("delete from suimon.lanes")
        worst = failing.submit("p")
        failing.sql(
            "update suimon.runs set lane = null, lane_limit = null, admitted = true where id = %s",
            worst,
        )
        failing.end(worker, failing.claim_run(worker, worst), "failed")
    assert pause.check(failing.conn, "p") == 1
    failing.end(worker, row)
    assert pause.check(failing.conn, "p") == 0
    assert len(pause.listed(failing.conn)) == 1


def test_an_operators_resume_counts_from_zero(failing: Lab) -> None:
    for _ in range(3):
        fail(failing, "p")
    pause.check(failing.conn)
    pause.resume(failing.conn, "pipeline:p", "me", triggers_only=True)
    fail(failing, "p")
    fail(failing, "p")
    assert pause.check(failing.conn) == 0
    fail(failing, "p")
    assert pause.check(failing.conn) == 1


def test_a_pause_that_somebody_took_over_is_not_lifted_by_a_good_end(failing: Lab) -> None:
    for _ in range(3):
        fail(failing, "p")
    pause.check(failing.conn)
    taken = pause.pause(failing.conn, "pipeline:p", "me", "looking", triggers_only=True)
    assert taken["changed"]
    fail(failing, "p", "succeeded")
    assert pause.check(failing.conn) == 0
    assert len(pause.listed(failing.conn)) == 1


def test_the_sweep_asks_too(failing: Lab) -> None:
    """So that it shows when nothing arrives."""
    for _ in range(3):
        fail(failing, "p")
    failing.sql("update suimon.triggers set next_at = null")
    failing.sql("update suimon.duties set next_at = clock_timestamp() where name = 'pauses'")
    assert sweep.run(failing.conn, None) >= 1
    assert pause.listed(failing.conn)[0]["automatic"]
