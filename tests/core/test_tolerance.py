"""The merge's arithmetic: exact, and decided as early as it can be and no earlier."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suimon.core.states import RunStatus
from suimon.core.tolerance import Tolerance, Verdict, allowed, from_config, verdict

FAILED = frozenset({RunStatus.FAILED})
SEED = {
    "tolerateChildFailures": ["FAILED"],
    "failureTolerance": {"maxFailureRatio": 0.05},
    "failFast": True,
}


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 10**5))
def test_the_ratio_is_exact(expected: int, part: int, whole: int) -> None:
    """The allowance is the floor of the written decimal times the count, never of a float."""
    ratio = round(min(part / whole, 1.0), 6)
    tolerance = Tolerance(FAILED, ratio_text=repr(ratio))
    exact = Fraction(repr(ratio) if "e" not in repr(ratio) else f"{ratio:.12f}") * expected
    assert allowed(tolerance, expected) == exact.numerator // exact.denominator


@pytest.mark.parametrize(
    ("ratio", "expected", "result"),
    [(0.29, 100, 29), (0.57, 100, 57), (0.00005, 1_000_000, 50), (1, 7, 7), (0, 7, 0), (0.3, 3, 0)],
)
def test_ratios_that_floats_get_wrong(ratio: float, expected: int, result: int) -> None:
    config = {"tolerateChildFailures": ["FAILED"], "failureTolerance": {"maxFailureRatio": ratio}}
    assert allowed(from_config(config), expected) == result


def test_without_tolerate_nothing_is_tolerated() -> None:
    assert allowed(Tolerance(), 1000) == 0


def test_tolerate_without_a_bound_means_any_number() -> None:
    assert allowed(Tolerance(FAILED), 1000) == 1000


def test_the_smaller_of_two_bounds_holds() -> None:
    assert allowed(Tolerance(FAILED, "0.5", 3), 100) == 3
    assert allowed(Tolerance(FAILED, "0.01", 3), 100) == 1


@pytest.mark.parametrize(
    ("counts", "result"),
    [
        ({"succeeded": 95, "failed": 5}, Verdict.SUCCEEDED),
        ({"succeeded": 94, "failed": 6}, Verdict.FAILED),
        ({"succeeded": 10, "failed": 6}, Verdict.FAILED),
        ({"succeeded": 10, "failed": 5}, Verdict.OPEN),
        ({"succeeded": 1, "timed_out": 1}, Verdict.FAILED),
        ({"succeeded": 99, "timed_out": 1}, Verdict.FAILED),
    ],
)
def test_the_seeds_merge_over_100_items(counts: dict[str, int], result: Verdict) -> None:
    """5 failed: fine; 6: failed at once; one timed out: failed, because that is not tolerated."""
    assert verdict(from_config(SEED), counts, expected=100, fail_fast=True) == result


def test_a_ratio_cannot_fail_fast_before_the_seal() -> None:
    """More items raise the allowance; only a fixed bound, or none, can be hopeless already."""
    ratio = from_config(SEED)
    assert verdict(ratio, {"failed": 50}, expected=None, fail_fast=True) == Verdict.OPEN
    fixed = Tolerance(FAILED, max_failures=3)
    assert verdict(fixed, {"failed": 3}, expected=None, fail_fast=True) == Verdict.OPEN
    assert verdict(fixed, {"failed": 4}, expected=None, fail_fast=True) == Verdict.FAILED
    assert verdict(Tolerance(), {"failed": 1}, expected=None, fail_fast=True) == Verdict.FAILED
    assert verdict(Tolerance(), {"failed": 1}, expected=None) == Verdict.OPEN


def test_without_fail_fast_all_children_are_waited_for() -> None:
    assert verdict(Tolerance(), {"failed": 1}, expected=2) == Verdict.OPEN
    assert verdict(Tolerance(), {"failed": 1, "succeeded": 1}, expected=2) == Verdict.FAILED


def test_no_items_succeed_at_once() -> None:
    assert verdict(Tolerance(), {}, expected=0) == Verdict.SUCCEEDED
