"""Quotas with real workers and slots: whole fan-outs, single children that wait, no lost places."""

from __future__ import annotations

import pytest
from support.engine import Engine

from suimon.db.connect import connect
from suimon.run import quotas, why

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

CODE = """
@task
def work(item):
    return item

@task
def numbers():
    for i in range(2_300):
        yield {"n": i}

p = Pipeline("listed", concurrency=None)
p.merge("out", p.spawn("kids", work, p.input.items))

f = Pipeline("from-file", concurrency=None)
f.merge("out", f.spawn("kids", work, f.read("rows", f.input.path)))

g = Pipeline("generated", concurrency=None)
g.merge("out", g.spawn("kids", work, g.run("list", numbers)))
"""
STARTS = """
@task
def work(n):
    note("work", n)
    return n

one = Pipeline("one", concurrency=None)
one.run("w", work, one.input.n)

w = Pipeline("waits", concurrency=None)
w.start("s", "one", input=w.input, wait=True)

n = Pipeline("goes-on", concurrency=None)
n.start("s", "one", input=n.input, wait=False)

e = Pipeline("elsewhere", concurrency=None)
e.run("a", work, e.input.n)
e.run("w", work, e.input.n, pool="other")
"""


def limit(engine: Engine, name: str = "all", **limits: int | None) -> None:
    quotas.change(engine.conn, name, limits, actor="test")


def used(engine: Engine, name: str = "all") -> tuple[int, int]:
    found = quotas.show(engine.conn, name)
    return found["day_used"], found["reserved"]


def children(engine: Engine) -> int:
    return int(engine.one("select count(*) from suimon.runs where parent_id is not null"))


def test_a_fan_out_of_ten_thousand_against_five_thousand_has_no_child_and_one_clear_error(
    engine: Engine,
) -> None:
    """A list and a file; after the quota is raised, the same runs succeed when they are retried."""
    engine.module("m", CODE)
    engine.deploy()
    data = engine.project.root / "rows.csv"
    data.write_text("n\n" + "".join(f"{i}\n" for i in range(10_000)))
    limit(engine, per_day=5_000)
    engine.worker(slots=2)
    runs = [
        engine.submit("listed", {"items": list(range(10_000))}),
        engine.submit("from-file", {"path": str(data)}),
    ]
    for run in runs:
        error = engine.wait(run, "failed").error
        told = error.get("first") or error
        assert told["type"] == "QuotaExceeded", told
        assert (told["quota"], told["limit"], told["asked"]) == ("all", 5_000, 10_000)
        assert told["left"] == 5_000 - len(runs)
        assert told["renews_at"]
        assert "10,000 more runs asked for, 4,998 of 5,000 a day left" in told["message"]
    assert children(engine) == 0
    assert used(engine) == (len(runs), 0)
    limit(engine, per_day=100_000)
    assert engine.retry(runs[1]) == 1
    engine.wait(runs[1])
    assert children(engine) == 10_000
    assert used(engine) == (10_002, 0)


def test_a_generator_is_refused_where_it_stands_and_what_exists_runs_on(engine: Engine) -> None:
    """The last chunk would fit, and is not stored behind one that did not."""
    engine.module("m", CODE)
    engine.deploy()
    limit(engine, per_day=1_500)
    engine.worker(slots=2)
    run = engine.submit("generated")
    error = engine.wait(run, "failed").error
    assert error["type"] == "QuotaExceeded"
    assert (error["position"], error["left"]) == (1_000, 499)
    engine.until(engine.slots_idle, "nothing runs")
    assert [status for _, status, *_ in engine.children(run)] == ["succeeded"] * 1_000


@pytest.mark.parametrize("pipeline", ["waits", "goes-on", "elsewhere"])
def test_a_single_child_waits_for_the_quota_and_goes_on_when_it_is_raised(
    engine: Engine, pipeline: str
) -> None:
    engine.module("m", STARTS)
    engine.deploy()
    limit(engine, per_day=1)
    engine.worker(slots=1)
    engine.worker(slots=1, pool="other")
    run = engine.submit(pipeline, {"n": 1})
    engine.until(lambda: engine.run(run).reason == "quota:all", "parked for the quota")
    parked = engine.run(run)
    assert parked.status == "waiting"
    renews = quotas.show(engine.conn, "all")["day_renews_at"]
    early = "select wake_at between %s::timestamptz - interval '5 s' and %s::timestamptz"
    assert engine.one(f"{early} + interval '5 s' from suimon.runs", renews, renews)
    told = why.why(engine.conn, run)
    assert "1 of 1 runs a day are used or reserved" in told["text"]
    assert told["quota"]["waiting"] == 1
    # somebody has swept twice, and it was not woken for nothing
    claims = parked.claim_no
    for _ in range(2):
        engine.sql("update suimon.duties set next_at = clock_timestamp() where name = 'quotas'")
        engine.until(
            lambda: engine.one("select next_at > clock_timestamp() from suimon.duties"
                               " where name = 'quotas'"), "swept")  # fmt: skip
    assert engine.run(run).claim_no == claims
    limit(engine, per_day=2)
    engine.wait(run)
    engine.until(engine.slots_idle, "nothing runs")
    assert engine.one("select count(*) from suimon.runs") == 2
    assert used(engine) == (2, 0)


def test_who_waits_for_a_quota_can_be_cancelled_and_goes_on_when_the_quota_is_removed(
    engine: Engine,
) -> None:
    engine.module("m", STARTS)
    engine.deploy()
    limit(engine, per_day=2)
    engine.worker(slots=1)
    stopped, woken = engine.submit("waits", {"n": 1}), engine.submit("waits", {"n": 2})
    for run in (stopped, woken):
        engine.until(lambda run=run: engine.run(run).reason == "quota:all", "parked")
    engine.cancel(stopped)
    engine.wait(stopped, "cancelled")
    quotas.remove(engine.conn, "all", actor="test")
    engine.wait(woken)


def test_a_renewed_quota_wakes_who_waits_for_it_at_its_instant(engine: Engine) -> None:
    """The instant is brought near: the run is woken by its own timer, as by any other."""
    engine.module("m", STARTS)
    engine.deploy()
    limit(engine, per_day=1)
    engine.worker(slots=1)
    run = engine.submit("waits", {"n": 1})
    engine.until(lambda: engine.run(run).reason == "quota:all", "parked for the quota")
    engine.sql("update suimon.quotas set day = day - 1")  # as if the day had been another one
    engine.sql("update suimon.runs set wake_at = clock_timestamp() where id = %s", run)
    engine.wait(run)
    assert used(engine) == (1, 0)


def test_a_spawner_that_is_killed_keeps_its_reservation_and_ends_with_it(engine: Engine) -> None:
    """Killed between its chunks, again and again: every child is counted once."""
    engine.module(
        "m",
        """
        @task
        def work(item):
            return item

        p = Pipeline("listed", concurrency=None)
        p.merge("out", p.spawn("kids", work, p.input.items))
        """,
    )
    engine.deploy()
    limit(engine, per_day=6_001)
    run = engine.submit("listed", {"items": list(range(6_000))})
    for made in (1, 3_000):
        worker = engine.worker(slots=1)
        engine.until(lambda made=made: children(engine) >= made, f"{made} children")
        worker.kill9()
        with connect(engine.url, name="looks") as conn:
            found = quotas.show(conn, "all")
        assert found["day_used"] == 6_001
    engine.worker(slots=2)
    engine.wait(run, patience=90)
    assert used(engine) == (6_001, 0)
    assert children(engine) == 6_000
