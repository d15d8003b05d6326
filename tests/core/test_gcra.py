"""The arithmetic of destinations: what is allowed in any window, who gets which share."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suimon.core import gcra

RATES = st.sampled_from([0.1, 0.5, 1.0, 7.0, 20.0, 90.0, 333.0, 2000.0])


@pytest.mark.parametrize(
    ("text", "value"),
    [("20/s", 20), ("90/m", 1.5), ("500/10s", 50), ("0.5/s", 0.5), (" 3 / 2 h", 3 / 7200)],
)
def test_a_rate_is_read_as_it_is_written(text: str, value: float) -> None:
    assert gcra.per_second(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["", "20", "20/", "/s", "0/s", "20/0s", "-1/s", "1e3/s", "9999999/s", "x"]
)
def test_what_is_no_rate_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="rate"):
        gcra.per_second(text)


@given(
    RATES,
    st.integers(1, 500),
    st.lists(st.tuples(st.integers(0, 60), st.floats(0, 2)), max_size=60),
)
def test_no_window_holds_more_than_rate_and_burst(
    rate: float, burst: int, asks: list[tuple[int, float]]
) -> None:
    """Whoever asks when and however late each booked call is made, within its own last instant."""
    burst = max(burst, gcra.least_burst(rate))
    tat, now = -math.inf, 1000.0
    spans: list[tuple[float, float]] = []
    slack = gcra.slack(rate, burst)
    for want, pause in asks:
        now += pause
        booked = gcra.take(tat, now, rate, burst, want)
        tat = booked.tat
        assert booked.n <= want
        starts = booked.starts(now)
        assert all(now <= start <= now + gcra.HORIZON_SECONDS + 1e-6 for start in starts)
        spans += [(start, start + slack) for start in starts]
    extra = 1 if burst == 1 else 0
    for first in sorted({last for _, last in spans})[:40]:
        for length in (1.0, 2.0, 5.0):
            # the worst case: all late ones of before, all early ones of after
            inside = sum(1 for start, last in spans if last >= first and start <= first + length)
            assert inside <= rate * length + burst + extra + 1e-6


@given(RATES)
def test_all_of_the_rate_is_given_to_who_asks_in_time(rate: float) -> None:
    burst = gcra.default_burst(rate)
    tat, now, total = -math.inf, 1000.0, 0
    for _ in range(600):
        booked = gcra.take(tat, now, rate, burst, 10_000)
        tat, total = booked.tat, total + booked.n
        now += 0.1
    assert total >= math.floor(rate * 60)


@given(st.integers(0, 50), st.lists(st.integers(0, 30), min_size=1, max_size=12))
def test_shares_are_fair_and_waste_nothing(total: int, wants: list[int]) -> None:
    found = gcra.shares(total, wants)
    assert sum(found) == min(total, sum(wants))
    assert all(got <= want for got, want in zip(found, wants, strict=True))
    starved = [got for got, want in zip(found, wants, strict=True) if got < want]
    assert max(found, default=0) <= min(starved, default=max(found)) + 1
