"""Later: what a task may ask for."""

from __future__ import annotations

import pytest

from suimon import Later
from suimon.worker.slot_turns import NotYet


@pytest.mark.parametrize(
    ("delay", "seconds"), [("0s", 1.0), (0, 1.0), ("20ms", 1.0), (1.5, 1.5), ("2m", 120.0)]
)
def test_less_than_a_second_is_taken_as_one(delay: str | float, seconds: float) -> None:
    """Else a task that is never ready would be claimed and parked as fast as the database can."""
    later = Later(delay)
    assert later.delay_seconds == seconds
    assert str(later) == f"again in {seconds:g} s"


@pytest.mark.parametrize("delay", [-1, "367d", float("nan")])
def test_what_is_no_delay_is_refused(delay: str | float) -> None:
    with pytest.raises(ValueError, match="0 s to 366 days"):
        Later(delay)


def test_a_turn_at_a_destination_comes_when_it_comes() -> None:
    """The engine's own waits are as long as they are."""
    assert NotYet(0.02).delay_seconds == 0.02
