"""A million finished runs in the tables: what taking work, lists and switching off cost beside it.

``load`` fills a database in bulk, without the secondary indexes of ``suimon.runs``, which are made
again afterwards; the tests of plans (``tests/cases/test_c11_history.py``) use it too.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from bench.meter import Figure, spread
from bench.place import SQL, Place
from suimon.db.connect import Connection, connect, hot
from suimon.run import claim, deploy, pages, pause, rescue, submit

if TYPE_CHECKING:
    from bench.scenarios import Size

PIPELINES = 50
QUEUED = 2_000
#: How often each question is asked.
TIMES = 15
_TRIGGER = {"type": "EVERY", "every": "7d", "anchor": "2026-01-01T00:00:00Z"}
_VERTICES = {"t": {"type": "TASK", "config": {"task": "m:f"}}}


def load(conn: Connection, runs: int) -> None:
    """Fifty pipelines with a trigger each, ``runs`` finished runs of them with a step and a log
    text each, and 2,000 queued ones.
    """
    graphs = [
        {
            "suimon": 1, "pipeline": f"p{n}", "concurrency": "unlimited", "maxQueued": "unlimited",
            "triggers": [_TRIGGER], "vertices": _VERTICES,
        }
        for n in range(PIPELINES)
    ]  # fmt: skip
    made = [(graph, orjson.dumps(graph, option=orjson.OPT_SORT_KEYS)) for graph in graphs]
    deploy.deploy(
        conn,
        [
            deploy.Definition(str(graph["pipeline"]), hashlib.sha256(text).hexdigest(), graph)
            for graph, text in made
        ],
    )
    indexes = conn.execute(SQL.secondary_indexes).fetchall()
    for name, _ in indexes:
        conn.execute(f"drop index suimon.{name}".encode())
    conn.execute(SQL.triggers_off)
    for statement in (SQL.load_runs, SQL.load_steps, SQL.load_logs):
        conn.execute(statement, {"runs": runs, "pipelines": PIPELINES})
    conn.execute(SQL.triggers_on)
    for _, definition in indexes:
        conn.execute(definition.encode())
    conn.execute(SQL.analyze)
    for n in range(PIPELINES):
        asked = [submit.Request(b"%d" % i) for i in range(QUEUED // PIPELINES)]
        submit.submit(conn, f"p{n}", asked)


def history(place: Place, size: Size) -> list[Figure]:
    """Times of what people and workers ask most, by one client."""
    conn = place.conn
    load(conn, size.million)
    facts: dict[str, Any] = {
        "name": "bench", "pool": "default", "slots": 1, "host": "here", "pid": 1, "boot_id": "b",
        "pid_started": "1", "package_version": "0", "beat_ms": 600_000, "tasks": ["m:f"],
    }  # fmt: skip
    worker = rescue.register(conn, facts)
    oldest = str(place.one(SQL.early_run)[0])
    trigger = f"trigger:{place.one(SQL.a_trigger)[0]}"

    def take() -> None:
        with working.transaction():
            floors = [0] * claim.PRIORITIES
            sent = claim.send(working, pool="default", worker=worker, n=10, floors=floors)
            claim.rows(sent)

    questions: dict[str, Callable[[], Any]] = {
        "taking work": take,
        "run list, first page": lambda: pages.runs(conn),
        "run list, a state of one pipeline": lambda: pages.runs(
            conn, pipeline="p7", statuses=["failed"]
        ),
        "run list, last page": lambda: pages.runs(conn, before=oldest),
        "list of pipelines": lambda: pages.pipelines(conn),
        "pipeline page": lambda: pages.pipeline(conn, "p7"),
        "trigger off": lambda: pause.pause(conn, trigger, "bench"),
        "trigger on": lambda: pause.resume(conn, trigger, "bench"),
    }
    with connect(place.url, name="bench-claims") as working:
        hot(working)
        return [figure for name, ask in questions.items() for figure in _measured(name, ask)]


def _measured(name: str, ask: Callable[[], Any]) -> list[Figure]:
    times = []
    for _ in range(TIMES):
        began = time.monotonic()
        ask()
        times.append((time.monotonic() - began) * 1000)
    return spread(name, times)
