"""A server keeps the duties: when it is the only process alive, nothing but work stands still."""

from __future__ import annotations

import pytest
from support.engine import Engine
from support.serving import serving

pytestmark = [pytest.mark.slow, pytest.mark.acceptance]

CODE = """
from suimon import Every

@pipeline(concurrency=None)
def held(n=0):
    note("held", n)
    await_mark("go")

@pipeline(on=Every("1s", anchor="2026-01-01T00:00:00Z"), concurrency=1)
def ticks(**given):
    pass

@pipeline(concurrency=1)
def one(n=0):
    pass
"""
QUICK = ("--heartbeat", "400ms", "--sweep", "500ms")


@pytest.fixture
def deployed(engine: Engine) -> Engine:
    engine.module("m", CODE)
    engine.deploy()
    return engine


def test_the_runs_of_a_dead_worker_are_taken_back(deployed: Engine) -> None:
    """The worker is killed with its machine's violence; nobody but a server is left to notice."""
    run = deployed.submit("held")
    worker = deployed.worker(slots=1)
    deployed.noted("held")
    with serving(deployed.url, deployed.folder / "serve", *QUICK) as server:
        worker.kill9()
        deployed.until(lambda: deployed.run(run).status == "queued", "the run is queued again")
        assert deployed.run(run).interruptions == 1
        assert "is silent: buried" in server.log
    assert not deployed.one("select count(*) from suimon.workers where not dead")


def test_schedules_fire_and_callers_in_sql_are_admitted(deployed: Engine) -> None:
    """Without any worker: an instant makes a run, and `suimon.submit` behind a lane is let in."""
    with serving(deployed.url, deployed.folder / "serve", *QUICK):
        ticked = "select count(*) from suimon.runs where pipeline = 'ticks'"
        deployed.until(lambda: deployed.one(ticked), "an instant has made a run")
        run = deployed.one("select suimon.submit('one')::text")
        admitted = "select admitted from suimon.runs where id = %s"
        deployed.until(lambda: deployed.one(admitted, run), "it is admitted")


def test_without_duties_it_only_answers(deployed: Engine) -> None:
    """Nothing is taken, and it holds no connection of the keeper's."""
    deployed.sql("update suimon.duties set last_at = null")
    with serving(deployed.url, deployed.folder / "serve", "--no-duties", *QUICK) as server:
        for _ in range(20):
            assert server.get("/api/v1/status").status_code == 200
        names = deployed.sql(
            "select distinct application_name from pg_stat_activity"
            " where datname = current_database() and application_name like 'suimon:%%'"
        )
        assert {name for (name,) in names} <= {"suimon:serve", "suimon:serve-probe", "suimon:test"}
    assert deployed.one("select count(*) from suimon.duties where last_at is not null") == 0
