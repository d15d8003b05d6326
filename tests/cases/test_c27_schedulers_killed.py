"""Field case C27: whoever keeps the schedules goes away around the planned second."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from support.engine import Engine
from support.lab import Lab

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.long]

PIPELINES = 50
ROUNDS = 12
RHYTHM_S = 3
#: Seconds from the planned instant to the blow, and whether it is a SIGTERM.
BLOWS = [(-1.0, True), (0.0, False), (1.0, False), (0.02, False)]


@pytest.mark.timeout(240)
def test_c27_leader_goes_away_exactly_at_the_planned_second(engine: Engine) -> None:
    """Two keepers of the doors, in a pool where nothing else is done; one of them is ended in each
    round and replaced. The test itself claims and finishes the runs.
    """
    keepers = [engine.worker(pool="keepers", slots=1) for _ in range(2)]
    start: datetime = engine.one("select date_trunc('second', clock_timestamp())")
    anchor = start + timedelta(seconds=10)
    lab = Lab(engine.conn)
    every = {"type": "EVERY", "every": f"{RHYTHM_S}s", "anchor": anchor.isoformat()}
    for number in range(PIPELINES):
        lab.pipeline(f"p{number}", pool="work", triggers=[every])
    hands = lab.worker("work")
    for number in range(ROUNDS):
        instant = anchor + timedelta(seconds=RHYTHM_S * number)
        offset, politely = BLOWS[number % len(BLOWS)]
        blow = instant + timedelta(seconds=offset)
        engine.until(
            lambda blow=blow: engine.one("select clock_timestamp() >= %s", blow),  # type: ignore[misc]
            "the moment of the blow",
        )
        victim = keepers.pop(0)
        victim.term() if politely else victim.kill9()
        keepers.append(engine.worker(pool="keepers", slots=1, ready=False))
        while rows := lab.claim(hands, 100, pool="work"):
            lab.end(hands, rows)
    last = anchor + timedelta(seconds=RHYTHM_S * (ROUNDS - 1))
    behind = "select count(*) from suimon.triggers where cursor_at is null or cursor_at < %s"
    engine.until(lambda: engine.one(behind, last) == 0, "all instants dealt with")
    for keeper in keepers:
        keeper.kill9()
    _each_instant_once(engine, anchor)


def _each_instant_once(engine: Engine, anchor: datetime) -> None:
    """Delivered or folded into the run that was still untouched; none missed, none twice."""
    rows = engine.sql(
        "select t.pipeline, array_agg(d.source order by d.source), max(t.cursor_at)"
        " from suimon.deliveries d join suimon.triggers t on t.id = d.trigger_id"
        " where d.state in ('delivered', 'folded') group by 1"
    )
    assert len(rows) == PIPELINES
    for pipeline, sources, cursor in rows:
        count = (cursor - anchor) // timedelta(seconds=RHYTHM_S) + 1
        planned = [anchor + timedelta(seconds=RHYTHM_S * number) for number in range(count)]
        assert [datetime.fromisoformat(text) for text in sources] == planned, pipeline
    assert engine.one("select count(*) from suimon.deliveries where state = 'missed'") == 0
    runs = "select count(*) + sum((input->>'folded')::int) from suimon.runs"
    assert engine.one(runs) == engine.one("select count(*) from suimon.deliveries")
    keys = "select count(*) - count(distinct (pipeline, idempotency_key)) from suimon.runs"
    assert engine.one(keys) == 0
