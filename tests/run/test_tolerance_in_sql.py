"""The merge's arithmetic in SQL is that of core/tolerance.py, for any counts and any bounds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.database import Databases
from support.lab import Lab, Parent

from suimon.core.states import RunStatus
from suimon.core.tolerance import Tolerance, Verdict, allowed, verdict
from suimon.db.connect import connect
from suimon.run import finish, spawn

STATES = (RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.CANCELLED)
COUNTS = st.integers(0, 30)


@pytest.fixture(scope="module")
def place(databases: Databases) -> Iterator[tuple[Lab, Parent]]:
    """One fan-out whose row is written over and over; nothing of it is kept."""
    with databases.fresh() as url, connect(url, name="tolerance") as conn:
        lab = Lab(conn)
        lab.pipeline("parents")
        yield lab, lab.parent(lab.worker(), "parents")


@st.composite
def tolerances(draw: st.DrawFn) -> Tolerance:
    """As authors write them: states, a ratio as the text of a decimal, a number; or nothing."""
    states = frozenset(draw(st.sets(st.sampled_from(STATES))))
    if not states:
        return Tolerance()
    ratio = draw(st.none() | st.floats(0, 1, allow_nan=False).map(lambda f: repr(round(f, 7))))
    return Tolerance(states, ratio, draw(st.none() | st.integers(0, 40)))


@pytest.mark.slow
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    tolerance=tolerances(), counts=st.tuples(COUNTS, COUNTS, COUNTS, COUNTS),
    rest=st.integers(0, 10), sealed=st.booleans(), fail_fast=st.booleans(),
)  # fmt: skip
def test_sql_and_python_agree_on_the_verdict(
    place: tuple[Lab, Parent], tolerance: Tolerance, counts: tuple[int, int, int, int], rest: int,
    sealed: bool, fail_fast: bool,
) -> None:  # fmt: skip
    """Settled or open, well or badly, before and after the seal, and how many may fail at most."""
    lab, parent = place
    expected = sum(counts) + rest
    named = dict(zip((RunStatus.SUCCEEDED, *STATES), counts, strict=True))
    with lab.conn.transaction(force_rollback=True):
        lab.sql(
            "update suimon.fanouts set succeeded = %s, failed = %s, timed_out = %s, cancelled = %s,"
            " tolerate = %s, max_failures = %s, max_failure_ratio = %s, fail_fast = %s"
            " where id = %s",
            *counts, [str(s) for s in tolerance.states], tolerance.max_failures,
            tolerance.ratio_text, fail_fast, parent.fanout.id,
        )  # fmt: skip
        stored = None
        if sealed:
            row = lab.conn.execute(
                spawn.SQL.seal, {"fanout": parent.fanout.id, "n": expected}
            ).fetchone()
            assert row is not None
            stored = row[0]
        finish.settled(finish.send_settle(lab.conn, [parent.fanout.id]))
        found = lab.fanout(parent)
    wanted = verdict(tolerance, named, expected=expected if sealed else None, fail_fast=fail_fast)
    assert found["state"] == ("open" if wanted == Verdict.OPEN else "settled")
    assert found["verdict"] == (None if wanted == Verdict.OPEN else str(wanted))
    if sealed:
        shown = expected if stored is None else min(stored, expected)
        assert shown == allowed(tolerance, expected)
