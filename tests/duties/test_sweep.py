"""The slow sweep: one statement when there is nothing, and all again that was left undone."""

from __future__ import annotations

import logging

import pytest
from support.lab import Lab
from support.plans import Recorder

from suimon.db.connect import Connection, connect
from suimon.duties import sweep
from suimon.run import cancel, lane, rescue

#: Nobody here measures the disk.
TAKE = {"disk_free": None, "disk_total": None}


@pytest.fixture
def worker(lab: Lab) -> int:
    """One worker, a serial pipeline and one that spawns; all duties are due."""
    lab.pipeline("parents")
    lab.pipeline("serial", concurrency=1)
    lab.sql("update suimon.duties set next_at = clock_timestamp() - interval '1 second'")
    return lab.worker()


def test_an_idle_sweep_is_one_statement(lab: Lab, worker: int) -> None:
    """All duties fall due, none has work: they are taken, and nothing else is said."""
    recorder = Recorder(lab.conn)
    assert sweep.run(lab.conn, worker) == 0
    assert [query for query, _ in recorder.sent] == [sweep.SQL.take]
    assert lab.one(
        "select count(*) from suimon.duties where last_worker = %s and next_at > now()", worker
    ) == len(sweep.DUTIES)


def test_the_duties_of_the_table_are_those_of_the_code(lab: Lab) -> None:
    """By name."""
    assert {row[0] for row in lab.sql("select name from suimon.duties")} == set(sweep.DUTIES)


def test_of_two_sweeps_at_once_each_duty_is_taken_by_one(
    lab: Lab, db_url: str, worker: int
) -> None:
    """The lock is the election; the second finds nothing due."""
    with connect(db_url, name="other") as other, lab.conn.transaction():
        first = lab.conn.execute(sweep.SQL.take, TAKE | {"worker": worker}).fetchall()
        second = other.execute(sweep.SQL.take, TAKE | {"worker": worker}).fetchall()
    assert {row[0] for row in first} == set(sweep.DUTIES)
    assert second == []


def test_a_sweep_does_what_died_with_its_worker(lab: Lab, worker: int) -> None:
    """A timer, a dead worker's runs, a lane with room, a cancel half done: all at once."""
    one, two, three = (lab.submit("parents") for _ in range(3))
    rows = {row.id: row for row in lab.claim(worker, 3)}
    lab.again(worker, rows[one])
    dead = lab.worker()
    lab.sql("update suimon.runs set worker_id = %s where id = %s", dead, two)
    lab.kill(dead)
    parent = lab.parent(worker, "parents", row=rows[three])
    lab.chunk(parent, 0, 3)
    lab.seal(parent, 3)
    lab.park(parent)
    cancel._mark(lab.conn, [three])
    serial = lab.submit_only("serial")
    lab.sql("delete from suimon.lanes")
    assert sweep.run(lab.conn, worker) > 0
    assert (lab.status(one), lab.status(two), lab.status(three)) == (
        "queued",
        "queued",
        "cancelled",
    )
    assert lab.one("select admitted from suimon.runs where id = %s", serial)


def test_a_right_tally_is_left_alone(lab: Lab, worker: int) -> None:
    """Compared in one snapshot; nothing is locked and nothing written."""
    parent = lab.fan_out(worker, "parents", 5)
    lab.end(worker, lab.claim(worker, 2))
    recorder = Recorder(lab.conn)
    assert sweep.repair(lab.conn) == 0
    assert sweep.SQL.lock_fanout not in [query for query, _ in recorder.sent]
    assert lab.tally(parent) == (2, 0, 0, 0)


@pytest.mark.parametrize("wrong", [0, 1, 4])
def test_a_wrong_tally_is_mended_and_said(
    lab: Lab, worker: int, wrong: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Too few or too many: the children are right, and an error in the log says so."""
    parent = lab.fan_out(worker, "parents", 5)
    lab.end(worker, lab.claim(worker, 2))
    lab.sql("update suimon.fanouts set succeeded = %s where id = %s", wrong, parent.fanout.id)
    with caplog.at_level(logging.ERROR):
        assert sweep.repair(lab.conn) == 1
    assert "its children say (2, 0, 0, 0)" in caplog.text
    assert lab.tally(parent) == lab.recount(parent)


def test_a_mended_tally_that_is_complete_settles_and_wakes_the_parent(
    lab: Lab, worker: int
) -> None:
    """Whoever lost the count lost the wake-up with it; an idle worker hears of it."""
    parent = lab.fan_out(worker, "parents", 2)
    lab.sql("update suimon.fanouts set succeeded = -1 where id = %s", parent.fanout.id)
    lab.end(worker, lab.claim(worker, 2))
    assert lab.status(parent.id) == "waiting"
    lab.sql("listen suimon_wake")
    idle = lab.worker(idle=True)
    sweep.repair(lab.conn)
    assert lab.status(parent.id) == "queued"
    assert [n.payload for n in lab.conn.notifies(timeout=1, stop_after=1)] == [f"default {idle}"]


def test_a_parent_that_nobody_woke_is_woken(lab: Lab, worker: int) -> None:
    """Nothing should be able to cause it; the net is there all the same."""
    parent = lab.fan_out(worker, "parents", 1)
    lab.end(worker, lab.claim(worker))
    row = lab.claim(worker)[0]
    lab.sql(
        "update suimon.runs set status = 'waiting', reason = 'children', worker_id = null"
        " where id = %s",
        row.id,
    )
    assert sweep.repair(lab.conn) == 1
    assert lab.status(parent.id) == "queued"


def test_a_poisoned_child_of_a_fail_fast_merge_ends_its_siblings(lab: Lab, worker: int) -> None:
    """The rescue duty follows up on what its settle asks for."""
    from suimon.run.spawn import Policy

    parent = lab.fan_out(worker, "parents", 4, policy=Policy(fail_fast=True))
    lab.claim(worker)
    lab.sql("update suimon.runs set interruptions = 3 where status = 'running'")
    lab.kill(worker)
    sweep.rescue_dead(lab.conn)
    assert lab.tally(parent) == (0, 1, 0, 3)


def test_what_trees_leave_behind_is_dropped_after_a_minute(lab: Lab, worker: int) -> None:
    """Ranks of ended roots and lanes of settled spawns; those that live keep theirs."""
    parent = lab.fan_out(worker, "parents", 2, limit=1)
    other = lab.fan_out(worker, "parents", 1, limit=1)
    for _ in range(2):
        lab.end(worker, [row for row in lab.claim(worker, 9) if row.fanout_id == parent.fanout.id])
    lab.sql(
        "update suimon.fanouts set settled_at = settled_at - interval '2 minutes'"
        " where state = 'settled'"
    )
    sweep.flows(lab.conn)
    lanes = {row[0] for row in lab.sql("select name from suimon.lanes where name like 'spawn:%%'")}
    assert lanes == {other.fanout.lane}
    assert lane.sweep(lab.conn) == 0
    assert rescue.rescue(lab.conn)[0] == 0


def test_a_thousand_lanes_are_swept_in_pages(lab: Lab, worker: int) -> None:
    """The net reaches the last one too."""
    for n in range(620):
        run = lab.submit_only("serial")
        lab.sql("update suimon.runs set lane = %s where id = %s", f"lane:{n:04}", run)
    lane.sweep(lab.conn)
    assert lab.one("select count(*) from suimon.runs where admitted") == 620


def test_a_duty_that_fails_keeps_no_other_from_its_turn(
    lab: Lab, worker: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told; the others are done."""

    def fail(conn: Connection) -> int:
        conn.execute("select 1 / 0")
        return 1

    monkeypatch.setitem(sweep.DUTIES, "lanes", fail)
    lab.submit_only("serial")
    lab.pipeline("free")
    run, dead = lab.submit("free"), lab.worker()
    lab.claim_run(dead, run)
    lab.kill(dead)
    assert sweep.run(lab.conn, worker) == 1
    assert lab.status(run) == "queued"
    assert "the duty lanes failed: division by zero" in caplog.text


def test_an_idle_worker_that_slept_over_a_run_is_woken(lab: Lab, db_url: str) -> None:
    """Nothing should be able to cause it; the sweep names it again."""
    asleep = lab.worker("gpu", idle=True)
    lab.worker("cpu", idle=True)
    lab.pipeline("p", pool="gpu")
    with connect(db_url, name="ear") as ear:
        lab.submit("p")
        ear.execute("listen suimon_wake")
        lab.sql("update suimon.duties set next_at = clock_timestamp()")
        assert sweep.run(lab.conn, asleep) == 1
        heard = [note.payload for note in ear.notifies(timeout=5, stop_after=1)]
    assert heard == [f"gpu {asleep}"]
