"""C51, C53, C57: nested with one slot, creation interrupted, very large."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support.engine import Engine
from support.wait import wait_until

from suimon.worker import processes

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.long]

NESTED = """
@task
def leaf(n):
    note("leaf", n)
    return 1

@task
def total(outcome: MergeResult):
    return sum(c.value for c in outcome.succeeded)

@task
def inputs(n):
    return [{"n": i} for i in range(n)]

@task
def numbers(n):
    return list(range(n))

low = Pipeline("low", concurrency=None)
low.run("sum", total, low.merge("merged", low.spawn("leaves", leaf, low.run("list", numbers, 2))))
mid = Pipeline("mid", concurrency=None)
mid.run("sum", total, mid.merge("merged", mid.spawn("lows", low, mid.run("list", inputs, 3))))
top = Pipeline("top", concurrency=None)
top.run("sum", total, top.merge("merged", top.spawn("mids", mid, top.run("list", inputs, 3))))
two = Pipeline("two", concurrency=None)
two.run("sum", total, two.merge("merged", two.spawn("leaves", leaf, two.run("list", numbers, 9))))
"""


@pytest.mark.parametrize("kill", [False, True], ids=["undisturbed", "worker killed"])
def test_c51_fan_out_inside_fan_out_with_a_single_slot(engine: Engine, kill: bool) -> None:
    """**Set up** one worker with one slot; 3 x 3 x 2 nested, and a second pipeline that fans out.
    **Must** finish both; a parent that waits holds neither slot nor worker; killing the worker in
    the middle changes nothing but time.
    """
    engine.module("m", NESTED)
    engine.deploy()
    worker = engine.worker(slots=1)
    runs = [engine.submit("top"), engine.submit("two")]
    if kill:
        engine.noted("leaf", 7)
        worker.kill9()
        engine.worker(slots=1)
    assert [engine.wait(run).output for run in runs] == [18, 9]
    assert engine.sql("select distinct settles from suimon.fanouts") == [(1,)]
    held = "select count(*) from suimon.runs where status = 'waiting' and worker_id is not null"
    assert engine.one(held) == 0


PARTIAL = '''
@task
def rows(n, pause_at):
    """A list that stops once, in the middle, until somebody has died."""
    for i in range(n):
        if i == pause_at and once("paused-" + str(pause_at)):
            note("paused", pause_at, os.getpid())
            await_mark("on-" + str(pause_at))
        yield i

@task
def child(i, round):
    note("child-" + str(round), i)
    return i

@task
def total(outcome: MergeResult, round):
    note("merged-" + str(round))
    return [dict(outcome.counts), sum(c.value for c in outcome.succeeded)]

p = Pipeline("partial", concurrency=None)
items = p.run("items", rows, p.input.n, p.input.pause_at)
each = p.spawn("each", child, items, round=p.input.round)
p.run("total", total, p.merge("merged", each), p.input.round)
'''
CHILDREN = 5000
MOMENTS = [0, 1, 17, 500, 999, 1000, 1001, 1500, 1999, 2000, 2600, 3000, 3333, 3999, 4000, 4001,
           4500, 4998, 4999]  # fmt: skip


def cut_off(engine: Engine, how: str, slot: int) -> None:
    """Kill the process that creates the children, or cut its worker's connections."""
    if how == "slot":
        processes.kill(slot)
    elif how == "connection":
        engine.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name like 'suimon:%' and application_name <> 'suimon:test'"
            " and datname = current_database()"
        )
    else:
        engine.workers[-1].kill9()
        engine.worker(slots=2)


def test_c53_crash_half_way_through_creating_the_children(engine: Engine) -> None:
    """**Do** kill the creating process at 20 moments (its slot, its worker; or cut its database
    connections). **Must** each time end with exactly 5,000 children, each item once, one merge.
    """
    engine.module("m", PARTIAL)
    engine.deploy()
    engine.worker(slots=2)
    for number, moment in enumerate(MOMENTS):
        how = ("worker", "slot", "connection")[number % 3]
        given = {"n": CHILDREN, "pause_at": moment, "round": number}
        run_id = engine.submit("partial", given)
        paused = engine.noted("paused", number + 1)
        cut_off(engine, how, int(paused[-1][1]))
        engine.project.mark(f"on-{moment}")
        run = engine.wait(run_id)
        assert run.output[0]["succeeded"] == run.output[0]["total"] == CHILDREN, (how, moment)
        assert run.output[1] == CHILDREN * (CHILDREN - 1) // 2
        lines = Counter(int(n) for (n,) in engine.project.lines(f"child-{number}"))
        assert sorted(lines) == list(range(CHILDREN)), (how, moment)
        assert len(engine.project.lines(f"merged-{number}")) == 1
        stored = engine.one("select count(*) from suimon.runs where parent_id = %s", run_id)
        assert stored == CHILDREN


LARGE = """
@task
def numbers(n):
    for i in range(n):
        yield i

@task
def child(i):
    return i

@task
def total(outcome: MergeResult):
    return sum(c.value for c in outcome.succeeded)

@pipeline(concurrency=None)
def tiny():
    return 1

p = Pipeline("large")
each = p.spawn("each", child, p.run("items", numbers, p.input.n))
p.run("total", total, p.merge("merged", each))
"""


def test_c57_a_hundred_thousand_children(engine: Engine) -> None:
    """**Set up** 120,000 trivial items, two workers (two cores). **Do** start a tiny pipeline now
    and then. **Must** finish; the last tenth at most twice as slow as the first; the tiny one
    starts within 5 s; each process stays below 500 MB; the merge streams.
    """
    engine.module("m", LARGE)
    engine.deploy()
    workers = [engine.worker(slots=1, heartbeat_s=5.0) for _ in range(2)]
    n = 120_000
    run_id = engine.submit("large", {"n": n})
    done = "select coalesce(sum(succeeded), 0) from suimon.fanouts"
    tiny = []
    for part in range(1, 10):
        wait_until(lambda part=part: engine.one(done) >= n * part // 10, 60, f"{part}0 % done")
        tiny.append(engine.submit("tiny"))
    run = engine.wait(run_id, patience=90)
    assert run.output == n * (n - 1) // 2
    engine.wait_all(tiny)
    late = (
        "select max(extract(epoch from started_at - created_at)) from suimon.runs"
        " where pipeline = 'tiny'"
    )
    assert engine.one(late) < 5
    tenths = [
        row[0]
        for row in engine.sql(
            "select extract(epoch from max(finished_at) - min(finished_at)) from ("
            " select finished_at, ntile(10) over (order by finished_at) as tenth"
            " from suimon.runs where fanout_id is not null) as x group by tenth order by tenth"
        )
    ]
    assert tenths[9] < 2 * max(tenths[0], sorted(tenths)[5]), tenths
    for worker in workers:
        for pid in [worker.pid, *worker.slots()]:
            assert peak_mb(pid) < 500


def peak_mb(pid: int) -> float:
    """The most memory a process has had, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    (line,) = [line for line in lines if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1000
