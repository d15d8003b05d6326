"""Deploys and upgrades while runs are going: a run ends on the graph it was started with."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from pathlib import Path

import pytest
from support.engine import Engine

from suimon.run import operate

pytestmark = pytest.mark.acceptance

OLD = """
@task
def first(n):
    note("old_first", n)
    return n

@task
def second(n):
    note("old_second", n)
    return ["old", n]

p = Pipeline("job", concurrency=None, max_queued=None)
p.run("b", second, p.run("a", first, p.input.n))

@pipeline(concurrency=None, max_queued=None)
def gate(n: int):
    note("gate", n)
    await_mark("go")
    return n
"""
#: One at a time; a run waits for a word between its two steps.
SERIAL = """
@task
def first(n):
    note("serial", "first", n)
    return n

@task
def old(n):
    note("serial", "second", n)
    return n

p = Pipeline("serial", concurrency=1)
a = p.run("a", first, p.input.n)
go = p.wait("w", signal="go", after=[a])
p.run("b", old, a, after=[go])

@pipeline(concurrency=None)
def beside(n):
    return n
"""
#: The old functions stay, so that one worker serves both versions; the graph has another shape.
NEW = (
    OLD[: OLD.index("p = Pipeline")]
    + """
@task
def only(n):
    note("only", n)
    return ["new", n]

p = Pipeline("job", concurrency=None, max_queued=None)
p.run("x", only, p.input.n)

@pipeline(concurrency=None, max_queued=None)
def gate(n: int):
    note("gate", n)
    await_mark("go")
    return n
"""
)
#: Without the old functions.
ONLY_NEW = NEW[NEW.index("@task\ndef only") :]

HELD = (
    "select count(*) from suimon.runs where status = 'queued' and not admitted"
    " and suimon.reason_of(runs) like 'no_code:m:%%'"
)


def copy_of(engine: Engine, name: str) -> str:
    """A folder with the code as it is now: another machine's."""
    return str(shutil.copytree(engine.project.root, engine.folder / name))


def graphs_of(engine: Engine, runs: list[str]) -> set[int]:
    rows = engine.sql("select distinct graph_id from suimon.runs where id = any(%s::uuid[])", runs)
    return {row[0] for row in rows}


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_deploy_while_old_runs_are_going(engine: Engine, count: int) -> None:
    """Those of before end on the old graph, later ones on the new."""
    engine.module("m", OLD)
    engine.deploy()
    engine.worker(slots=2, heartbeat_s=3.0)
    gates = engine.submit_many("gate", [{"n": n} for n in range(2)])
    engine.noted("gate", 2)  # both slots are taken: the deploy meets every old run
    old = engine.submit_many("job", [{"n": n} for n in range(count)])
    engine.module("m", NEW)
    assert "job" in engine.deploy()
    new = engine.submit_many("job", [{"n": n} for n in range(count, count + 50)])
    assert len(graphs_of(engine, old)) == len(graphs_of(engine, new)) == 1
    assert graphs_of(engine, old) != graphs_of(engine, new)
    # the worker that runs has loaded the old functions; another one brings the new
    engine.worker(slots=2, heartbeat_s=3.0)
    engine.project.mark("go")
    engine.wait_all([*gates, *old, *new], 120)
    ends = "select output from suimon.runs where id = any(%s::uuid[])"
    assert {row[0][0] for row in engine.sql(ends, old)} == {"old"}
    assert {row[0][0] for row in engine.sql(ends, new)} == {"new"}
    for name, many in (("old_first", count), ("old_second", count), ("only", 50)):
        assert set(Counter(words[0] for words in engine.project.lines(name)).values()) == {1}
        assert len(engine.project.lines(name)) == many


def test_runs_of_a_function_that_no_worker_has_stay_queued(engine: Engine) -> None:
    """With the reason `no_code:…`, uncounted, and they go on when a worker brings it."""
    engine.module("m", OLD)
    engine.deploy()
    old_code = copy_of(engine, "old")
    old = engine.submit_many("job", [{"n": n} for n in range(200)])
    engine.module("m", ONLY_NEW)
    engine.deploy()
    engine.worker(slots=2)
    new = engine.submit_many("job", [{"n": n} for n in range(1000, 1020)])
    engine.wait_all(new)
    engine.until(lambda: engine.one(HELD) == len(old), "all old ones say what they wait for")
    rows = engine.sql(
        "select distinct status::text, attempt, interruptions from suimon.runs"
        " where id = any(%s::uuid[])",
        old,
    )
    assert rows == [("queued", 0, 0)]
    engine.worker(slots=2, root=old_code)
    engine.wait_all(old)
    assert len(engine.project.lines("old_second")) == len(old)
    assert not engine.sql("select * from suimon.attempts")


def test_a_half_done_run_is_not_overtaken_after_a_deploy(engine: Engine) -> None:
    """Its next function is not in the new code: those behind it wait until a worker with the old
    code has ended it.
    """
    engine.module("m", SERIAL)
    engine.deploy()
    old_code = copy_of(engine, "old")
    before = engine.worker(slots=1)
    runs = [engine.submit("serial", {"n": 1})]
    engine.until(lambda: engine.run(runs[0]).status == "waiting", "the first is half done")
    runs.append(engine.submit("serial", {"n": 2}))
    before.term()
    assert before.wait() == 0
    engine.module("m", SERIAL.replace("old", "new"))
    engine.deploy()
    engine.worker(slots=1)
    runs.append(engine.submit("serial", {"n": 3}))
    for run in runs:
        operate.signal(engine.conn, run, "go", b"null", actor="me")
    engine.until(lambda: engine.one(HELD) == 1, "the first lacks its code")
    assert engine.run(runs[0]).reason == "no_code:m:old"
    beside = engine.submit_many("beside", [{"n": n} for n in range(5)])
    engine.wait_all(beside)  # the worker has looked again, and again
    assert engine.project.lines("serial") == [["first", "1"]]
    why = "select suimon.reason_of(r) from suimon.runs r where id = %s"
    assert [engine.one(why, run) for run in runs[1:]] == ["lane", "lane"]
    engine.worker(slots=1, root=old_code)
    engine.wait_all(runs)
    told = engine.project.lines("serial")
    assert told[:2] == [["first", "1"], ["second", "1"]]
    # whoever has not begun may step aside, but it is one at a time
    assert sorted(told[2:4]) in ([["first", n], ["second", n]] for n in "23")
    assert sorted(told[4:]) in ([["first", n], ["second", n]] for n in "23")


def test_a_rolling_upgrade_of_two_workers(engine: Engine) -> None:
    """One after the other is drained by SIGTERM while its successor starts, under steady load:
    nothing is lost, nothing fails, nothing runs twice, nobody is counted as interrupted.
    """
    engine.module("m", OLD)
    engine.deploy()
    old_code = copy_of(engine, "old")
    olds = [engine.worker(slots=1, heartbeat_s=3.0, root=old_code) for _ in range(2)]
    runs: list[str] = []
    over = threading.Event()

    def feed() -> None:
        from suimon.db.connect import connect
        from suimon.run import doors

        with connect(engine.url, name="feed") as conn:
            while not over.wait(0.05):
                given = [{"n": len(runs) + i} for i in range(5)]
                runs.extend(one.id for one in doors.start_many(conn, "job", given))

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    engine.noted("old_second", 20)
    engine.module("m", NEW)
    engine.deploy()
    for old in olds:
        old.term()
        engine.worker(slots=1, heartbeat_s=3.0)
        assert old.wait() == 0
    engine.noted("only", 50)
    over.set()
    feeder.join(20)
    engine.wait_all(runs)
    assert len(graphs_of(engine, runs)) == 2
    done = [words[0] for name in ("old_second", "only") for words in engine.project.lines(name)]
    assert Counter(done) == Counter(str(n) for n in range(len(runs)))
    assert not engine.sql("select * from suimon.attempts")
    assert engine.one("select max(interruptions) from suimon.runs") == 0
    assert Path(old_code).exists()
