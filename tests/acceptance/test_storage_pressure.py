"""A load ten times the store's mark, through real workers: all of it ends, the store stays small.

Twenty-five fan-outs of eight megabytes want into a store whose mark is at twenty. Each child writes
its item's digest to a file that the engine does not know, each run the number of children that its
merge saw; in the end every item and every run stands there, everything was pruned, and the store,
sampled all the while, was never above its mark by more than the chunks under way.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from support.engine import Engine

from suimon.db.connect import connect
from suimon.run import pressure
from suimon.worker import wire

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.long]

FANOUTS, ITEMS, TEXT = 25, 500, 12_000  # 16,000 characters in base64: 8 MB each, 200 MB in all
GENERATED = 5  # of them come from a generator, whose size nobody knows before
HIGH = 20_000_000
SLOTS = 2
CHUNK = wire.CHUNK_BYTES + 17_000
CODE = """
import base64, hashlib, random

def made(seed):
    chance = random.Random(seed)
    for n in range({items}):
        text = base64.b64encode(chance.randbytes({size})).decode()
        yield {{"of": seed, "n": n, "text": text}}

@task
def generated(seed):
    yield from made(seed)

@task
def child(row):
    digest = hashlib.sha256(row["text"].encode()).hexdigest()
    note("items", row["of"], row["n"], digest)

@task
def report(seed, outcome):
    note("reports", seed, outcome.counts["succeeded"])

files = Pipeline("files", concurrency=None, keep={{"count": 0}})
rows = files.read("rows", files.input.path)
files.run("report", report, files.input.seed, files.merge("all", files.spawn("kids", child, rows)))

lists = Pipeline("generators", concurrency=None, keep={{"count": 0}})
rows = lists.run("rows", generated, lists.input.seed)
lists.run("report", report, lists.input.seed, lists.merge("all", lists.spawn("kids", child, rows)))
"""


def only(pipeline: str, count: int) -> list[tuple[str, dict[str, object]]]:
    return [(pipeline, {"seed": seed}) for seed in range(count)]


class Samples:
    """What a thread with a connection of its own has seen of the store so far."""

    def __init__(self) -> None:
        self.highest = 0
        self.deferred = 0


@contextmanager
def sampled(url: str) -> Iterator[Samples]:
    seen, over = Samples(), threading.Event()

    def look() -> None:
        with connect(url, name="sampler") as conn:
            while not over.wait(0.02):
                row = conn.execute(
                    b"select suimon.store_bytes(),"
                    b" (select count(*) from suimon.runs where reason = 'storage')"
                ).fetchone()
                assert row is not None
                seen.highest = max(seen.highest, int(row[0]))
                seen.deferred = max(seen.deferred, int(row[1]))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def inputs(folder: Path) -> list[tuple[str, dict[str, object]]]:
    """(pipeline, input) of every fan-out; the files lie in the project's folder."""
    names: dict[str, object] = {}
    exec(CODE.format(items=ITEMS, size=TEXT).split("@task")[0], names)
    made = names["made"]
    assert callable(made)
    asked: list[tuple[str, dict[str, object]]] = []
    for seed in range(FANOUTS):
        if seed % (FANOUTS // GENERATED) == 2:
            asked.append(("generators", {"seed": seed}))
            continue
        path = folder / f"{seed}.jsonl"
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in made(seed)))
        asked.append(("files", {"seed": seed, "path": str(path)}))
    return asked


@pytest.mark.parametrize("killed", [False, True], ids=["", "kill-9"])
def test_ten_times_the_mark_goes_through(engine: Engine, *, killed: bool) -> None:
    engine.module("m", CODE.format(items=ITEMS, size=TEXT))
    engine.deploy()
    asked = inputs(engine.project.root)
    pressure.change(engine.conn, {"high_bytes": HIGH}, actor="test")
    worker = engine.worker(slots=SLOTS)
    with sampled(engine.url) as seen:
        for pipeline, given in asked:
            engine.submit(pipeline, given)
        if killed:
            engine.until(lambda: seen.deferred, "somebody was deferred")
            worker.kill9()
            engine.worker(slots=SLOTS)
        left = "select count(*) from suimon.runs"
        engine.until(lambda: not engine.one(left), "everything ended and was pruned", 110)
    assert {line[0] for line in engine.project.lines("reports")} == {str(n) for n in range(FANOUTS)}
    assert {line[1] for line in engine.project.lines("reports")} == {str(ITEMS)}
    found = {tuple(line) for line in engine.project.lines("items")}
    assert len(found) == FANOUTS * ITEMS
    assert Counter(len(one[2]) for one in found) == {len(hashlib.sha256().hexdigest()): len(found)}
    assert seen.deferred > 0
    assert HIGH / 2 < seen.highest <= HIGH + SLOTS * CHUNK
    assert engine.one("select suimon.store_bytes()") == 0


def test_two_that_each_need_more_than_the_mark_end_one_after_the_other(engine: Engine) -> None:
    """Generators do not say how much they bring: both are half stored when the mark is met. Nothing
    else can make room, so the older one goes on above the mark, and the other one after it.
    """
    engine.module("m", CODE.format(items=3 * ITEMS, size=TEXT))
    engine.deploy()
    pressure.change(engine.conn, {"high_bytes": HIGH}, actor="test")
    asked = only("generators", 2)
    with sampled(engine.url) as seen:
        for pipeline, given in asked:
            engine.submit(pipeline, given)
        engine.worker(slots=SLOTS)
        left = "select count(*) from suimon.runs"
        engine.until(lambda: not engine.one(left), "both ended", 60)
    reports = {tuple(line) for line in engine.project.lines("reports")}
    assert reports == {(str(n), str(3 * ITEMS)) for n in range(2)}
    assert seen.deferred > 0
    assert seen.highest < 2 * 3 * ITEMS * 16_000, "the other one waited"
    assert engine.one("select suimon.store_bytes()") == 0
