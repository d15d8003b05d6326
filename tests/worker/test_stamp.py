"""The stamp that says "this worker lives" is read whole, or the guardian kills the innocent."""

from __future__ import annotations

import time
from pathlib import Path

from suimon.worker.slots import Exited, Guardian, Silent


def test_a_worker_that_stamps_as_fast_as_it_can_is_never_taken_for_frozen(tmp_path: Path) -> None:
    """A store in eight pieces would be read as "silent since the machine started" now and then."""
    guardian = Guardian(folder=tmp_path / "slots", silence_ms=1_000)
    try:
        guardian.start_slot(0)
        until = time.monotonic() + 4.0  # the guardian looks several times a second
        seen = []
        while time.monotonic() < until:
            for _ in range(2_000):
                guardian.stamp()
            seen += guardian.read_events()
        assert not [event for event in seen if isinstance(event, Silent | Exited)]
    finally:
        guardian.close()
