"""Schedules after a sleep, a pause, a clock that jumps: nothing is lost, nothing runs twice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.lab import Lab
from support.schedules import Clock

from suimon.core import instants
from suimon.triggers import cron, schedules

pytestmark = pytest.mark.portable
HOURLY = {"type": "CRON", "cron": "0 * * * *"}
MINUTELY = {"type": "CRON", "cron": "* * * * *"}
EVERY_10S = {"type": "EVERY", "every": "10s"}


@pytest.fixture
def clock(lab: Lab) -> Clock:
    return Clock(lab, "2026-03-02T09:30:00")


def folded(clock: Clock, pipeline: str = "p") -> list[int]:
    return [one["folded"] for one in clock.runs(pipeline) if "folded" in one]


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
    assert folded(clock) == [5]
    assert sorted(clock.states(trigger)) == ["delivered"] + ["folded"] * 5


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


def test_a_schedule_that_the_database_refuses_stops_nobody_else(clock: Clock) -> None:
    trigger = clock.deploy("p", HOURLY)
    clock.deploy("q", HOURLY)
    clock.lab.sql("alter table suimon.deliveries add check (trigger_id <> %s)" % trigger)  # noqa: UP031
    clock.move(minutes=30)
    wait = clock.look()
    assert wait is not None
    assert wait > 1
    assert (len(clock.runs("p")), len(clock.runs("q"))) == (0, 1)
    rows = clock.lab.sql("select note, cursor_at from suimon.triggers where id = %s", trigger)
    assert "could not be dealt with" in rows[0][0]
    assert rows[0][1] is None
    clock.move(minutes=-10)
    wait = clock.look()
    assert wait is not None, "put off, also when the clock was set back meanwhile"
    assert wait > 1
    clock.move(minutes=10)
    clock.lab.sql("alter table suimon.deliveries drop constraint deliveries_trigger_id_check")
    clock.move(minutes=1, seconds=1)
    clock.look()
    assert len(clock.runs("p")) == 1


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
