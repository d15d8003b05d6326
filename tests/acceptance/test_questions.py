"""People are asked about what is: a retry below a question takes the question back."""

from __future__ import annotations

from typing import Any

import pytest
from support.engine import Engine

from suimon.errors import RunNotFound
from suimon.run import approvals

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

CODE = """
@task
def numbers():
    return [1, 2, 3]

@task
def odd(n):
    if n == 2 and not os.path.exists(path("mended")):
        raise Fatal("not yet")
    await_mark("go" if os.path.exists(path("mended")) else "begin")
    return n

@task
def report(outcome, ctx):
    return {"good": ctx.checkpoint("good", lambda: outcome.counts.succeeded)}

p = Pipeline("asks", concurrency=None)
rows = p.run("numbers", numbers)
kids = p.spawn("kids", odd, rows)
outcome = p.merge("outcome", kids, tolerate=["FAILED"])
ok = p.approve("ok", show=outcome.counts, %s)
p.run("report", report, outcome, after=[ok])
"""


def asked(engine: Engine, run: str) -> list[dict[str, Any]]:
    return approvals.listed(engine.conn, run_id=run)


def failed_child(engine: Engine, run: str) -> str:
    return next(str(child[3]) for child in engine.children(run) if child[1] == "failed")


def test_a_retry_below_a_question_takes_it_back_and_asks_anew(engine: Engine) -> None:
    """What people saw is not true any more, and while children are out nobody can decide on it."""
    engine.module("m", CODE % "role='boss'")
    engine.deploy()
    engine.worker()
    (engine.project.here / "begin").touch()
    run = engine.submit("asks")
    engine.until(lambda: asked(engine, run), "it asks")
    assert asked(engine, run)[0]["show"]["failed"] == 1
    (engine.project.here / "mended").touch()
    engine.retry(failed_child(engine, run))
    engine.until(lambda: engine.run(run).reason == "children", "it waits for the child")
    with pytest.raises(RunNotFound, match="not any more"):
        approvals.decide(engine.conn, run, "ok", approve=True, by="mia")
    (engine.project.here / "go").touch()
    engine.until(lambda: asked(engine, run), "it asks again")
    shown = asked(engine, run)[0]["show"]
    assert (shown["failed"], shown["succeeded"]) == (0, 3)
    approvals.decide(engine.conn, run, "ok", approve=True, by="mia")
    assert engine.wait(run).output == {"good": 3}


def test_a_step_after_a_merge_that_runs_again_begins_without_its_old_checkpoints(
    engine: Engine,
) -> None:
    engine.module("m", CODE % "required=False")
    engine.deploy()
    engine.worker()
    (engine.project.here / "begin").touch()
    run = engine.submit("asks")
    assert engine.wait(run).output == {"good": 2}
    (engine.project.here / "mended").touch()
    (engine.project.here / "go").touch()
    engine.retry(failed_child(engine, run))
    assert engine.wait(run).output == {"good": 3}


@pytest.mark.parametrize("how", ["rejected", "expired"])
def test_a_retry_of_a_run_that_was_not_approved_asks_anew(engine: Engine, how: str) -> None:
    engine.module("m", CODE % ("expires='1s'" if how == "expired" else "role='boss'"))
    engine.deploy()
    engine.worker()
    (engine.project.here / "begin").touch()
    run = engine.submit("asks")
    engine.until(lambda: asked(engine, run), "it asks")
    if how == "rejected":
        approvals.decide(engine.conn, run, "ok", approve=False, by="mia")
    assert engine.wait(run, "failed").error["type"] == "NotApproved"
    engine.retry(run)
    engine.until(lambda: asked(engine, run), "it asks again")
    approvals.decide(engine.conn, run, "ok", approve=True, by="mia")
    assert engine.wait(run).output == {"good": 2}
