"""The clock answers three questions, and tests can move it."""

from __future__ import annotations

from datetime import UTC, timedelta

from suimon.core import clock


def test_now_is_utc_and_all_clocks_move_together() -> None:
    """A test that needs tomorrow does not wait for it."""
    before, mono, boot, boot_ns = (
        clock.now(), clock.monotonic(), clock.boottime(), clock.boottime_ns()
    )  # fmt: skip
    assert before.tzinfo is UTC
    with clock.moved(3600):
        assert clock.now() - before >= timedelta(hours=1)
        assert clock.monotonic() - mono >= 3600
        assert clock.boottime() - boot >= 3600
        assert clock.boottime_ns() - boot_ns >= 3600 * 10**9
        with clock.moved(60):
            assert clock.monotonic() - mono >= 3660
    assert clock.monotonic() - mono < 3600


def test_boottime_in_both_units_is_one_clock() -> None:
    """Stamps in nanoseconds and durations in seconds may be compared."""
    assert abs(clock.boottime_ns() / 1e9 - clock.boottime()) < 1
    assert abs(clock.monotonic_ns() / 1e9 - clock.monotonic()) < 1
