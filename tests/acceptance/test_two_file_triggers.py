"""Two pipelines take the files of one folder, both move them away, and each reads each file."""

from __future__ import annotations

import pytest
from support.engine import Engine

pytestmark = pytest.mark.acceptance

FILES = 20
CODE = """
import time
from suimon import File

@task
def count(rows):
    return sum(1 for _ in rows)

@task
def nap():
    time.sleep(0.2)
    return 1

fast = Pipeline("fast", concurrency=None)
fast.on(File("in/*.csv", settle="300ms", done="done/"))
fast.run("count", count, fast.read("rows", fast.input.path))

slow = Pipeline("slow", concurrency=None)
slow.on(File("in/*.csv", settle="300ms", done="done/"))
first = slow.run("nap", nap)
slow.run("count", count, slow.read("rows", slow.input.path), after=[first])
"""
ENDS = "select pipeline, status::text, count(*) from suimon.runs group by 1, 2 order by 1, 2"


def test_no_run_finds_its_file_gone(engine: Engine) -> None:
    """Twenty files at once, one pipeline much slower: each file is moved once, after both."""
    engine.module("m", CODE)
    inbox = engine.project.root / "in"
    inbox.mkdir()
    engine.deploy()
    engine.worker(slots=2, heartbeat_s=3.0)
    for n in range(FILES):
        (inbox / f"{n}.csv").write_text("a,b\n1,2\n")
    moved = inbox / "done"
    engine.until(lambda: moved.is_dir() and len(list(moved.iterdir())) == FILES, "all are moved")
    assert engine.sql(ENDS) == [("fast", "succeeded", FILES), ("slow", "succeeded", FILES)]
