"""C78: workers of another version, of the pipeline and of the engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.engine import Engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

FIRST = """
@task
def old_step(n):
    note("old", n)
    return n + 1

@task
def slow_step(n):
    note("slow", n)
    await_mark("go")
    return n * 10

p = Pipeline("job", concurrency=None)
p.run("second", slow_step, p.run("first", old_step, p.input.n))
"""
SECOND = """
@task
def new_step(n):
    note("new", n)
    return n + 2

p = Pipeline("job", concurrency=None)
p.run("only", new_step, p.input.n)
"""


def test_c78_worker_of_another_version_of_the_pipeline(engine: Engine) -> None:
    """**Set up** runs queued under version 1, one half done; worker 1 stops, only worker 2 (whose
    code has not version 1's functions) remains. **Must**: a run keeps the graph it began with and
    runs where its functions are; what worker 2 cannot run says so, and does not circle; new runs
    are of version 2; worker 1, back again, finishes the rest.
    """
    engine.module("m", FIRST)
    engine.deploy()
    first = engine.worker(slots=1)
    runs = engine.submit_many("job", [{"n": n} for n in range(5)])
    engine.noted("slow")
    second_root = engine.folder / "second"
    shutil.copytree(engine.project.root, second_root)
    (Path(engine.project.root) / "m.py").unlink()
    engine.module("m", SECOND)
    assert engine.deploy() == ["job"]
    first.kill9()
    engine.worker(slots=1)
    held = (
        "select count(*) from suimon.runs where status = 'queued' and not admitted"
        " and suimon.reason_of(runs) like 'no_code:m:%'"
    )
    engine.until(lambda: engine.one(held) == 5, "all five say what they wait for")
    claims = engine.sql("select claim_no from suimon.runs order by id")
    new = engine.wait(engine.submit("job", {"n": 1}))
    assert new.output == 3
    assert engine.sql("select claim_no from suimon.runs order by id")[:5] == claims, "they circle"
    assert engine.one("select count(*) from suimon.runs where status = 'failed'") == 0
    engine.project.mark("go")
    engine.worker(slots=1, root=str(second_root))
    engine.wait_all(runs)
    assert sorted(engine.run(run).output for run in runs) == [10, 20, 30, 40, 50]
    assert len(engine.project.lines("new")) == 1


@pytest.mark.parametrize("newer", ["database", "nothing there"])
def test_c78_worker_of_another_version_of_the_engine(engine: Engine, newer: str) -> None:
    """**Must** claim nothing and leave with exit code 78 and a clear message, which the shipped
    systemd unit does not restart.
    """
    engine.module("m", SECOND)
    engine.deploy()
    run = engine.submit("job", {"n": 1})
    if newer == "database":
        engine.sql("update suimon.meta set package_version = '99.0.0'")
    else:
        engine.sql("drop table suimon.migrations cascade")
    worker = engine.command("worker", str(engine.project.root), "--slots", "1")
    assert worker.wait() == 78
    assert "error:" in worker.log
    assert "hint:" in worker.log
    assert "Traceback" not in worker.log
    assert engine.run(run).status == "queued"
    assert engine.one("select count(*) from suimon.workers") == 0
