"""`suimon triggers next` and `run`: what comes when, and now instead of then."""

from __future__ import annotations

import pytest
from support.lab import Lab

from cli.conftest import Cli
from suimon.triggers import cron

NIGHTLY = {"type": "CRON", "cron": "30 2 * * *", "tz": "Europe/Berlin"}


@pytest.fixture
def lab(conn: object) -> Lab:
    return Lab(conn)  # type: ignore[arg-type]


def test_next_shows_the_zone_of_the_schedule_and_utc(lab: Lab, cli: Cli) -> None:
    lab.pipeline("nightly", triggers=[NIGHTLY])
    said = cli("triggers", "next", "nightly")
    assert said.code == 0
    lines = said.out.splitlines()
    assert "(cron:30 2 * * *@Europe/Berlin)" in lines[0]
    assert len(lines) == 6
    assert all(" 02:30:00 CE" in line and line.endswith("30:00Z") for line in lines[1:])


def test_next_as_json_is_what_the_scheduler_will_do(lab: Lab, cli: Cli) -> None:
    lab.pipeline("nightly", triggers=[NIGHTLY, {"type": "EVERY", "every": "7d"}])
    cron.due(lab.conn)
    rows = lab.sql("select name, next_at from suimon.triggers order by name")
    found = cli("triggers", "next", "--json", "--count", "2").json["schedules"]
    assert [one["name"] for one in found] == [name for name, _ in rows]
    for one, (_, next_at) in zip(found, rows, strict=True):
        assert len(one["next"]) == 2
        assert one["next_utc"][0] == next_at.isoformat().replace("+00:00", "Z")


def test_next_of_a_pipeline_that_does_not_exist_says_so(lab: Lab, cli: Cli) -> None:
    lab.pipeline("nightly", triggers=[NIGHTLY])
    said = cli("triggers", "next", "nightyl")
    assert said.code == 3
    assert 'did you mean "nightly"?' in said.err


def test_run_starts_it_now_and_leaves_the_plan_alone(lab: Lab, cli: Cli) -> None:
    lab.pipeline("nightly", triggers=[NIGHTLY], concurrency=1)
    trigger = lab.one("select id from suimon.triggers")
    cron.due(lab.conn)
    before = lab.sql("select next_at, cursor_at, last_run from suimon.triggers")
    said = cli("triggers", "run", str(trigger))
    assert said.code == 0, said.err
    given = lab.one("select input from suimon.runs where id = %s", said.out.strip())
    assert given["folded"] == 0
    assert given["scheduled_at"][-6:] in ("+01:00", "+02:00")
    assert lab.sql("select next_at, cursor_at, last_run from suimon.triggers") == before
    second = cli("triggers", "run", str(trigger))
    assert second.code == 5, "an unfinished run is in the way, and named"
    assert said.out.strip() in second.err
    assert cli("triggers", "run", "999").code == 3
