"""The arithmetic of quotas in SQL, against a model: days, months, clocks that jump both ways.

What is used never passes a limit, all of several quotas are taken or none, a new day or month
begins with its first use, and a clock that was set back begins none.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from suimon.db import connect

EXAMPLES = max(int(os.environ.get("SUIMON_EXAMPLES", "300")) // 5, 20)
NAMES = ("all", "label:t:a", "pipeline:p")
LIMITS = st.one_of(st.none(), st.integers(0, 12))
#: Around the turn of a month, and of a year.
STARTS = st.sampled_from(
    [datetime(2026, 1, 31, 22, tzinfo=UTC), datetime(2027, 12, 30, 1, tzinfo=UTC),
     datetime(2028, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC)]
)  # fmt: skip
JUMPS = st.one_of(
    st.integers(-200, 200).map(lambda minutes: timedelta(minutes=minutes)),
    st.integers(-3, 3).map(lambda days: timedelta(days=days)),
    st.sampled_from([timedelta(days=31), timedelta(days=-31), timedelta(microseconds=1)]),
)
MAKE = """insert into suimon.quotas (name, per_day, per_month, day, month, edited_by)
values (%s, %s, %s, (%s at time zone 'UTC')::date,
        date_trunc('month', %s at time zone 'UTC')::date, 'model')"""
TAKE = "select suimon.quota_take(%s::text[], %s::bigint[], %s)"

DATABASE: dict[str, str] = {}


@dataclass
class Model:
    """One quota as it should be."""

    per_day: int | None
    per_month: int | None
    day: date
    month: date
    day_used: int = 0
    month_used: int = 0

    def at(self, now: datetime) -> tuple[date, int, date, int]:
        today, month = now.date(), now.date().replace(day=1)
        return (
            max(self.day, today), 0 if today > self.day else self.day_used,
            max(self.month, month), 0 if month > self.month else self.month_used,
        )  # fmt: skip

    def refuses(self, need: int, now: datetime) -> list[tuple[date, str, int]]:
        """(when it renews, the period, what is used) of each limit without room."""
        day, day_used, month, month_used = self.at(now)
        found = []
        if need and self.per_day is not None and day_used + need > self.per_day:
            found.append((day + timedelta(days=1), "day", day_used))
        if need and self.per_month is not None and month_used + need > self.per_month:
            following = (month + timedelta(days=31)).replace(day=1)
            found.append((following, "month", month_used))
        return found

    def take(self, need: int, now: datetime) -> None:
        if need:
            self.day, self.day_used, self.month, self.month_used = self.at(now)
            self.day_used += need
            self.month_used += need


class Arithmetic(RuleBasedStateMachine):
    """Takes at instants that a jumping clock gives."""

    @initialize(start=STARTS, limits=st.tuples(*[st.tuples(LIMITS, LIMITS)] * 3))
    def begin(self, start: datetime, limits: Any) -> None:
        self.conn = connect.connect(DATABASE["url"], name="model")
        self.conn.execute("truncate suimon.quotas, suimon.quota_holds")
        self.now = start
        self.quotas: dict[str, Model] = {}
        for name, (per_day, per_month) in zip(NAMES, limits, strict=True):
            if per_day is not None or per_month is not None:
                self.conn.execute(MAKE, (name, per_day, per_month, start, start))
                first = start.date().replace(day=1)
                self.quotas[name] = Model(per_day, per_month, start.date(), first)

    def teardown(self) -> None:
        if hasattr(self, "conn"):
            self.conn.close()

    @rule(by=JUMPS)
    def the_clock_moves(self, by: timedelta) -> None:
        self.now += by

    @rule(needs=st.tuples(*[st.integers(0, 6)] * 3))
    def take(self, needs: tuple[int, ...]) -> None:
        wanted = [(n, need) for n, need in zip(NAMES, needs, strict=True) if n in self.quotas]
        ((told,),) = self.conn.execute(
            TAKE, ([n for n, _ in wanted], [need for _, need in wanted], self.now)
        ).fetchall()
        refused = [
            (renews, name, period, used, need)
            for name, need in wanted
            for renews, period, used in self.quotas[name].refuses(need, self.now)
        ]
        if not refused:
            assert told is None, f"refused although there was room: {told}"
            for name, need in wanted:
                self.quotas[name].take(need, self.now)
            return
        last = max(one[0] for one in refused)
        renews, name, period, used, need = min(one for one in refused if one[0] == last)
        assert told is not None, f"taken beyond {name}"
        assert (told["quota"], told["period"], told["used"], told["asked"]) == (
            name, period, used, need,
        )  # fmt: skip
        assert datetime.fromisoformat(told["renews_at"]) == datetime(
            renews.year, renews.month, renews.day, tzinfo=UTC
        )
        assert told["left"] == max(told["limit"] - used, 0)

    @rule(which=st.sampled_from(NAMES), per_day=st.integers(0, 12))
    def somebody_edits_a_limit(self, which: str, per_day: int) -> None:
        if which in self.quotas:
            self.conn.execute(
                "update suimon.quotas set per_day = %s where name = %s", (per_day, which)
            )
            self.quotas[which].per_day = per_day

    @invariant()
    def counters_are_what_the_model_says(self) -> None:
        if not hasattr(self, "quotas"):
            return
        rows = self.conn.execute(
            "select name, day, day_used, month, month_used from suimon.quotas"
        ).fetchall()
        assert {name: tuple(rest) for name, *rest in rows} == {
            name: (q.day, q.day_used, q.month, q.month_used) for name, q in self.quotas.items()
        }


Arithmetic.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.mark.slow
def test_what_is_taken_is_what_a_calendar_allows(db_url: str) -> None:
    """Counters, refusals, names and renewals of 60 lives of 40 steps."""
    DATABASE["url"] = db_url
    Arithmetic.TestCase("runTest").runTest()
