"""What a worker says of its last minute."""

from __future__ import annotations

import pytest

from suimon.core import clock
from suimon.worker.pace import Pace


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as a list of one number that a test may change."""
    now = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    return now


def test_it_counts_the_last_sixty_seconds(at: list[float]) -> None:
    pace = Pace()
    pace.began(3)
    pace.ended(1)
    at[0] += 0.5
    pace.began(2)
    assert pace.last_minute() == (5, 1)
    at[0] += 59
    assert pace.last_minute() == (5, 1)
    pace.began(1)
    at[0] += 0.5
    assert pace.last_minute() == (1, 0)


def test_a_long_silence_leaves_nothing(at: list[float]) -> None:
    """Also where the same cell is used again after whole rounds of nobody looking."""
    pace = Pace()
    pace.began(7)
    at[0] += 600
    assert pace.last_minute() == (0, 0)
    pace.ended(1)
    assert pace.last_minute() == (0, 1)
