"""A whole engine for one test: a database, a project, and workers that are real processes.

    engine.module("m", code); engine.deploy(); worker = engine.worker(slots=2)
    run = engine.submit("p", {"n": 1}); engine.wait(run)

Every process of it carries the test's folder in its environment or command line, so `left_over`
finds those that outlived what they should not. Tests wait for states, files and lines, by
`wait_until`; the patience given there is a bound, never a pause. Workers beat every 0.4 s (three
silent beats: dead), and duties fall due each half second. A test in which nobody has to be found
dead gives its workers a longer heartbeat, so that a busy machine does not freeze them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from suimon.db.connect import Connection, connect
from suimon.run import cancel, doors, retry, submit
from suimon.worker import processes
from support.contents import read_payload
from support.project import Project
from support.wait import wait_until
from support.worker_process import PATIENCE_SECONDS, WorkerProcess, carrying

HEARTBEAT_SECONDS = 0.4
TERMINAL = ("succeeded", "failed", "timed_out", "cancelled")
COMMAND = (sys.executable, "-m", "suimon.cli.main")
MAIN = Path(__file__).with_name("worker_main.py")

_RUN = """
select r.id::text, r.pipeline, r.status::text, r.attempt, r.claim_no, r.interruptions, r.reason,
       r.output,
       r.error, r.started_at, r.finished_at, r.created_at, r.worker_id,
       (select w.name from suimon.workers w where w.id = r.worker_id) as worker
from suimon.runs r where r.id = %s"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run as the database has it now."""

    id: str
    pipeline: str
    status: str
    attempt: int
    claim_no: int
    interruptions: int
    reason: str | None
    output: Any
    error: Any
    started_at: Any
    finished_at: Any
    created_at: Any
    worker_id: int | None
    worker: str | None

    @property
    def over(self) -> bool:
        return self.status in TERMINAL


class Engine:
    """Database, project and workers of one test."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.project = Project(folder)
        self.workers: list[WorkerProcess] = []
        self._conn: Connection | None = None
        self._count = 0
        with self.conn.transaction():
            self.sql("update suimon.duties set every_ms = 500, next_at = clock_timestamp()")

    @property
    def conn(self) -> Connection:
        """A connection that comes back after the server did."""
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = connect(self.url, name="test", patience_seconds=PATIENCE_SECONDS)
        return self._conn

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """One statement; said again when the server was lost under it."""
        for last in (False, False, True):
            conn = self.conn
            try:
                cursor = conn.execute(statement.encode(), values or None)
                return cursor.fetchall() if cursor.description else []
            except psycopg.OperationalError:
                if last or not conn.broken:
                    raise
        raise AssertionError

    def one(self, statement: str, *values: Any) -> Any:
        """The first column of the first row."""
        return self.sql(statement, *values)[0][0]

    def module(self, name: str, code: str) -> None:
        self.project.module(name, code)

    def deploy(self) -> list[str]:
        return self.project.deploy(self.url)

    # ------------------------------------------------------------------ workers

    def worker(self, *, slots: int = 2, ready: bool = True, **options: Any) -> WorkerProcess:
        """Start one; `ready` waits until it is registered and has all its slots."""
        self._count += 1
        name = options.pop("name", f"w{self._count}")
        folder = options.pop("folder", None) or str(self.folder / f"{name}-{self._count}")
        command = [sys.executable, str(options.pop("main", MAIN)), folder]
        given: dict[str, Any] = {
            "url": self.url,
            "listen_url": self.url,
            "root": str(self.project.root),
            "name": name,
            "slots": slots,
            "heartbeat_s": HEARTBEAT_SECONDS,
            "sweep_s": 0.5,
            **options,
        }
        log = self.folder / f"{name}-{self._count}.log"
        worker = WorkerProcess(name, command, log, stdin=json.dumps(given) + "\n")
        self.workers.append(worker)
        return self._ready(worker, slots) if ready else worker

    def command(self, *arguments: str, env: dict[str, str] | None = None) -> WorkerProcess:
        """`suimon ...` as a process, with the URL in its environment as people have it."""
        self._count += 1
        name = f"w{self._count}"
        given = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        given |= {"TMPDIR": str(self.folder), "SUIMON_DATABASE_URL": self.url, **(env or {})}
        made = WorkerProcess(
            name, [*COMMAND, *arguments], self.folder / f"{name}.log", env=given
        )  # fmt: skip
        self.workers.append(made)
        return made

    def command_worker(
        self, *options: str, slots: int = 2, env: dict[str, str] | None = None
    ) -> WorkerProcess:
        """A worker started by the command line, ready."""
        name = f"w{self._count + 1}"
        beat = f"{HEARTBEAT_SECONDS * 1000:.0f}ms"
        arguments = ["--slots", str(slots), "--name", name, "--sweep", "500ms", "--heartbeat", beat]
        worker = self.command("worker", str(self.project.root), *arguments, *options, env=env)
        return self._ready(worker, slots)

    def _ready(self, worker: WorkerProcess, slots: int) -> WorkerProcess:
        self.until(lambda: self.worker_id(worker), f"{worker.name} registered")
        self.until(lambda: len(worker.slots()) == slots, f"{worker.name} has its slots")
        return worker

    def worker_id(self, worker: WorkerProcess) -> int | None:
        """Its live id in the database."""
        rows = self.sql(
            "select id from suimon.workers where pid = %s and not dead order by id desc", worker.pid
        )
        return rows[0][0] if rows else None

    # ------------------------------------------------------------------ runs

    def submit(self, pipeline: str, given: Any = None, *, key: str | None = None) -> str:
        return self.ask(pipeline, given, key=key).id

    def ask(self, pipeline: str, given: Any = None, *, key: str | None = None) -> submit.Submitted:
        """What the door answers."""
        return doors.start(self.conn, pipeline, {} if given is None else given, key=key)

    def submit_many(self, pipeline: str, inputs: Sequence[Any]) -> list[str]:
        return [one.id for one in doors.start_many(self.conn, pipeline, inputs)]

    def run(self, run_id: str) -> Run:
        found = Run(*self.sql(_RUN, run_id)[0])
        if found.output is None and found.status == "succeeded":
            large = read_payload(self.conn, run_id, "output")
            return found if large is None else replace(found, output=orjson.loads(large))
        return found

    def wait(
        self, run_id: str, status: str | None = "succeeded", patience: float = PATIENCE_SECONDS
    ) -> Run:
        """Until it has ended; `status` None takes any end."""
        self.until(lambda: self.run(run_id).over, f"run {run_id} ended", patience)
        run = self.run(run_id)
        if status is not None and run.status != status:
            pytest.fail(f"{run}\n{self.story()}", pytrace=False)
        return run

    def wait_all(self, runs: Sequence[str], patience: float = PATIENCE_SECONDS) -> None:
        """Until all of these have succeeded."""

        count = (
            "select count(*) filter (where status = 'succeeded'),"
            " count(*) filter (where status in ('failed', 'timed_out', 'cancelled'))"
            " from suimon.runs where id = any(%s::uuid[])"
        )

        def done() -> bool:
            well, badly = self.sql(count, list(runs))[0]
            if badly:
                pytest.fail(f"{badly} of {len(runs)} runs ended badly\n{self.story()}")
            return bool(well == len(runs))

        self.until(done, f"{len(runs)} runs succeeded", patience)

    def children(self, run_id: str) -> list[tuple[Any, ...]]:
        """(position, status, attempt, id, error) of a parent's children, in item order."""
        return self.sql(
            "select position, status::text, attempt, id::text, error from suimon.runs"
            " where parent_id = %s order by fanout_id, position",
            run_id,
        )

    def attempts(self, run_id: str) -> list[tuple[Any, ...]]:
        """(attempt, how, worker's name, vertex) of the tries that did not end their step."""
        return self.sql(
            "select attempt, how, worker_name, vertex from suimon.attempts"
            " where run_id = %s order by claim_no",
            run_id,
        )

    def log_of(self, run_id: str, stream: str | None = None) -> str:
        rows = self.sql(
            "select body from suimon.logs where run_id = %s and (%s::text is null or stream = %s)"
            " order by seq",
            run_id,
            stream,
            stream,
        )
        return "".join(row[0] for row in rows)

    def slots_idle(self) -> bool:
        """Nothing is claimed by any live worker."""
        return not self.one("select count(*) from suimon.runs where status = 'running'")

    def cancel(self, *runs: str) -> cancel.Asked:
        return cancel.request(self.conn, runs)

    def retry(self, *runs: str, failed_children: bool = False) -> int:
        plan = retry.plan(self.conn, runs, failed_children=failed_children)
        return retry.apply(self.conn, plan, actor="test")

    # ------------------------------------------------------------------ waiting and the end

    def until(self, look: Callable[[], Any], what: str, patience: float = PATIENCE_SECONDS) -> Any:
        """`wait_until`, with the workers' last words when it fails."""
        try:
            return wait_until(look, patience, what)
        except AssertionError as error:
            pytest.fail(f"{error}\n{self.story()}")

    def noted(self, name: str, count: int = 1) -> list[list[str]]:
        """The project's notes of that name, when there are so many."""
        self.until(lambda: len(self.project.lines(name)) >= count, f"{count} notes in {name}")
        return self.project.lines(name)

    def story(self) -> str:
        """The states of all runs and the end of every worker's log, for a failed test."""
        with contextlib.suppress(Exception):
            states = self.sql(
                "select pipeline, vertex, status::text, reason, count(*) from suimon.runs"
                " group by 1, 2, 3, 4 order by 1, 2 nulls first, 3"
            )
            told = [f"{state}" for state in states[:40]]
            return "\n".join([*told, *(f"--- {w.name}\n{w.tail()}" for w in self.workers)])
        return "\n".join(f"--- {w.name}\n{w.tail()}" for w in self.workers)

    def none_left(self) -> None:
        """No slot, guardian or anything started by a task is there any more."""
        mine = {worker.pid for worker in self.workers if worker.running}

        def strays() -> list[int]:
            return [pid for pid in carrying(str(self.folder)) if pid not in mine]

        self.until(lambda: not strays(), "all processes gone", 30)

    def close(self) -> None:
        """End all workers; what they leave behind is an error of the engine."""
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGCONT)
            if worker.running:
                worker.kill9()
        try:
            self.none_left()
        finally:
            for pid in carrying(str(self.folder)):
                processes.kill(pid)
            if self._conn is not None:
                self._conn.close()


@contextlib.contextmanager
def engine_on(url: str, folder: Path) -> Iterator[Engine]:
    """An engine over this database; ends with every process of it."""
    made = Engine(url, folder)
    try:
        yield made
    finally:
        made.close()
