"""C21: a pipeline's triggers stop after failures in a row, once, visibly, and go on again."""

from __future__ import annotations

import pytest
from support.engine import Engine

from suimon.run import audit, pause, why

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

WELL, BADLY = "succeeded", "failed"

FAILING = """
from suimon import Event, Every

@pipeline(pause_after=3, concurrency=None, on=Event("never.told"))
def shaky(well: bool = False, **_) -> str:
    if not well:
        raise ValueError("the flag is not there")
    return "done"

@pipeline(name="stubborn", pause_after=3, concurrency=None, on=Event("never.told"), retries=4,
          backoff="1ms..2ms")
def stubborn(ctx) -> None:
    note("tries", ctx.attempt)
    raise ValueError("never")

@pipeline(name="clocked", pause_after=3, on=Every("1s"))
def clocked(by_hand: bool = False, **_) -> str:
    if not by_hand:
        raise ValueError("the flag is not there")
    return "done"
"""

RUNS = "select count(*) from suimon.runs where pipeline = 'clocked'"


@pytest.fixture
def failing(engine: Engine) -> Engine:
    engine.module("m", FAILING)
    engine.deploy()
    engine.sql("update suimon.triggers set next_at = null where pipeline = 'clocked'")
    engine.worker(slots=1)
    engine.sql(
        "insert into suimon.channels (name, kind, target, kinds)"
        " values ('c', 'webhook', 'http://127.0.0.1:9/', array['pipeline.*'])"
    )
    return engine


def end(engine: Engine, *ends: str) -> list[str]:
    """Runs by hand, one after the other, that end like this."""
    runs = []
    for one in ends:
        run = engine.submit("shaky", {"well": one == "succeeded"})
        engine.wait(run, one)
        runs.append(run)
    return runs


def rounds_done(engine: Engine) -> None:
    """Two whole rounds of the duty from now on: it has seen what there is."""
    engine.sql("update suimon.duties set last_at = null where name = 'pauses'")
    for _ in range(2):
        engine.until(
            lambda: engine.one("select last_at from suimon.duties where name = 'pauses'"), "a round"
        )
        engine.sql("update suimon.duties set last_at = null where name = 'pauses'")


def paused(engine: Engine, name: str) -> bool:
    return bool(pause.listed(engine.conn, f"triggers:{name}"))


def notices(engine: Engine) -> list[str]:
    rows = engine.sql("select payload ->> 'why' from suimon.notices where kind = 'pipeline.paused'")
    return [row[0] for row in rows]


def test_c21_failures_mixed_with_successes_do_not_pause(failing: Engine) -> None:
    """**Do** (a) fail, fail, succeed, fail, fail. **Must** not be paused."""
    end(failing, BADLY, BADLY, WELL, BADLY, BADLY)
    rounds_done(failing)
    assert not paused(failing, "shaky")
    assert notices(failing) == []


def test_c21_runs_by_hand_count_and_the_message_says_so(failing: Engine) -> None:
    """**Do** (b) three manual test runs that fail. **Must** be documented; the message says it."""
    runs = end(failing, BADLY, BADLY, BADLY)
    failing.until(lambda: paused(failing, "shaky"), "paused")
    (found,) = pause.listed(failing.conn, "triggers:shaky")
    assert found["runs"] == runs
    assert "3 of them started by hand, which count too" in found["why"]
    another = failing.submit("shaky", {"well": False})
    failing.wait(another, "failed")  # a start by hand goes on, and a bad end lifts nothing
    rounds_done(failing)
    assert paused(failing, "shaky")
    end(failing, WELL)
    failing.until(lambda: not paused(failing, "shaky"), "a good end by hand lifts it")
    resumed = audit.listed(failing.conn, action="resume", target="triggers:shaky")
    assert resumed[0]["detail"]["why"] == "a run that was started by hand ended well"


def test_c21_a_schedule_that_fails_three_times_is_paused_once(failing: Engine) -> None:
    """**Do** (c) fail three times from the cron trigger. **Must** pause once, with one notice, and
    the reason names the three runs; what passes meanwhile is dealt with after the resume.
    """
    failing.sql("update suimon.triggers set next_at = now() where pipeline = 'clocked'")
    failing.until(lambda: paused(failing, "clocked"), "paused by itself")
    (found,) = pause.listed(failing.conn, "triggers:clocked")
    told = failing.sql(
        "select id::text from suimon.runs where pipeline = 'clocked' and status = 'failed'"
        " order by finished_at limit 3"
    )
    assert found["runs"] == [row[0] for row in told]
    assert all(run in found["why"] for run in found["runs"])
    assert "by hand" not in found["why"]
    rounds_done(failing)
    assert notices(failing) == [found["why"]]
    runs = failing.one("select count(*) from suimon.runs where pipeline = 'clocked'")
    rounds_done(failing)
    assert failing.one("select count(*) from suimon.runs where pipeline = 'clocked'") == runs
    failing.wait(failing.submit("clocked", {"by_hand": True}))
    failing.until(
        lambda: (
            failing.one("select count(*) from suimon.runs where pipeline = 'clocked'") > runs + 1
        ),
        "the schedule goes on after a good end by hand",
    )


def test_c21_a_run_with_five_failed_attempts_counts_once(failing: Engine) -> None:
    """**Do** (d) one run that fails in all its 5 attempts. **Must** count as one failure."""
    for _ in range(2):
        failing.wait(failing.submit("stubborn"), "failed")
    assert len(failing.noted("tries", 10)) == 10
    rounds_done(failing)
    assert not paused(failing, "stubborn")
    failing.wait(failing.submit("stubborn"), "failed")
    failing.until(lambda: paused(failing, "stubborn"), "paused by the third")


def test_c21_the_count_starts_at_zero_after_un_pausing(failing: Engine) -> None:
    """**Do** (e) un-pause, then one failure. **Must** not pause before the third one."""
    end(failing, BADLY, BADLY, BADLY)
    failing.until(lambda: paused(failing, "shaky"), "paused")
    command = failing.command("resume", "pipeline", "shaky", "--triggers-only", "--json")
    assert command.wait() == 0
    end(failing, BADLY, BADLY)
    rounds_done(failing)
    assert not paused(failing, "shaky")
    end(failing, BADLY)
    failing.until(lambda: paused(failing, "shaky"), "paused again")
    assert len(notices(failing)) == 2


def test_c21_by_hand_a_pipeline_and_a_pool_stand_still_at_once(failing: Engine) -> None:
    """What is started waits with its reason, what runs ends, and all of it goes on."""
    for what in ("pipeline:shaky", "pool:default"):
        pause.pause(failing.conn, what, "me", "a look at the tables")
        runs = failing.submit_many("shaky", [{"well": True}] * 20)
        failing.until(
            lambda runs=runs: (
                failing.one(
                    "select count(*) from suimon.runs r where id = any(%s::uuid[])"
                    " and suimon.reason_of(r) = %s",
                    runs,
                    f"paused:{what}",  # noqa: B023
                )
                == 20
            ),
            "all say why",
        )
        # one that a worker has claimed just now is given back with its reason
        failing.until(
            lambda runs=runs: "paused by me" in why.why(failing.conn, runs[0])["text"],
            "says who paused it",
        )
        kind, name = what.split(":")
        assert failing.command("resume", kind, name).wait() == 0
        failing.wait_all(runs)
