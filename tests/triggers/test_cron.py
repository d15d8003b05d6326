"""Instants become runs: one each, or folded, or missed and said so, however many look at them."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from support.lab import Lab
from support.schedules import Clock
from support.sessions import Sessions

from suimon.core import instants
from suimon.db.connect import connect
from suimon.run import claim, retry
from suimon.triggers import cron, schedules

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


# ------------------------------------------------------------------------------------- catching up


def asleep(clock: Clock, trigger: dict[str, Any], **keys: Any) -> int:
    """One instant on time, then nobody looks for five and a half hours."""
    found = clock.deploy("p", trigger, **keys)
    clock.run_to("2026-03-02T10:00:30", each=clock.finish_all)
    clock.move(hours=5)
    clock.look()
    return found


def test_after_a_sleep_one_late_run_stands_for_all(clock: Clock) -> None:
    trigger = asleep(clock, HOURLY)
    assert clock.runs("p")[1:] == [
        {"scheduled_at": "2026-03-02T15:00:00+00:00",
         "previous_at": "2026-03-02T10:00:00+00:00", "folded": 4}
    ]  # fmt: skip
    assert sorted(clock.states(trigger)) == ["delivered"] * 2 + ["folded"] * 4


def test_after_a_sleep_each_has_its_run_oldest_first(clock: Clock) -> None:
    trigger = asleep(clock, {**HOURLY, "catchUp": "all"})
    assert [text[11:13] for text in clock.planned("p")] == ["10", "11", "12", "13", "14", "15"]
    assert folded(clock) == [0] * 6
    assert [str(one["previous_at"])[11:13] for one in clock.runs("p")[1:]] == [
        "10", "11", "12", "13", "14",
    ]  # fmt: skip
    assert clock.states(trigger) == ["delivered"] * 6


def test_after_a_sleep_none_is_run_and_each_is_missed_visibly(clock: Clock) -> None:
    trigger = asleep(clock, {**HOURLY, "catchUp": "none"})
    # (the last one is 30 seconds late, which is on time)
    assert [text[11:13] for text in clock.planned("p")] == ["10", "15"]
    missed = [record for record in clock.records(trigger) if record.state == "missed"]
    assert [record.source[11:13] for record in missed] == ["11", "12", "13", "14"]
    assert all("later than 60 s" in str(record.why) for record in missed)


def test_many_missed_ones_share_a_row(clock: Clock) -> None:
    trigger = clock.deploy("p", {**MINUTELY, "catchUp": "none"})
    clock.look()
    clock.move(hours=10, seconds=30)
    clock.look()
    assert [record.state for record in clock.records(trigger)] == ["missed", "delivered"]
    (missed, _) = clock.records(trigger)
    assert missed.source == "599 instants from 2026-03-02T09:31:00+00:00 on"
    assert missed.detail["count"] == 599


def test_what_a_full_pipeline_cannot_take_comes_later_and_in_order(clock: Clock) -> None:
    """catch_up all with max_queued 2: nothing is lost, and the trigger says why it waits."""
    asleep(clock, {**HOURLY, "catchUp": "all"}, maxQueued=2)
    assert [text[11:13] for text in clock.planned("p")] == ["10", "11", "12"]
    assert "2 waiting runs" in clock.lab.one("select note from suimon.triggers")
    wait = clock.look()
    assert wait is not None
    assert 0 < wait <= 60.1
    for _ in range(5):
        clock.finish_all()
        clock.move(seconds=61)
        clock.look()
    assert [text[11:13] for text in clock.planned("p")] == ["10", "11", "12", "13", "14", "15"]
    assert clock.lab.one("select note from suimon.triggers") is None


def test_while_the_pipeline_is_full_instants_fold(clock: Clock) -> None:
    trigger = clock.deploy("p", MINUTELY, maxQueued=1)
    other = clock.lab.submit("p", {"by": "hand"})
    clock.run_to("2026-03-02T09:35:30")
    assert clock.runs("p") == [{"by": "hand"}]
    assert clock.records(trigger) == []
    clock.finish_all()
    assert clock.lab.status(other) == "succeeded"
    clock.move(seconds=60)
    clock.look()
    assert folded_only(clock) == [5]
    assert sorted(clock.states(trigger)) == ["delivered"] + ["folded"] * 5


def folded_only(clock: Clock) -> list[int]:
    return [one["folded"] for one in clock.runs("p") if "folded" in one]


@pytest.mark.slow
def test_more_than_can_be_caught_up_with_are_missed_in_one_row(clock: Clock) -> None:
    trigger = clock.deploy("p", {**MINUTELY, "catchUp": "all"})
    clock.look()
    clock.move(minutes=1_500, seconds=30)
    clock.look()
    runs = clock.runs("p")
    assert len(runs) == instants.KEEP
    assert runs[-1]["scheduled_at"] == "2026-03-03T10:30:00+00:00"
    missed = [record for record in clock.records(trigger) if record.state == "missed"]
    assert [record.detail["count"] for record in missed] == [500]
    assert "only the newest 1,000" in str(missed[0].why)


def test_a_pause_is_caught_up_with_when_it_ends(clock: Clock) -> None:
    trigger = clock.deploy("p", HOURLY)
    clock.look()
    clock.lab.sql("insert into suimon.pauses (what, by) values ('triggers:p', 'test')")
    clock.move(hours=3)
    assert clock.look() is None
    assert clock.runs("p") == []
    (shown,) = schedules.planned(clock.lab.conn)
    assert shown.paused == "triggers:p"
    clock.lab.sql("delete from suimon.pauses")
    clock.look()
    assert folded(clock) == [2]
    assert sorted(clock.states(trigger)) == ["delivered", "folded", "folded"]


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


# ---------------------------------------------------------------------------- clocks that jump


def test_a_rhythm_begins_anew_when_the_clock_was_set_back(clock: Clock) -> None:
    trigger = clock.deploy("p", EVERY_10S)
    clock.run_to("2026-03-02T09:31:00", each=clock.finish_all)
    assert len(clock.runs("p")) == 6
    clock.move(seconds=10 - 120)
    clock.look()
    assert len(clock.runs("p")) == 7, "ten seconds after the last one, whatever the wall says"
    assert clock.runs("p")[6]["scheduled_at"] == "2026-03-02T09:29:10+00:00"
    key = clock.lab.one("select idempotency_key from suimon.runs order by id desc limit 1")
    assert key.endswith("+00:00#1")
    clock.run_to("2026-03-02T09:31:00", each=clock.finish_all)
    assert len(clock.runs("p")) == 7 + 11
    assert set(clock.states(trigger)) == {"delivered"}


def test_a_small_step_back_starts_nothing_twice(clock: Clock) -> None:
    clock.deploy("p", EVERY_10S)
    clock.run_to("2026-03-02T09:31:00", each=clock.finish_all)
    clock.move(seconds=-0.2)
    clock.run_to("2026-03-02T09:31:10", each=clock.finish_all)
    assert len(clock.runs("p")) == 7


def test_a_planned_instant_is_not_run_twice_when_the_clock_was_set_back(clock: Clock) -> None:
    clock.deploy("p", MINUTELY)
    clock.run_to("2026-03-02T09:33:30", each=clock.finish_all)
    before = clock.planned("p")
    clock.move(minutes=-2)
    clock.run_to("2026-03-02T09:33:30", each=clock.finish_all)
    assert clock.planned("p") == before
    clock.run_to("2026-03-02T09:34:30", each=clock.finish_all)
    assert len(clock.planned("p")) == len(before) + 1


def test_a_calendar_comes_back_from_a_clock_that_was_wrong_by_years(clock: Clock) -> None:
    """Until it is right again nothing would run; keys hold every planned instant at one run."""
    clock.deploy("p", HOURLY)
    clock.run_to("2026-03-02T10:10:00", most=timedelta(minutes=5), each=clock.finish_all)
    clock.move(days=3650)
    clock.look()
    assert len(clock.runs("p")) == 2
    clock.finish_all()
    clock.move(days=-3650, minutes=-20)
    clock.run_to("2026-03-02T11:10:00", most=timedelta(minutes=5), each=clock.finish_all)
    planned = clock.planned("p")
    assert len(planned) == len(set(planned)) == 3
    assert planned[-1] == "2026-03-02T11:00:00+00:00"


# ------------------------------------------------------------------------------- other rules


def test_jitter_delays_the_start_and_leaves_the_plan_alone(clock: Clock) -> None:
    trigger = {**MINUTELY, "jitter": "30s"}
    clock.deploy("p", trigger)
    planned = clock.at("2026-03-02T09:31:00")
    late = instants.due_at("cron:* * * * *@UTC", planned, "30s")
    assert late > planned
    clock.now = late - timedelta(milliseconds=1)
    clock.look()
    assert clock.runs("p") == []
    clock.move(seconds=0.001)
    clock.look()
    assert clock.planned("p") == ["2026-03-02T09:31:00+00:00"]
    clock.run_to("2026-03-02T09:41:59", each=clock.finish_all)
    assert len(clock.planned("p")) == 11


def test_a_zone_that_this_machine_does_not_know_stops_nobody_else(clock: Clock) -> None:
    clock.deploy("p", HOURLY)
    clock.deploy("q", HOURLY)
    clock.lab.sql("update suimon.triggers set spec = spec || %s where pipeline = 'p'",
                  '{"tz": "Mars/Base"}')  # fmt: skip
    clock.move(minutes=30)
    clock.look()
    assert len(clock.runs("q")) == 1
    note = clock.lab.one("select note from suimon.triggers where pipeline = 'p'")
    assert "Mars/Base" in note


def test_what_passed_while_a_schedule_was_in_no_graph_is_not_caught_up_with(lab: Lab) -> None:
    every = {"type": "EVERY", "every": "1h", "anchor": "2020-01-01T00:00:00Z"}
    lab.pipeline("p", triggers=[every])
    lab.sql("update suimon.triggers set cursor_at = '2025-01-01T00:00:00Z'")
    lab.pipeline("p", triggers=[])
    assert cron.due(lab.conn) is None
    lab.pipeline("p", triggers=[every])
    wait = cron.due(lab.conn)
    assert wait is not None
    assert 0 < wait <= 3601
    assert lab.one("select count(*) from suimon.runs") == 0


def test_a_rhythm_waits_for_the_anchor_it_was_given(clock: Clock) -> None:
    clock.deploy("p", {"type": "EVERY", "every": "7d", "anchor": "2026-03-02T10:00:00Z"})
    clock.run_to("2026-03-09T10:00:00", most=timedelta(days=1), each=clock.finish_all)
    assert [text[:10] for text in clock.planned("p")] == ["2026-03-02", "2026-03-09"]


def test_what_is_shown_is_what_comes(clock: Clock) -> None:
    clock.lab.pipeline("p", triggers=[{"type": "CRON", "cron": "0 2 * * *", "tz": "Asia/Tokyo"}])
    (shown,) = schedules.planned(clock.lab.conn, "p")
    assert [f"{one:%H:%M %Z}" for one in shown.next] == ["02:00 JST"] * 5
    cron.due(clock.lab.conn)
    assert clock.lab.one("select next_at from suimon.triggers") == shown.next[0]
    assert schedules.planned(clock.lab.conn, "other") == []
