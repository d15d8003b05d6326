"""C05, C06, C07, C09: notifications lost, the database away, large inputs, no connections left."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from support.database import Databases, chosen_bin, open_folder
from support.engine import Engine, engine_on

from suimon.core.clock import monotonic
from suimon.db.connect import connect
from suimon.db.embedded import EmbeddedServer
from suimon.errors import DatabaseUnavailable, InputRefused, PayloadTooLarge, SuimonError
from suimon.worker.listener import POLL_SECONDS

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

CODE = """
@pipeline(concurrency=None)
def short(n=0):
    return n

@pipeline(concurrency=None)
def held(n=0, ctx=None):
    note("held", n, ctx.attempt)
    await_mark("go")
    note("done", n)
    return n

@pipeline(concurrency=None)
def sized(text):
    return len(text)
"""


@pytest.fixture
def deployed(engine: Engine) -> Engine:
    engine.module("m", CODE)
    engine.deploy()
    return engine


def test_c05_notifications_lost_while_the_listener_is_away(deployed: Engine) -> None:
    """**Do** end the listening connection again and again while 200 short runs are submitted at
    random moments. **Must** start all, none later than the polling interval and 2 s; the log
    shows reconnects, no crash.
    """
    worker = deployed.worker(slots=2)
    random.seed(5)
    runs = []
    cut = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where application_name = 'suimon:listen' and datname = current_database()"
    )
    for number in range(200):
        if random.random() < 0.25:
            deployed.until(lambda: deployed.one(cut), "the listener was cut off")
        if random.random() < 0.5:
            deployed.until(deployed.slots_idle, "the worker is idle")
        runs.append(deployed.submit("short", {"n": number}))
    deployed.wait_all(runs)
    late = deployed.one("select max(extract(epoch from started_at - created_at)) from suimon.runs")
    assert late < POLL_SECONDS + 2
    assert "the listening connection broke" in worker.log
    assert "Traceback" not in worker.log
    assert worker.running


@pytest.mark.parametrize("outage", ["shorter than the lease", "longer than the lease"])
def test_c06_database_away(own_engine: Engine, own_server: EmbeddedServer, outage: str) -> None:
    """**Set up** two workers, five runs under way. **Do** stop the database at once (immediate
    shutdown), start it again. **Must** no process exits; the runs go on, or are recovered once when
    their worker could not renew in time; none is finished twice; new work is taken.
    (Scheduler, web server and the missed cron minute belong to the doors that bring them.)
    """
    long = outage == "longer than the lease"
    own_engine.module("m", CODE)
    own_engine.deploy()
    workers = [own_engine.worker(slots=3, heartbeat_s=0.4 if long else 60.0) for _ in range(2)]
    runs = own_engine.submit_many("held", [{"n": n} for n in range(5)])
    own_engine.noted("held", 5)
    assert own_server.pid
    os.kill(own_server.pid, signal.SIGQUIT)
    own_engine.until(lambda: not own_server.running, "the server has stopped")
    for worker in workers if long else ():
        own_engine.until(
            lambda w=worker: "ending the slots before others take over" in w.log,
            "its slots ended in time",
        )
    own_server.start()
    back_at = monotonic()
    if long:
        own_engine.until(lambda: len(own_engine.project.lines("held")) >= 10, "all begun again")
    own_engine.project.mark("go")
    own_engine.wait_all(runs)
    assert monotonic() - back_at < 30
    assert all(worker.running for worker in workers)
    tries = 2 if long else 1
    for run in runs:
        assert own_engine.run(run).attempt == tries
        assert [row[1] for row in own_engine.attempts(run)] == ["interrupted"] * (tries - 1)
    assert len(own_engine.project.lines("held")) == 5 * tries
    assert len(own_engine.project.lines("done")) == 5
    own_engine.wait_all(own_engine.submit_many("short", [{"n": n} for n in range(10)]))


def test_c07_inputs_larger_than_a_notification(deployed: Engine) -> None:
    """**Set up** 1,000 runs are queued. **Do** start runs with inputs of 7,999, 8,000, 8,001 bytes,
    1 MB, and 3,000 Japanese characters. **Must** accept them all; above the limit of 16 MiB the
    call is refused and nothing is stored; they start as fast as small ones.
    """
    deployed.submit_many("short", [{"n": n} for n in range(1000)])
    frame = len('{"text":""}')
    texts = ["x" * (size - frame) for size in (7_999, 8_000, 8_001, 8_192, 8_193, 1_000_000)]
    texts.append("水" * 3000)
    runs = [deployed.submit("sized", {"text": text}) for text in texts]
    stored = deployed.one("select count(*) from suimon.runs")
    with pytest.raises((PayloadTooLarge, InputRefused)) as refused:
        deployed.submit("sized", {"text": "x" * (16 * 1024 * 1024)})
    assert isinstance(refused.value, SuimonError)
    assert "16" in refused.value.render()
    assert deployed.one("select count(*) from suimon.runs") == stored
    assert deployed.one("select count(*) from suimon.payloads where name = 'input'") == 3
    deployed.worker(slots=2)
    deployed.wait_all(runs)
    assert [deployed.run(run).output for run in runs] == [len(text) for text in texts]
    assert deployed.one("select count(*) from suimon.runs where status = 'failed'") == 0


# ---------------------------------------------------------------------------------------- C09

#: What one worker holds at most, however many slots it has: batches, what parents need between
#: their steps, heartbeats, listening, upkeep.
CONNECTIONS_PER_WORKER = 5
MAX_CONNECTIONS = 40


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[Engine]:
    """A server with few connections."""
    folder = open_folder("suimon-crowded-")
    settings = {"max_connections": str(MAX_CONNECTIONS)}
    try:
        with EmbeddedServer(folder / "pg", bin=chosen_bin(), settings=settings) as server:
            databases = Databases(server.url)
            with databases.fresh() as url, engine_on(url, tmp_path / "engine") as engine:
                yield engine
            databases.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def connections(engine: Engine) -> int:
    """The workers' connections, the test's own not counted."""
    count = (
        "select count(*) from pg_stat_activity where application_name like 'suimon:%%'"
        " and application_name <> 'suimon:test' and application_name <> %s"
    )
    return int(engine.one(count, "suimon:crowd"))


def test_c09_database_connections_used_up(crowded: Engine) -> None:
    """**Set up** 40 connections, three workers with many slots. **Do** start 300 runs; take all
    free connections away and cut the workers'; give them back. **Must** hold a bounded number of
    connections per process, whatever its slots; nothing fails for the shortage; all 300 finish;
    afterwards there are no more connections than before.
    """
    engine = crowded
    engine.module("m", CODE)
    engine.deploy()
    workers = [engine.worker(slots=4, heartbeat_s=2.0) for _ in range(3)]
    engine.wait_all(engine.submit_many("short", [{"n": n} for n in range(50)]))
    before = connections(engine)
    assert before <= CONNECTIONS_PER_WORKER * len(workers)
    runs = engine.submit_many("held", [{"n": n} for n in range(12)])
    runs += engine.submit_many("short", [{"n": n} for n in range(288)])
    engine.noted("held", 6)
    crowd = take_all(engine)
    engine.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name in ('suimon:worker', 'suimon:listen', 'suimon:upkeep')"
    )
    crowd += take_all(engine)
    engine.project.mark("go")
    for worker in workers:
        engine.until(lambda w=worker: "trying again" in w.log or "broke" in w.log, "it noticed")
    for one in crowd:
        one.close()
    engine.wait_all(runs)
    assert all(worker.running for worker in workers)
    assert engine.one("select count(*) from suimon.runs where status <> 'succeeded'") == 0
    engine.until(lambda: connections(engine) <= before, "no more connections than before")


def take_all(engine: Engine) -> list[psycopg.Connection[tuple[object, ...]]]:
    """Idle sessions on every connection that is free; at most as many as there are."""
    taken: list[psycopg.Connection[tuple[object, ...]]] = []
    for _ in range(MAX_CONNECTIONS):
        try:
            taken.append(connect(engine.url, name="crowd"))
        except DatabaseUnavailable:
            break
    return taken
