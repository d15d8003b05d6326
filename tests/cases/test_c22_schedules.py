"""Field cases C22 to C26 and C28: daylight saving, dates that never come, clocks that jump, sleep,
restarts. The database's time is the test's: see `support/schedules.py`.
"""

from __future__ import annotations

import random
import time
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from support.engine import Engine
from support.lab import Lab
from support.schedules import Clock
from support.wait import wait_until

from suimon import graph
from suimon.core import instants
from suimon.db.connect import connect
from suimon.triggers import cron

WINNIPEG = "America/Winnipeg"


def calendar(line: str, **more: Any) -> dict[str, Any]:
    return {"type": "CRON", "cron": line, "tz": WINNIPEG, **more}


def test_c22_daily_job_inside_the_hour_that_does_not_exist(lab: Lab) -> None:
    """02:30 does not exist on 14 March 2021: the run comes at 03:00, where the gap ends."""
    clock = Clock(lab, "2021-03-13T12:00", WINNIPEG)
    clock.deploy("daily", calendar("30 2 * * *"))
    clock.deploy("weekly", calendar("15 2 * * 0"))
    shown = {
        name: [
            one.isoformat()
            for one in instants.upcoming(
                instants.of(calendar(line), clock.now), clock.now, 2 if name == "daily" else 1
            )
        ]
        for name, line in {"daily": "30 2 * * *", "weekly": "15 2 * * 0"}.items()
    }
    clock.run_to("2021-03-15T12:00", most=timedelta(minutes=7), each=clock.finish_all)
    assert clock.planned("daily") == ["2021-03-14T03:00:00-05:00", "2021-03-15T02:30:00-05:00"]
    assert clock.planned("weekly") == ["2021-03-14T03:00:00-05:00"]
    assert {name: clock.planned(name) for name in shown} == shown


def test_c23_hour_that_comes_twice(lab: Lab) -> None:
    clock = Clock(lab, "2021-11-07T00:50", WINNIPEG)
    clock.deploy("frequent", calendar("*/15 * * * *"))
    clock.deploy("daily", calendar("30 1 * * *"))
    clock.run_to("2021-11-07T04:00", most=timedelta(minutes=4), each=clock.finish_all)
    planned = clock.planned("frequent")
    first, second = [[f"2021-11-07T01:{m}:00{z}" for m in ("00", "15", "30", "45")]
                     for z in ("-05:00", "-06:00")]  # fmt: skip
    assert planned[:8] == first + second
    assert len(planned) == 17, "every 15 real minutes from 01:00 to 04:00, which are four hours"
    assert clock.planned("daily") == ["2021-11-07T01:30:00-05:00"]
    keys = lab.sql("select count(distinct idempotency_key), count(*) from suimon.runs")
    assert keys == [(18, 18)], "both 01:30 have a key of their own"


def test_c24_date_that_never_comes(lab: Lab) -> None:
    """Refused when it is written, at once; what was in force goes on."""
    clock = Clock(lab, "2027-01-01T00:00")
    clock.deploy("other", {"type": "CRON", "cron": "0 0 * * *"})
    for line in ("0 0 30 2 *", "0 0 31 4,6,9,11 *"):
        begun = time.monotonic()
        task = {"type": "TASK", "config": {"task": "m:f"}}
        raw = {"suimon": 1, "pipeline": "p", "vertices": {"a": task}}
        mistakes = graph.check({**raw, "triggers": [{"type": "CRON", "cron": line}]})
        assert time.monotonic() - begun < 1
        assert [one.field for one in mistakes] == ["triggers[0].cron"]
        assert "never comes" in mistakes[0].message
    clock.deploy("mondays", {"type": "CRON", "cron": "0 0 31 2 1"})
    clock.run_to("2027-02-28T12:00", most=timedelta(days=2), each=clock.finish_all)
    assert [text[:10] for text in clock.planned("mondays")] == [
        "2027-02-01", "2027-02-08", "2027-02-15", "2027-02-22",
    ]  # fmt: skip
    assert len(clock.planned("other")) == 58


def test_c24_a_date_that_never_comes_in_the_database_stops_nobody(lab: Lab) -> None:
    """A row that no check has seen: it is left at once, with a note, and looked at no more."""
    clock = Clock(lab, "2027-01-01T00:00")
    clock.deploy("never", {"type": "CRON", "cron": "0 1 * * *"})
    clock.deploy("other", {"type": "CRON", "cron": "0 1 * * *"})
    lab.sql("update suimon.triggers set spec = jsonb_set(spec, '{cron}', '\"0 0 30 2 *\"')"
            " where pipeline = 'never'")  # fmt: skip
    clock.move(hours=1)
    begun = time.monotonic()
    clock.look()
    assert time.monotonic() - begun < 1
    assert len(clock.runs("other")) == 1
    rows = lab.sql("select next_at, note from suimon.triggers where pipeline = 'never'")
    assert rows == [(None, "no instant of it comes any more")]


def test_c25_system_clock_set_back(lab: Lab) -> None:
    """Twice two minutes back, then 90 seconds forward. Real time is what passed, not what the wall
    says. (Heartbeats and timeouts are measured by clocks that do not jump: tests/worker.)
    """
    clock = Clock(lab, "2026-03-02T09:59:00")
    clock.deploy("frequent", {"type": "EVERY", "every": "10s"})
    clock.deploy("hourly", {"type": "CRON", "cron": "0 10 * * *"})
    started: list[float] = []
    real = 0.0

    def pass_by(seconds: float) -> None:
        """As the processes do: they sleep what they were told, by a clock that does not jump."""
        nonlocal real
        end = real + seconds
        while real < end:
            wait = clock.look()
            if len(clock.runs("frequent")) > len(started):
                started.append(real)
            clock.finish_all()
            step = min(wait or 30.0, 30.0, end - real)
            clock.move(seconds=step)
            real += step

    pass_by(95)
    clock.move(minutes=-2)
    pass_by(95)
    clock.move(minutes=-2)
    pass_by(200)
    clock.move(seconds=90)
    pass_by(60)
    pauses = [b - a for a, b in pairwise(started)]
    assert max(pauses) <= 20.0
    assert len(started) > 40
    assert clock.planned("hourly") == ["2026-03-02T10:00:00+00:00"]


RULES = ("last", "all", "none")
PLANNED = """
@pipeline(name="{0}", on=Cron("* * * * *", catch_up="{0}"))
def {0}_(scheduled_at, folded):
    note("runs", scheduled_at, folded)
"""
LONG = """
@pipeline
def long(n=0):
    note("long", "begun")
    await_mark("awake")
    note("long", "done")
"""


def test_c26_machine_asleep_over_the_planned_time(engine: Engine) -> None:
    """From 02:50 to 09:00 nobody looks; with seven missed days for the rule that runs each of them.

    The machine's sleep is the time that the triggers' rows have stood still. A real worker wakes up
    and applies each rule; the run that was in the middle of a step is recovered once.
    """
    engine.module("m", "from suimon import Cron\n" + "\n".join(map(PLANNED.format, RULES)) + LONG)
    engine.deploy()
    worker = engine.worker(duties=False, slots=1)
    running = engine.submit("long")
    engine.noted("long")
    worker.kill9()
    slept = "7 minutes 30 seconds"
    with engine.conn.transaction():
        engine.sql(
            "update suimon.triggers set cursor_at = date_trunc('minute', clock_timestamp())"
            f" - interval '{slept}', next_at = clock_timestamp() - interval '{slept}'"
        )
    engine.project.mark("awake")
    engine.worker()
    engine.wait(running)
    per = "select count(*), sum((input->>'folded')::int) from suimon.runs where pipeline = %s"
    states = ("select state, count(*) from suimon.deliveries d join suimon.triggers t"
              " on t.id = d.trigger_id where t.pipeline = %s group by 1")  # fmt: skip

    def seen(pipeline: str) -> dict[str, int]:
        return dict(engine.sql(states, pipeline))

    engine.until(lambda: all(map(seen, RULES)), "caught up")
    wait_until(lambda: seen("all").get("delivered", 0) >= 7, 60, "a run for each")
    assert seen("last")["folded"] >= 6
    assert seen("last")["delivered"] <= 3
    assert engine.sql(per, "last")[0][1] >= 6
    assert seen("none")["missed"] >= 6, "none is run but the one that is on time"
    why = engine.one("select why from suimon.deliveries where state = 'missed' limit 1")
    assert "not caught up with" in why
    assert engine.run(running).interruptions == 1
    assert len(engine.project.lines("long")) == 3, "begun, begun again once, done"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_c28_weekly_job_process_restarted_every_day(lab: Lab, db_url: str, seed: int) -> None:
    """Each look is that of a new process; redeploys of the same change nothing."""
    rng = random.Random(seed)
    clock = Clock(lab, "2026-03-02T12:00:30")
    weekly = {"type": "EVERY", "every": "7d"}
    noon = {"type": "CRON", "cron": "0 12 * * 1"}
    clock.deploy("weekly", weekly)
    clock.deploy("noon", noon)
    begun, runs = clock.now, 0
    for day in range(1, 29):
        before = _next(lab)
        with connect(db_url, name="scheduler") as conn:
            cron.due(conn, now=clock.now)
        again = _next(lab)
        count = lab.one("select count(*) from suimon.runs")
        assert again == before or count > runs or day == 1, "moved by instants alone"
        runs = count
        lab.pipeline("weekly", triggers=[weekly])
        lab.pipeline("noon", triggers=[noon])
        assert _next(lab) == again, "a deploy of the same moves nothing"
        clock.finish_all()
        clock.now = begun + timedelta(days=day, minutes=rng.randint(-90, 90) if day < 28 else 1)
    clock.look()
    assert len(clock.planned("weekly")) == 4
    assert clock.planned("noon") == [
        f"2026-03-{day:02}T12:00:00+00:00" for day in (9, 16, 23, 30)
    ]  # fmt: skip


def _next(lab: Lab) -> list[Any]:
    return lab.sql("select pipeline, next_at from suimon.triggers order by pipeline")
