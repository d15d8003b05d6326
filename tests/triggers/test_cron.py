"""Instants become runs: one each, or folded, or missed and said so, however many look at them."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from support.lab import Lab
from support.schedules import Clock
from support.sessions import Sessions

from suimon.db.connect import connect
from suimon.run import claim, retry
from suimon.triggers import cron

pytestmark = pytest.mark.portable
HOURLY = {"type": "CRON", "cron": "0 * * * *"}
MINUTELY = {"type": "CRON", "cron": "* * * * *"}
EVERY_10S = {"type": "EVERY", "every": "10s"}


@pytest.fixture
def clock(lab: Lab) -> Clock:
    return Clock(lab, "2026-03-02T09:30:00")


def folded(clock: Clock, pipeline: str = "p") -> list[int]:
    return [one["folded"] for one in clock.runs(pipeline)]


# --------------------------------------------------------------------------------- one occurrence


def test_nothing_before_the_first_instant_then_a_run_with_its_key_and_record(clock: Clock) -> None:
    trigger = clock.deploy("p", HOURLY)
    assert clock.look() == pytest.approx(1800.001)
    assert clock.runs("p") == []
    clock.move(minutes=30)
    assert clock.look() == pytest.approx(3600.001)
    assert clock.runs("p") == [
        {"scheduled_at": "2026-03-02T10:00:00+00:00", "previous_at": None, "folded": 0}
    ]
    key = clock.lab.one("select idempotency_key from suimon.runs")
    assert key == "cron:0 * * * *@UTC:2026-03-02T10:00:00+00:00"
    (record,) = clock.records(trigger)
    assert (record.state, record.source) == ("delivered", "2026-03-02T10:00:00+00:00")
    assert record.run == clock.lab.one("select id::text from suimon.runs")


def test_looking_again_starts_nothing_again(clock: Clock) -> None:
    clock.deploy("p", HOURLY)
    clock.move(minutes=30)
    for _ in range(3):
        clock.look()
    assert len(clock.runs("p")) == 1


def test_the_previous_instant_is_the_last_one_that_was_dealt_with(clock: Clock) -> None:
    clock.deploy("p", {**HOURLY, "tz": "Asia/Tokyo"})
    clock.run_to("2026-03-02T12:10:00", most=timedelta(minutes=5), each=clock.finish_all)
    assert [one["previous_at"] for one in clock.runs("p")] == [
        None, "2026-03-02T19:00:00+09:00", "2026-03-02T20:00:00+09:00",
    ]  # fmt: skip


def test_the_clock_of_the_database_decides_where_no_test_does(lab: Lab) -> None:
    lab.pipeline("p", triggers=[{"type": "EVERY", "every": "1h"}])
    assert cron.due(lab.conn) == pytest.approx(3600, abs=30)
    lab.sql("update suimon.triggers set created_at = created_at - interval '1 h', next_at = now()")
    assert cron.due(lab.conn) == pytest.approx(3600, abs=30)
    assert lab.one("select count(*) from suimon.runs") == 1


def test_without_schedules_there_is_nothing_to_wait_for(lab: Lab) -> None:
    lab.pipeline("p")
    assert cron.due(lab.conn) is None


# ------------------------------------------------------------------------------------- folding


def test_while_one_runs_one_waits_and_later_ones_fold_into_it(clock: Clock) -> None:
    trigger = clock.deploy("p", MINUTELY, concurrency=1)
    clock.run_to("2026-03-02T09:31:30")
    worker = clock.lab.worker()
    (first,) = clock.lab.claim(worker)
    clock.run_to("2026-03-02T09:35:30")
    assert folded(clock) == [0, 3]
    assert clock.planned("p")[1] == "2026-03-02T09:32:00+00:00"
    assert clock.states(trigger) == ["delivered", "delivered", "folded", "folded", "folded"]
    second = clock.records(trigger)[1].run
    assert {record.run for record in clock.records(trigger)[1:]} == {second}
    clock.lab.end(worker, first)
    (claimed,) = clock.lab.claim(worker)
    assert claimed.id == second
    clock.run_to("2026-03-02T09:36:30")
    assert folded(clock) == [0, 3, 0]
    assert clock.runs("p")[2]["previous_at"] == "2026-03-02T09:35:00+00:00"


def test_a_run_that_has_begun_takes_no_more(clock: Clock) -> None:
    """It waits for its next try: somebody has read its input."""
    clock.deploy("p", MINUTELY)
    clock.run_to("2026-03-02T09:31:30")
    worker = clock.lab.worker()
    (row,) = clock.lab.claim(worker)
    clock.lab.again(worker, row)
    clock.run_to("2026-03-02T09:32:30")
    assert folded(clock) == [0, 0]


def test_a_run_that_is_retried_takes_no_more(clock: Clock) -> None:
    """It had its input once, and is to run again with the same."""
    clock.deploy("p", MINUTELY)
    clock.run_to("2026-03-02T09:31:30")
    worker = clock.lab.worker()
    (row,) = clock.lab.claim(worker)
    clock.lab.end(worker, row, "failed")
    retry.apply(clock.lab.conn, retry.plan(clock.lab.conn, [row.id]), actor="test")
    assert clock.lab.status(row.id) == "queued"
    clock.run_to("2026-03-02T09:32:30")
    assert folded(clock) == [0, 0]


def test_a_run_that_was_given_back_unbegun_takes_the_next_ones(clock: Clock) -> None:
    """No worker has the code: one waits, not one for each instant."""
    clock.deploy("p", MINUTELY)
    worker = clock.lab.worker()
    for minute in range(31, 35):
        clock.run_to(f"2026-03-02T09:{minute}:30")
        for row in clock.lab.claim(worker):
            claim.hold_back(clock.lab.conn, worker, [(row.id, row.claim_no, "no_code:m:f")])
    assert folded(clock) == [3]


def test_an_instant_that_meets_a_claim_gets_a_run_of_its_own(
    clock: Clock, sessions: Sessions
) -> None:
    trigger = clock.deploy("p", MINUTELY)
    clock.run_to("2026-03-02T09:31:30")
    clock.move(minutes=1)
    a, b = sessions("a", "b")
    worker = clock.lab.worker()
    with a.transaction() as conn:
        assert len(Lab(conn).claim(worker)) == 1
        look = b.start(clock.look)
        b.until_blocked()
    look.done_in()
    assert folded(clock) == [0, 0]
    assert clock.states(trigger) == ["delivered", "delivered"]


def test_a_claim_that_passes_a_folding_run_by_is_made_up_for(
    clock: Clock, sessions: Sessions, db_url: str
) -> None:
    """The claim skips the locked row and its worker falls silent: the fold wakes it."""
    clock.deploy("p", MINUTELY)
    clock.run_to("2026-03-02T09:31:30")
    clock.move(minutes=1)
    worker = clock.lab.worker(idle=True)
    (b,) = sessions("b")
    with connect(db_url, name="ear") as ear:
        ear.execute("listen suimon_wake")
        b.hold(after=cron.SQL.fold)
        look = b.start(clock.look)
        b.until_held()
        assert clock.lab.claim(worker) == []
        b.release()
        look.done_in()
        (heard,) = list(ear.notifies(timeout=20, stop_after=1))
    assert heard.payload == f"default {worker}"
    (row,) = clock.lab.claim(worker)
    assert clock.lab.one("select input->'folded' from suimon.runs where id = %s", row.id) == 1


def test_an_admission_that_passes_a_folding_run_by_is_made_up_for(
    clock: Clock, sessions: Sessions
) -> None:
    clock.deploy("p", MINUTELY, concurrency=1)
    clock.run_to("2026-03-02T09:31:30")
    worker = clock.lab.worker()
    (first,) = clock.lab.claim(worker)
    clock.run_to("2026-03-02T09:32:30")
    clock.move(minutes=1)
    (b,) = sessions("b")
    b.hold(after=cron.SQL.fold)
    look = b.start(clock.look)
    b.until_held()
    clock.lab.end(worker, first)
    assert clock.lab.claim(worker) == []
    b.release()
    look.done_in()
    assert len(clock.lab.claim(worker)) == 1


# ------------------------------------------------------------------------------- several takers


def test_several_takers_give_every_instant_one_run(clock: Clock, db_url: str) -> None:
    names = [f"p{n}" for n in range(20)]
    for name in names:
        clock.deploy(name, MINUTELY)
    clock.move(minutes=1)
    together, errors = threading.Barrier(4), []

    def take() -> None:
        with connect(db_url, name="taker") as conn:
            together.wait(20)
            try:
                for _ in range(3):
                    clock.look(conn)
            except Exception as error:  # noqa: BLE001  (told by the test)
                errors.append(error)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    counts = clock.lab.sql("select pipeline, count(*) from suimon.runs group by 1")
    assert dict(counts) == dict.fromkeys(names, 1)
    assert clock.lab.one("select count(*) from suimon.deliveries") == 20


def test_a_trigger_that_somebody_is_at_is_looked_at_again(clock: Clock, sessions: Sessions) -> None:
    clock.deploy("p", MINUTELY)
    clock.move(minutes=1)
    a, b = sessions("a", "b")
    with a.transaction() as conn:
        assert conn.execute(cron.SQL.take, {"now": clock.now}).fetchone() is not None
        assert b.start(clock.look).done_in() == 1.0
    assert clock.runs("p") == []


def test_a_taker_that_dies_leaves_nothing_half_done(clock: Clock, sessions: Sessions) -> None:
    trigger = clock.deploy("p", MINUTELY)
    clock.move(minutes=1)
    (b,) = sessions("b")
    b.hold(before=cron.SQL.move_on)
    look = b.start(clock.look)
    b.until_held()
    clock.lab.sql("select pg_terminate_backend(%s)", b.pid)
    b.release()
    assert look.exception(20) is not None
    assert clock.runs("p") == []
    clock.look()
    assert folded(clock) == [0]
    assert clock.states(trigger) == ["delivered"]
