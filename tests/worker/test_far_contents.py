"""Real workers with an object store: large values go through it, and its absence loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.contents import ObjectStore, text_of, wrong_counts
from support.engine import Engine
from support.engine_fixtures import engine

__all__ = ["engine"]

CODE = """
@pipeline(concurrency=None)
def echo(text):
    return {"text": text, "more": "x" * 100_000}

@task
def large(item):
    return {"n": item, "text": str(item) * 70_000}

@task
def summed(outcome):
    return sorted(child.value["n"] for child in outcome.succeeded)

p = Pipeline("fan", concurrency=None)
kids = p.spawn("kids", large, p.input["items"])
p.run("sum", summed, p.merge("merged", kids))
"""


def test_inputs_and_results_of_a_fan_out_go_through_the_store(
    engine: Engine, tmp_path: Path
) -> None:
    store = ObjectStore(tmp_path / "objects")
    store.use(engine.conn)
    engine.module("far", CODE)
    engine.deploy()
    engine.worker()
    run = engine.submit("fan", {"items": list(range(10, 30))})
    assert engine.wait(run).output == list(range(10, 30))
    text = text_of(1, 80_000)
    echoed = engine.wait(engine.submit("echo", {"text": text}))
    assert echoed.output == {"text": text, "more": "x" * 100_000}
    assert len(store.names()) == 22
    assert wrong_counts(engine.conn) == []


def test_a_run_whose_input_is_away_waits_and_is_done_when_it_is_back(
    engine: Engine, tmp_path: Path
) -> None:
    """It says why it waits, spends no try, and others go on meanwhile."""
    store = ObjectStore(tmp_path / "objects")
    store.use(engine.conn)
    engine.module("far", CODE)
    engine.deploy()
    text = text_of(1, 80_000)
    far = engine.submit("echo", {"text": text})
    store.go()
    engine.worker()
    engine.until(lambda: engine.run(far).reason == "unreadable", "it says what it waits for")
    near = engine.wait(engine.submit("echo", {"text": "near"}))
    assert near.output["text"] == "near"
    store.come_back()
    engine.sql("update suimon.runs set wake_at = clock_timestamp() where id = %s", far)
    done = engine.wait(far)
    assert (done.output["text"], done.attempt) == (text, 1)
    assert wrong_counts(engine.conn) == []


@pytest.mark.acceptance
@pytest.mark.slow
def test_killed_workers_leave_no_object_without_a_row(engine: Engine, tmp_path: Path) -> None:
    """Killed between intent, put and reference, wherever it meets them: all children end, every
    count is true, and each object has the row by which it will go.
    """
    store = ObjectStore(tmp_path / "objects")
    store.use(engine.conn)
    engine.module("far", CODE)
    engine.deploy()
    run = engine.submit("fan", {"items": list(range(100, 400))})
    stored = "select count(*) from suimon.contents"
    for _ in range(2):
        before = engine.one(stored)
        worker = engine.worker()
        engine.until(lambda before=before: engine.one(stored) > before + 3, "it stores results")
        assert not engine.run(run).over
        worker.kill9()
    engine.worker()
    assert engine.wait(run).output == list(range(100, 400))
    assert wrong_counts(engine.conn) == []
    rows = engine.sql("select split_part(place, '/', -1), refs from suimon.contents")
    begun = {name for name in store.names() if "#" in name}  # by the killed; goes with its object
    assert store.names() - begun == {name for name, _ in rows} >= {n.split("#")[0] for n in begun}
    assert [refs for _, refs in rows if refs == 0] == []
