"""C14: all doors at once, and never two runs of a pipeline that runs one at a time."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.engine import Engine
from support.serving import serving

from suimon import Client

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.long]

ROUNDS = 4
CALLS, STARTS, FILES, EVENTS = 20, 10, 5, 5

CODE = """
import fcntl
from suimon import Event, Every, File, Webhook

DOORS = [
    Webhook("hit"), Event("hit"), File("inbox/*.txt", settle="200ms"),
    Every("1s", anchor="2026-01-01T00:00:00Z"),
]

@pipeline(on=DOORS, concurrency=1, max_queued=None, max_interruptions=20)
def alone(ctx, **given):
    with open(path("lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # found taken: BlockingIOError
        note("begun", os.getpid(), ctx.idempotency_key)
        time.sleep(0.02 if os.path.exists(path("fast")) else 0.05)
    note("ended", ctx.idempotency_key)
"""


def test_c14_never_two_runs_at_a_time_whatever_the_door(engine: Engine, tmp_path: Path) -> None:
    """Three workers and two servers, all keeping the doors; one worker is killed meanwhile."""
    engine.module("m", CODE)
    inbox = engine.project.root / "inbox"
    inbox.mkdir()
    engine.deploy()
    workers = [engine.worker(slots=2) for _ in range(3)]
    with (
        serving(engine.url, tmp_path / "a") as one,
        serving(engine.url, tmp_path / "b") as two,
        ThreadPoolExecutor(8) as pool,
        Client(engine.url) as client,
    ):
        for number in range(ROUNDS):
            calls = [
                pool.submit(
                    (one, two)[call % 2].post,
                    "/webhooks/hit",
                    {"call": call},
                    headers={"Idempotency-Key": f"{number}-{call}"},
                )
                for call in range(CALLS)
            ]
            for file in range(FILES):
                (inbox / f"{number}-{file}.txt").write_text(f"{number} {file}")
            for event in range(EVENTS):
                client.emit("hit", {"n": event}, key=f"{number}-{event}")
            for start in range(STARTS):
                client.submit("alone", {"start": start})
            assert {call.result().status_code for call in calls} == {202}
            if number == 2:
                _kill_who_runs(engine, workers)
        wanted = ROUNDS * (CALLS + STARTS + FILES + EVENTS)
        others = (
            "select count(*) from suimon.runs r where r.status = 'succeeded' and not exists (select"
            " from suimon.deliveries d join suimon.triggers t on t.id = d.trigger_id"
            " where d.run_id = r.id and t.kind = 'EVERY')"
        )
        engine.until(lambda: engine.one(others) == wanted, "all that came has run", 120)
    assert engine.one("select count(*) from suimon.runs where error is not null") == 0
    ended = [key for (key,) in engine.project.lines("ended")]
    assert len(set(ended)) >= wanted
    # the killed one may have ended without its record: then it ran once more, as a new try
    lost = engine.one("select count(*) from suimon.attempts where how = 'interrupted'")
    assert len(ended) - len(set(ended)) <= lost <= 1
    in_order = "select id from suimon.runs where status = 'succeeded' order by "
    assert engine.sql(in_order + "finished_at") == engine.sql(in_order + "started_at")


def _kill_who_runs(engine: Engine, workers: list) -> None:  # type: ignore[type-arg]
    """kill -9 of the worker that holds the running one; another takes its place."""

    def look() -> str | None:
        rows = engine.sql(
            "select w.name from suimon.runs r join suimon.workers w on w.id = r.worker_id"
            " where r.status = 'running' limit 1"
        )
        return rows[0][0] if rows else None

    name = engine.until(look, "somebody runs")
    for worker in workers:
        if worker.name == name:
            with contextlib.suppress(ProcessLookupError):
                worker.kill9()
    engine.worker(slots=2)
