"""Slots with secrets serve one pipeline, steps have their own, keys change under live workers."""

from __future__ import annotations

import pytest
from support.engine import Engine
from support.secrets import KEY, NEW, VALUE, ring, store
from support.worker_process import WorkerProcess

from suimon.store import secret

pytestmark = pytest.mark.acceptance

AFFINITY = """
@pipeline(concurrency=None, secrets=["crm"])
def one(ctx):
    return [os.getpid(), len(ctx.secret("crm"))]

@pipeline(concurrency=None, secrets=["erp"])
def two(ctx):
    return [os.getpid(), len(ctx.secret("erp"))]

@pipeline(concurrency=None)
def three():
    return [os.getpid(), 0]
"""


def test_a_slot_that_held_a_secret_serves_no_other_pipeline(engine: Engine) -> None:
    engine.module("m", AFFINITY)
    engine.deploy()
    store(engine)
    store(engine, "erp", "the other value")
    worker = engine.command_worker(slots=1, env={"SUIMON_SECRET_KEY": KEY})
    first = [engine.wait(engine.submit("three")).output[0] for _ in range(2)]
    assert len(set(first)) == 1
    ones = {engine.wait(engine.submit("one")).output[0] for _ in range(3)}
    assert ones == set(first), "it has held none before"
    two = engine.wait(engine.submit("two")).output[0]
    three = engine.wait(engine.submit("three")).output[0]
    assert len({*ones, two, three}) == 3
    assert worker.log.count("it has held secrets of") == 2


def test_a_pipeline_alone_binds_no_more_slots_than_it_uses(engine: Engine) -> None:
    """So others find a slot without a new process."""
    engine.module("m", AFFINITY)
    engine.deploy()
    store(engine)
    worker = engine.command_worker(slots=3, env={"SUIMON_SECRET_KEY": KEY})
    ones = {engine.wait(engine.submit("one")).output[0] for _ in range(6)}
    threes = {engine.wait(engine.submit("three")).output[0] for _ in range(6)}
    assert len(ones) == 1
    assert not ones & threes
    assert "it has held secrets of" not in worker.log


def test_no_slot_serves_two_pipelines_of_a_crowd(engine: Engine) -> None:
    engine.module("m", AFFINITY)
    engine.deploy()
    store(engine)
    store(engine, "erp", "the other value")
    engine.command_worker(slots=2, env={"SUIMON_SECRET_KEY": KEY})
    runs = {
        name: engine.submit_many(name, [{} for _ in range(40)]) for name in ("one", "two", "three")
    }
    seen: dict[str, set[int]] = {}
    for name, ids in runs.items():
        engine.wait_all(ids)
        seen[name] = {engine.run(one).output[0] for one in ids}
    assert not seen["one"] & seen["two"]


def test_each_step_has_its_own_grants(engine: Engine) -> None:
    engine.module(
        "m",
        """
        @task(secrets=["crm"])
        def one(ctx):
            return len(ctx.secret("crm"))

        @task(secrets=["erp"])
        def two(n, ctx):
            return n + len(ctx.secret("erp"))

        @task
        def three(n, ctx):
            try:
                ctx.secret("erp")
            except Fatal:
                raise
            except Exception as error:
                return [n, error.code]

        p = Pipeline("steps", concurrency=None)
        p.run("three", three, p.run("two", two, p.run("one", one)))
        """,
    )
    engine.deploy()
    store(engine)
    store(engine, "erp", "the other value")
    engine.command_worker(slots=2, env={"SUIMON_SECRET_KEY": KEY})
    run = engine.wait(engine.submit("steps"))
    assert run.output == [len(VALUE) + len("the other value"), "SUI-8004"]


def test_children_of_a_fan_out_have_theirs(engine: Engine) -> None:
    engine.module(
        "m",
        """
        @task(secrets=["crm"])
        def each(n, ctx):
            return len(ctx.secret("crm")) + n

        p = Pipeline("many", concurrency=None)
        p.spawn("kids", each, list(range(300)))
        """,
    )
    engine.deploy()
    store(engine)
    engine.command_worker(slots=2, env={"SUIMON_SECRET_KEY": KEY})
    engine.wait(run := engine.submit("many"))
    ends = "select count(*), sum(output::int) from suimon.runs where parent_id = %s"
    assert engine.sql(ends, run) == [(300, 300 * len(VALUE) + 299 * 150)]


def test_async_tasks_of_two_pipelines_share_no_slot_with_secrets(engine: Engine) -> None:
    engine.module(
        "m",
        """
        @pipeline(concurrency=None, secrets=["crm"])
        async def one(ctx):
            note("seen", os.getpid(), "one", len(ctx.secret("crm")))
            await asyncio.sleep(0.01)

        @pipeline(concurrency=None)
        async def two():
            await asyncio.sleep(0.01)
            note("seen", os.getpid(), "two")
        """,
    )
    engine.deploy()
    store(engine)
    engine.command_worker("--async-per-slot", "4", slots=2, env={"SUIMON_SECRET_KEY": KEY})
    engine.wait_all([engine.submit(("one", "two")[n % 2]) for n in range(40)])
    bound: set[str] = set()
    for pid, name, *_ in engine.noted("seen", 40):
        if name == "one":
            bound.add(pid)
        assert name == "one" or pid not in bound, "a run of another pipeline beside or after it"


def until_value(engine: Engine, length: int) -> None:
    def there() -> bool:
        return bool(engine.wait(engine.submit("one")).output[1] == length)

    engine.until(there, f"a value of {length} characters")


def test_keys_are_rotated_under_running_workers(engine: Engine) -> None:
    """With both keys in every process, nothing fails while values are encrypted anew."""
    engine.module("m", AFFINITY)
    engine.deploy()
    store(engine)
    both = {"SUIMON_SECRET_KEY": NEW, "SUIMON_SECRET_KEY_OLD": KEY}
    engine.command_worker(slots=1, env=both)
    until_value(engine, len(VALUE))
    cli(engine, "secrets", "rotate", env=both)
    assert engine.sql("select count(*) from suimon.secret_keys") == [(1,)]
    secret.put(engine.conn, ring(NEW), "crm", "new value", by="test")
    until_value(engine, len("new value"))
    fine = engine.command_worker(slots=1, env={"SUIMON_SECRET_KEY": NEW})
    assert fine.running
    old = engine.command("worker", str(engine.project.root), env={"SUIMON_SECRET_KEY": KEY})
    assert old.wait() == 4


def cli(engine: Engine, *words: str, env: dict[str, str]) -> WorkerProcess:
    done = engine.command(*words, env=env)
    assert done.wait() == 0, done.log
    return done
