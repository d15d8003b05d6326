"""Each sentence of the verdict, the order they are asked in, and where the thresholds lie."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from suimon.core import reasons
from suimon.core.verdict import (
    DELIVERY_SECONDS,
    ENDED_BY,
    GRACE_SECONDS,
    LOST_SECONDS,
    ON_PURPOSE,
    READY_SECONDS,
    Count,
    Facts,
    Held,
    Pool,
    judge,
    overdue,
    span,
)

WAITING = Pool("etl", Count(1204), 461.0, live=2, slots=4, running=4, starts=412, ends=400)


def facts(pool: Pool | None = None, **more: Any) -> Facts:
    return Facts(pools=[] if pool is None else [pool], **more)


class TestStopped:
    def test_the_database_is_away(self) -> None:
        found = judge(facts(WAITING, unreachable="no route to host"))
        assert str(found) == "STOPPED  the database cannot be reached: no route to host"

    def test_a_pool_has_ready_runs_and_nobody(self) -> None:
        found = judge(facts(replace(WAITING, live=0, silent_s=200.0)))
        assert str(found) == (
            "STOPPED  pool etl has 1,204 runs ready and no live worker for 3 m 20 s"
        )
        assert found.todo == "Start one: suimon worker PATH --pool etl"

    def test_one_that_never_had_a_worker_counts_from_its_oldest_run(self) -> None:
        found = judge(facts(replace(WAITING, live=0)))
        assert "no live worker for 7 m 41 s" in found.sentence

    def test_nobody_keeps_the_duties(self) -> None:
        found = judge(facts(WAITING, overdue=[("doors", 95.0), ("rescue", 130.0)]))
        assert str(found) == (
            'STOPPED  nobody keeps the duties: "rescue" was not done for 2 m 10 s'
        )

    def test_a_first_worker_that_is_still_coming_keeps_no_duties_yet(self) -> None:
        young = replace(WAITING, live=0, oldest_s=5.0)
        assert judge(facts(young, overdue=[("doors", 9e6)])).level == "slow"

    def test_duties_may_rest_where_nothing_is_to_do(self) -> None:
        """A database that was just made is idle, not stopped."""
        assert judge(facts(overdue=[("doors", 9e6)])).level == "idle"
        assert judge(facts(overdue=[("doors", 9e6)], next_at="soon")).level == "stopped"

    def test_deliveries_that_nothing_holds_do_not_go_on(self) -> None:
        found = judge(facts(deliveries=Count(38), deliveries_stuck_s=DELIVERY_SECONDS + 60))
        assert str(found) == ("STOPPED  deliveries do not become runs: 38 wait, the oldest for 6 m")

    def test_free_workers_start_nothing(self) -> None:
        idle = replace(WAITING, running=1, starts=0)
        found = judge(facts(idle, oldest_transaction_s=7200.0))
        assert str(found) == (
            "STOPPED  pool etl has 1,204 runs ready, 3 free slots, and nothing was started in the "
            "last minute; the oldest transaction is 2 h old"
        )
        assert "oldest transaction" not in judge(facts(idle)).sentence

    def test_runs_of_dead_workers_are_not_taken_back(self) -> None:
        found = judge(facts(lost=Count(1), lost_s=LOST_SECONDS + 30))
        assert str(found) == "STOPPED  1 run of dead workers is not taken back, for 2 m"
        assert judge(facts(lost=Count(1), lost_s=LOST_SECONDS)).level != "stopped"


class TestSlow:
    def test_saturated(self) -> None:
        """The number of starts is what tells it from stopped."""
        assert str(judge(facts(WAITING))) == (
            "SLOW  pool etl is saturated: 412 started in the last minute, 1,204 wait, about 3 m"
        )
        assert "about" not in judge(facts(replace(WAITING, ends=0))).sentence

    def test_full_of_long_runs(self) -> None:
        full = replace(WAITING, starts=0, ends=0)
        found = judge(facts(full, longest=("01JD", "train", 4000.0)))
        assert str(found) == (
            "SLOW  pool etl is full of long runs: 4 in 4 slots, 1,204 wait; the longest is 01JD "
            "(train), 1 h 6 m"
        )
        assert judge(facts(full)).sentence.endswith("1,204 wait")

    def test_a_full_cap_is_no_stop_and_says_what_to_raise(self) -> None:
        """Two slots stay free on purpose: nothing is stuck."""
        capped = replace(WAITING, running=2, starts=0, ends=0, cap=2)
        found = judge(facts(capped))
        assert str(found) == (
            "SLOW  pool etl is full of long runs: 2 in 2 places under its cap, 1,204 wait"
        )
        assert found.todo == "Its cap is 2: suimon pools set-cap etl NUMBER"
        assert judge(facts(replace(capped, running=1))).level == "stopped"
        assert judge(facts(replace(capped, cap=9, running=4))).todo == "More slots or more workers."

    def test_behind_with_free_slots(self) -> None:
        found = judge(facts(replace(WAITING, running=1, starts=3)))
        assert str(found) == (
            "SLOW  pool etl is behind: the oldest of 1,204 ready runs waits for 7 m 41 s, 3 "
            "started in the last minute"
        )

    def test_a_worker_gets_its_grace(self) -> None:
        young = replace(WAITING, oldest_s=GRACE_SECONDS, live=0)
        assert str(judge(facts(young))) == (
            "SLOW  pool etl has 1,204 runs ready and waits for a worker, 1 m so far"
        )
        left = replace(WAITING, live=0, silent_s=GRACE_SECONDS - 1)
        assert judge(facts(left)).level == "slow"

    def test_the_pool_that_waits_longest_is_named(self) -> None:
        other = replace(WAITING, name="gpu", oldest_s=1000.0)
        assert "pool gpu" in judge(Facts(pools=[WAITING, other])).sentence

    @pytest.mark.parametrize("starts", [0, 5])
    def test_a_queue_that_is_only_long_is_none(self, starts: int) -> None:
        young = replace(WAITING, oldest_s=READY_SECONDS, starts=starts, running=starts and 4)
        assert judge(facts(young)).level == "ok"


class TestHeld:
    def test_by_what_and_until_when(self) -> None:
        held = [
            Held("retry", Count(2), "the first at 14:02"),
            Held("paused:pool:gpu", Count(10_000, more=True)),
        ]
        found = judge(facts(held=held))
        assert str(found) == (
            "HELD  nothing can run now: 10,000+ paused:pool:gpu, 2 retry (the first at 14:02)"
        )
        assert found.todo == "See: suimon paused, suimon runs list --reason retry"

    def test_what_ends_it_is_named_by_its_reason(self) -> None:
        """Whoever waits for a decision or a signal is not sent to the pauses."""
        held = [Held("approval:release", Count(2)), Held("signal:paid", Count(1))]
        found = judge(facts(held=held))
        assert str(found) == "HELD  on purpose: 2 approval:release, 1 signal:paid"
        assert found.todo == "See: suimon approvals list, suimon signal RUN paid"

    def test_every_reason_on_purpose_says_what_ends_it(self) -> None:
        assert set(ENDED_BY) == ON_PURPOSE

    def test_at_most_four_reasons_are_named(self) -> None:
        held = [Held(f"signal:{n}", Count(n)) for n in range(1, 8)]
        assert judge(facts(held=held)).sentence.endswith("4 signal:4, 3 more reasons")

    def test_a_paused_pool_is_never_stopped(self) -> None:
        paused = replace(WAITING, live=0, paused=True)
        found = judge(facts(paused, held=[Held("paused:pool:etl", Count(1204))]))
        assert found.level == "held"

    def test_what_stands_in_a_lane_alone_is_not_on_purpose(self) -> None:
        assert judge(facts(held=[Held("lane", Count(3))])).level == "ok"

    def test_every_word_is_a_reason(self) -> None:
        """Two of them belong to destinations."""
        assert ON_PURPOSE - set(reasons.REASONS) <= {"limit", "quota"}


class TestRest:
    def test_idle(self) -> None:
        assert str(judge(Facts())) == "IDLE  nothing is queued and nothing runs"
        found = judge(facts(next_at="2030-01-01T02:00:00.000000+00:00"))
        assert found.sentence.endswith("next start at 2030-01-01T02:00:00+00:00")

    def test_a_start_that_is_due_is_not_the_next_one(self) -> None:
        """It names no instant in the past, and who would make the start, if nobody is there."""
        found = judge(facts(next_at="2030-01-01T02:00:00.000000+00:00", due_s=7.3))
        assert str(found) == (
            "IDLE  nothing is queued and nothing runs; a start has been due for 7 s"
        )
        assert found.todo == "Start a worker or a serve."

    def test_ok(self) -> None:
        busy = replace(WAITING, oldest_s=1.0)
        found = judge(facts(busy, running=Count(4), held=[Held("approval:ok", Count(1))]))
        assert str(found) == (
            "OK  4 running, 1,204 ready, 412 started in the last minute, held: 1 approval:ok"
        )

    def test_deliveries_that_wait_for_their_turn_are_no_alarm(self) -> None:
        found = judge(facts(deliveries=Count(5), deliveries_stuck_s=2.0))
        assert (found.level, found.sentence.endswith("5 deliveries wait")) == ("ok", True)


def test_the_first_true_sentence_wins() -> None:
    """Where no worker is alive the duties stand still too: the cause is said, not the symptom."""
    dead = replace(WAITING, live=0, silent_s=600.0)
    everything = facts(
        dead, overdue=[("doors", 600.0)], lost=Count(3), lost_s=600.0, deliveries=Count(1),
        deliveries_stuck_s=900.0, held=[Held("timer", Count(1))],
    )  # fmt: skip
    assert "no live worker" in judge(everything).sentence
    assert "duties" in judge(replace(everything, pools=[])).sentence
    assert "deliveries" in judge(replace(everything, pools=[], overdue=[])).sentence


@pytest.mark.parametrize(
    ("every_s", "since_s", "late"),
    [(0.5, 59.0, False), (0.5, 61.0, True), (30.0, 89.0, False), (30.0, 91.0, True)],
)
def test_a_duty_is_overdue_after_three_intervals_and_a_minute(
    every_s: float, since_s: float, late: bool
) -> None:
    assert overdue(every_s, since_s) is late


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.9, "59 s"), (60, "1 m"), (200, "3 m 20 s"), (3600, "1 h"),
     (7500, "2 h 5 m"), (273600, "3 d 4 h")],
)  # fmt: skip
def test_spans_are_short(seconds: float, text: str) -> None:
    assert span(seconds) == text
