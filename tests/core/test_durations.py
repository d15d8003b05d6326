"""Durations and back-off: one grammar, and waits that stay in the range the author wrote."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suimon.core import backoff, durations


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0ms", 0), ("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000)],
)
def test_durations_mean_what_they_say(text: str, expected: int) -> None:
    assert durations.milliseconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "5", "s", "1.5s", "-1s", "1 s", "1h30m", "5S", "٣s", "99999d", 5, None, "1s\n"]
)
def test_anything_else_is_refused(text: object) -> None:
    """No fractions, sums, spaces or foreign digits: each would be read differently by somebody."""
    with pytest.raises(ValueError, match=r"duration|longer than"):
        durations.milliseconds(text)


def test_a_range_has_a_beginning_and_an_end() -> None:
    assert durations.span("2s..5m") == (2_000, 300_000)
    assert durations.span("2s") == (2_000, 2_000)
    with pytest.raises(ValueError, match="ends before"):
        durations.span("5m..2s")


@given(st.integers(0, durations.MAX_MS))
def test_text_of_reads_back_as_the_same(value: int) -> None:
    assert durations.milliseconds(durations.text_of(value)) == value


@given(
    first=st.integers(1, 10**6),
    more=st.integers(0, 10**8),
    failures=st.integers(1, 10**6),
    seed=st.integers(0, 1000),
)
def test_a_wait_stays_in_its_range(first: int, more: int, failures: int, seed: int) -> None:
    """Whatever the jitter and however many failures, the author's two bounds hold."""
    policy = backoff.Backoff(first, first + more)
    wait_ms = backoff.delay(policy, failures, random.Random(seed)) * 1000
    assert first * (1 - 1e-9) <= wait_ms <= (first + more) * (1 + 1e-9)


def test_waits_double_and_differ() -> None:
    """They grow by two, and two children that failed together do not return together."""
    policy = backoff.parse("2s..5m")
    rng = random.Random(1)
    waits = [[backoff.delay(policy, n, rng) for _ in range(50)] for n in (1, 2, 3, 20)]
    assert all(low <= wait <= high for wait in waits[0] for low, high in [(2, 3)])
    assert all(4 <= wait <= 6 for wait in waits[1])
    assert all(8 <= wait <= 12 for wait in waits[2])
    assert all(200 <= wait <= 300 for wait in waits[3])
    assert all(len(set(group)) > 40 for group in waits)
