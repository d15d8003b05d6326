"""A rhythm of one second over a run of three: every instant has its run or is folded, once."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from support.engine import Engine
from support.serving import serving

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.long]

INSTANTS = 60
CODE = """
from suimon import Every

@pipeline(on=Every("1s", anchor={anchor!r}))
def beat(scheduled_at, previous_at, folded):
    note("begun", scheduled_at)
    time.sleep(3)
    note("ended", scheduled_at)
"""


@pytest.mark.timeout(240)
def test_each_second_of_a_minute_is_run_or_folded_once(engine: Engine) -> None:
    """Three workers and a serve, all of them keeping the doors."""
    now: datetime = engine.one("select date_trunc('second', clock_timestamp())")
    anchor = now + timedelta(seconds=20)
    engine.module("m", CODE.format(anchor=anchor.isoformat()))
    for _ in range(3):
        engine.worker(slots=1, heartbeat_s=5.0)
    with serving(engine.url, engine.folder / "serve"):
        engine.deploy()
        last = anchor + timedelta(seconds=INSTANTS - 1)
        done = "select coalesce(cursor_at >= %s, false) from suimon.triggers"
        engine.until(lambda: engine.one(done, last), "the minute is over", 120)
    engine.sql("insert into suimon.pauses (what, by) values ('triggers:beat', 'test')")
    unfinished = "select count(*) from suimon.runs where status <> 'succeeded'"
    engine.until(lambda: engine.one(unfinished) == 0, "all runs ended", 60)
    rows = engine.sql("select state, source from suimon.deliveries order by source")
    seconds = [(datetime.fromisoformat(source) - anchor).total_seconds() for _, source in rows]
    assert seconds == list(range(len(rows))), "each instant once, none left out"
    assert len(rows) >= INSTANTS
    count, folded = engine.sql("select count(*), sum((input->>'folded')::int) from suimon.runs")[0]
    assert count + folded == len(rows)
    states = [state for state, _ in rows]
    assert (states.count("delivered"), states.count("folded")) == (count, folded)
    assert count <= len(rows) / 3 + 2, "one at a time, three seconds each"
    begun = [line[0] for line in engine.project.lines("begun")]
    assert len(begun) == len(set(begun)) == count
    previous = engine.sql(
        "select input->>'previous_at', input->>'scheduled_at', (input->>'folded')::int"
        " from suimon.runs order by input->>'scheduled_at'"
    )
    assert previous[0][0] is None
    assert all(before < at for before, at, _ in previous[1:])
