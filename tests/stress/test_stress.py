"""Five workers, random deaths, lanes, keys, nested fan-outs, cancels and retries, and a clean end.

Clean means: nothing stuck, no lane ever above its limit, serial order kept, one run per key, every
tally as its children say, each fan-out settled once an opening, no deadlock, no late write taken.
SUIMON_STRESS_SEEDS=1-50 runs other seeds (or more of them).
"""

from __future__ import annotations

import os

import pytest
from support.stress import World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.long]


def _seeds(default: str) -> list[int]:
    first, _, last = os.environ.get("SUIMON_STRESS_SEEDS", default).partition("-")
    return list(range(int(first), int(last or first) + 1))


@pytest.mark.parametrize("seed", _seeds("1-2"))
def test_workers_that_die_at_claims_and_while_spawning_leave_a_clean_end(
    db_url: str, seed: int
) -> None:
    """Without any sweep: what is lost here is not found by a net."""
    found = World(db_url, seed, roots=150).run()
    assert found.errors == []
    assert found.counts["deadlocks"] == 0
    met = (
        "rescued",
        "deaths with claims",
        "deaths while spawning",
        "late finishes",
        "cancels",
        "retries",
    )
    assert all(found.counts.get(what) for what in met), found.counts


@pytest.mark.parametrize("seed", _seeds("3"))
def test_connections_that_break_at_any_statement_leave_a_clean_end(db_url: str, seed: int) -> None:
    """With the duties, as the real engine has them; their repair finds nothing to mend."""
    found = World(db_url, seed, roots=150, kill_backends=True).run()
    assert found.errors == []
    assert found.counts["broken connections"] > 0
    assert found.counts["deadlocks"] == 0
