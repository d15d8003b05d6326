"""C77: the database is migrated while workers of the old version run."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from support.engine import Engine
from support.worker_process import WorkerProcess

from suimon.db import migrate
from suimon.db.connect import connect
from suimon.run import doors

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

NEXT = Path(__file__).parents[1] / "support" / "next_main.py"
GATE = 77_077
RUNS_A_SECOND = 50
CODE = """
@pipeline(concurrency=None)
def short(n):
    note("done", n)
    return n

@pipeline(concurrency=None)
def long(n):
    note("long", n)
    await_mark("go")
    return n
"""


class Load(threading.Thread):
    """Submits 50 runs a second until it is told to stop."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.ids, self.ending = url, [], threading.Event()  # type: ignore[var-annotated]
        self.error: Exception | None = None

    def run(self) -> None:
        began = time.monotonic()
        try:
            with connect(self.url, name="load") as conn:
                while not self.ending.wait(0.1):
                    due = int((time.monotonic() - began) * RUNS_A_SECOND) - len(self.ids)
                    given = [{"n": len(self.ids) + i} for i in range(due)]
                    self.ids += [one.id for one in doors.start_many(conn, "short", given)]
        except Exception as error:  # noqa: BLE001 - the test says it
            self.error = error


def test_c77_upgrade_while_old_workers_run(engine: Engine) -> None:
    """**Set up** 4 old workers at 50 runs a second, long runs under way. **Do** the migration,
    killed in the middle, then twice in parallel. **Must** end completely or not at all; one of the
    two finds nothing to do; old workers stop with a clear message and exit code 78; nothing is
    lost, nothing done twice but what the stop interrupted.
    """
    engine.module("m", CODE)
    engine.deploy()
    old = [engine.worker(slots=2, heartbeat_s=1.0) for _ in range(4)]
    long = engine.submit_many("long", [{"n": n} for n in range(2)])
    engine.noted("long", 2)
    load = Load(engine.url)
    load.start()
    engine.noted("done", RUNS_A_SECOND)

    before = version(engine)
    with connect(engine.url, name="gate") as gate:
        gate.execute("select pg_advisory_lock(%s)", (GATE,))
        torn = migrator(engine, "torn", str(GATE))
        waits = "select count(*) from pg_locks where objid = %s and not granted"
        engine.until(lambda: gate.execute(waits, (GATE,)).fetchone() != (0,), "in the middle", 20)
        torn.kill9()
    assert version(engine) == before
    assert all(worker.running for worker in old)
    done = len(engine.project.lines("done"))
    engine.noted("done", done + RUNS_A_SECOND)
    assert not engine.one("select count(*) from suimon.attempts"), "nobody was disturbed by it"

    both = [migrator(engine, "one"), migrator(engine, "two")]
    assert [each.wait() for each in both] == [0, 0], "\n".join(each.tail() for each in both)
    title = f"{before + 1:04}_next"
    assert sorted(title in each.log for each in both) == [False, True]
    assert version(engine) == before + 1
    assert [worker.wait() for worker in old] == [78] * 4
    for worker in old:
        assert f"the database is at schema version {before + 1} now" in worker.log
        assert "Traceback" not in worker.log
    again = migrator(engine, "again")
    assert again.wait() == 0
    assert title not in again.log

    news = [engine.worker(slots=2, heartbeat_s=1.0, main=NEXT) for _ in range(2)]
    engine.project.mark("go")
    seen = len(engine.project.lines("done"))
    engine.noted("done", seen + RUNS_A_SECOND)
    load.ending.set()
    load.join(20)
    assert load.error is None
    engine.wait_all([*load.ids, *long])
    assert all(worker.running for worker in news)
    wrong = "(output #>> '{}')::int is distinct from (input ->> 'n')::int or interruptions > 1"
    assert not engine.one(f"select count(*) from suimon.runs where {wrong}")
    times = Counter(int(words[0]) for words in engine.project.lines("done"))
    assert set(times) == set(range(len(load.ids)))
    twice = {n for n, count in times.items() if count > 1}
    interrupted = engine.sql(
        "select r.input ->> 'n' from suimon.runs r join suimon.attempts a on a.run_id = r.id"
        " where r.pipeline = 'short'"
    )
    assert twice <= {int(row[0]) for row in interrupted}


def version(engine: Engine) -> int:
    """As the database says; also that nothing else of the migration is there without it."""
    number = int(engine.one("select schema_version from suimon.meta"))
    column, table, recorded = engine.sql(
        "select exists (select from information_schema.columns where table_schema = 'suimon'"
        " and table_name = 'runs' and column_name = 'next_note'),"
        " to_regclass('suimon.next_things') is not null,"
        " (select max(number) from suimon.migrations)"
    )[0]
    there = number > migrate.schema_version()
    assert (column, table, recorded) == (there, there, number)
    return number


def migrator(engine: Engine, name: str, *gate: str) -> WorkerProcess:
    """`suimon db migrate` of the next version."""
    command = [sys.executable, str(NEXT), "migrate", *gate]
    log = engine.folder / f"{name}.log"
    made = WorkerProcess(name, command, log, stdin=engine.url + "\n")
    engine.workers.append(made)
    return made
