"""The first seed's ledger: files, strictly in order, through failures and killed workers."""

from __future__ import annotations

import os

import pytest
from support.engine import Engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.long]

FILES = 500

CODE = """
from suimon import File

@pipeline(
    on=File("ledger/*.csv", settle="300ms", order="mtime"),
    concurrency=1, max_queued=20, retries=10, backoff="5ms..20ms", on_failure="hold",
    max_interruptions=20, pause_after="never",
)
def append(path, ctx):
    name = os.path.basename(path)
    number = int(name.removesuffix(".csv"))
    if number % 10 == 0:  # fails twice before it succeeds
        for time_ in ("first", "second"):
            if once(f"{number}-{time_}"):
                raise RuntimeError("the ledger is away")
    ledger = HERE + "/ledger"
    written = open(ledger).read().splitlines() if os.path.exists(ledger) else []
    if name not in written:  # a killed try may have written it: the far side must know its keys
        with open(ledger, "a") as out:
            out.write(name + chr(10))
    note("done", name)
"""


def test_500_files_are_500_lines_in_the_order_of_their_arrival(engine: Engine) -> None:
    """At most 20 wait as runs; every tenth fails twice; the worker is killed three times."""
    engine.module("m", CODE)
    folder = engine.project.root / "ledger"
    folder.mkdir()
    engine.deploy()
    worker = engine.worker(slots=2)
    for number in range(FILES):
        file = folder / f".{number:03}.part"
        file.write_text(f"entry {number}\n")
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
        file.rename(folder / f"{number:03}.csv")
    full = "select max(n) from (select count(*) n from suimon.runs where status = 'queued') q"
    for share in (4, 2, 1.3):
        engine.until(
            lambda share=share: len(engine.project.lines("done")) >= FILES / share / 1.2,  # type: ignore[misc]
            f"a share of 1/{share} is done",
            90,
        )
        assert engine.one(full) <= 20
        worker.kill9()
        worker = engine.worker(slots=2)
    done = "select count(*) from suimon.runs where pipeline = 'append' and status = 'succeeded'"
    engine.until(lambda: engine.one(done) == FILES, "all files have run", 120)
    ledger = (engine.project.here / "ledger").read_text().splitlines()
    assert ledger == [f"{number:03}.csv" for number in range(FILES)]
    assert engine.one("select count(*) from suimon.runs") == FILES
    again = "select count(*) from suimon.attempts where how = 'failed'"
    assert engine.one(again) == 2 * FILES // 10
    states = engine.sql("select distinct state from suimon.deliveries")
    assert states == [("delivered",)]
