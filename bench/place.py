"""Where a measurement happens: a server that syncs, a fresh database, and a worker process.

The server is the embedded one with its settings as `suimon dev` has them, or the one of
SUIMON_DATABASE_URL. Each measurement gets a database of its own, which is dropped afterwards. The
worker is `suimon worker`, as a person starts it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench.meter import Cost, Figure, Memory
from suimon.cli.deploy import definitions
from suimon.client import Client
from suimon.db import migrate
from suimon.db.connect import Connection, connect
from suimon.db.embedded import EmbeddedServer
from suimon.db.statements import statements
from suimon.run import deploy

SQL = statements(__package__, "queries.sql")
CODE = Path(__file__).with_name("code")
READ_BACK = 1000
PROGRESS_SECONDS = 5.0
STOP_SECONDS = 30.0


class LateError(Exception):
    """A measurement passed its bound; what it had reached is in the text."""


class WrongResultError(Exception):
    """A stored result is not what the task returned, or a run did not end as it must."""


def say(text: str) -> None:
    """Progress, for people; the figures go to standard output."""
    print(text, file=sys.stderr, flush=True)


class Worker:
    """One `suimon worker` process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self.log = log
        self.memory = Memory(self.pid)
        self.memory.start()

    def stop(self) -> None:
        """Drain, and kill when that takes too long."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            say(f"the worker did not drain in {STOP_SECONDS:g} s and is killed")
            self.process.kill()
            self.process.wait()

    def complaints(self) -> list[str]:
        """Warnings and errors in its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [one for one in lines if " WARNING " in one or " ERROR " in one]


class Place:
    """One fresh database with the pipelines of bench/code deployed."""

    def __init__(self, url: str, folder: Path, server_log: Path | None) -> None:
        self.url, self.folder, self.server_log = url, folder, server_log
        self.conn: Connection = connect(url, name="bench", patience_seconds=10)
        self.client = Client(url)
        migrate.migrate(self.conn)
        deploy.deploy(self.conn, definitions(str(CODE)))
        self.worker: Worker | None = None
        self.others: list[Worker] = []
        self.late_at = float("inf")

    def bound(self, seconds: float) -> None:
        """Everything waited for from now on ends within so many seconds, or is `LateError`."""
        self.late_at = time.monotonic() + seconds

    # ------------------------------------------------------------------ the worker

    def start_worker(self, *, ready: bool = True, slots: int = 2, name: str = "bench") -> Worker:
        """Start it; `ready` waits until it has joined, found nothing to do and said so.

        One that is still there works beside it, and is stopped at the end.
        """
        if self.worker is not None and self.worker.process.poll() is None:
            self.others.append(self.worker)
        log = self.folder / f"{name}.log"
        command = [sys.executable, "-m", "suimon.cli.main", "worker", str(CODE)]
        environment = {**os.environ, "SUIMON_DATABASE_URL": self.url}
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*command, "--slots", str(slots), "--name", name],
                env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                start_new_session=True,
            )  # fmt: skip
        self.worker = Worker(process, log)
        if ready:
            self.until_idle()
            time.sleep(0.5)
        return self.worker

    def until_idle(self) -> None:
        self.until(lambda: bool(self.one(SQL.idle_worker)[0]), "an idle worker", pause=0.05)

    def until(self, look: Callable[[], bool], what: str, *, pause: float = 0.25) -> None:
        """Look until it is so; a worker that has ended, or too long a wait, is an error."""
        while not look():
            ended = self.worker is not None and self.worker.process.poll() is not None
            if ended or time.monotonic() > self.late_at:
                log = self.worker.log.read_text("utf-8", "replace") if self.worker else ""
                why = "the worker has ended" if ended else "it took too long"
                raise LateError(f"waiting for {what}: {why}\n" + "\n".join(log.splitlines()[-15:]))
            time.sleep(pause)

    def close(self) -> None:
        for worker in [*self.others, self.worker]:
            if worker is not None and worker.process.poll() is None:
                worker.stop()
        self.client.close()
        self.conn.close()

    # ------------------------------------------------------------------ questions

    def one(self, statement: Any, **values: Any) -> tuple[Any, ...]:
        row = self.conn.execute(statement, values).fetchone()
        assert row is not None
        return tuple(row)

    def backends(self) -> dict[int, str]:
        return {int(pid): str(name) for pid, name in self.conn.execute(SQL.backends).fetchall()}

    def cost(self) -> Cost:
        assert self.worker is not None
        return Cost(self.worker.pid, self.backends())

    # ------------------------------------------------------------------ runs

    def submit(self, pipeline: str, value: dict[str, Any]) -> str:
        return self.client.submit(pipeline, value).id

    def submit_many(self, pipeline: str, count: int, *, call: int = 10_000) -> list[str]:
        """Numbers 0 to `count` as inputs, so many a call."""
        ids: list[str] = []
        for first in range(0, count, call):
            values = [{"n": n} for n in range(first, min(first + call, count))]
            ids += [one.id for one in self.client.submit_many(pipeline, values)]
        return ids

    def follow(self, run: str, total: int, each: Callable[[], None] = lambda: None) -> float:
        """Wait for a fan-out's parent; seconds from its birth to its end, by the database's clock.

        Raises WrongResultError when it did not succeed.
        """
        said_at = time.monotonic()

        def over() -> bool:
            nonlocal said_at
            each()
            status = self.one(SQL.run, run=run)[0]
            if time.monotonic() - said_at > PROGRESS_SECONDS:
                said_at = time.monotonic()
                say(f"    {self.one(SQL.tally, run=run)[0]:>9,} of {total:,} children have ended")
            return status in ("succeeded", "failed", "timed_out", "cancelled")

        self.until(over, f"a fan-out of {total:,}", pause=0.25)
        status, took_s, error, _ = self.one(SQL.run, run=run)
        if status != "succeeded":
            msg = f"the parent ended {status}: {error}"
            raise WrongResultError(msg)
        return float(took_s)

    def check_children(self, run: str, total: int) -> None:
        """Read 1,000 stored results back at random and compare them; any difference is an error."""
        positions = sorted(random.sample(range(total), min(READ_BACK, total)))
        rows = self.conn.execute(SQL.results_of_children, {"run": run, "positions": positions})
        compare(rows.fetchall(), len(positions))

    def check_runs(self, ids: Sequence[str]) -> None:
        """The same for single runs."""
        chosen = random.sample(list(ids), min(READ_BACK, len(ids)))
        rows = self.conn.execute(SQL.results, {"ids": chosen}).fetchall()
        compare(rows, len(chosen))


def compare(rows: Sequence[tuple[Any, ...]], expected: int) -> None:
    """Each row is (n, stored result, tries)."""
    wrong = [row for row in rows if row[1] != 2 * row[0] + 1 or row[2] != 1]
    if wrong or len(rows) != expected:
        msg = f"{len(rows)} of {expected} results found, {len(wrong)} wrong: {wrong[:5]}"
        raise WrongResultError(msg)


# --------------------------------------------------------------------------------- servers


class Server:
    """The server of one call of the benchmark."""

    def __init__(self, url: str, folder: Path, server: EmbeddedServer | None) -> None:
        self.url, self.folder, self.server = url, folder, server
        self._numbers = itertools.count(1)

    def facts(self) -> dict[str, str]:
        """Version and the settings that decide what a commit costs."""
        with connect(self.url, name="bench", patience_seconds=10) as conn:
            row = conn.execute(SQL.machine).fetchone()
        assert row is not None
        names = ("PostgreSQL", "fsync", "synchronous_commit", "shared_buffers")
        return dict(zip(names, map(str, row), strict=True))

    @contextmanager
    def place(self) -> Iterator[Place]:
        """A fresh database; it is dropped, and its worker drained, at the end."""
        name = f"bench_{os.getpid()}_{next(self._numbers)}"
        self._administer(SQL.create_database, name)
        log = self.server.log_file if self.server else None
        made: Place | None = None
        try:
            made = Place(with_database(self.url, name), self.folder, log)
            yield made
        finally:
            if made is not None:
                made.close()
            self._administer(SQL.drop_database, name)

    def _administer(self, statement: Any, name: str) -> None:
        with connect(self.url, name="bench") as conn:
            conn.execute(sql.SQL(statement).format(name=sql.Identifier(name)))


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    if "://" not in url:
        return make_conninfo(url, dbname=name)
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@contextmanager
def server(below: str | None) -> Iterator[Server]:
    """The server to measure on; `below` is where an embedded one keeps its files."""
    folder = Path(tempfile.mkdtemp(prefix="suimon-bench-", dir=below))
    folder.chmod(0o711)
    try:
        if given := os.environ.get("SUIMON_DATABASE_URL"):
            yield Server(given, folder, None)
            return
        with EmbeddedServer(folder / "pg") as embedded:
            yield Server(embedded.url, folder, embedded)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def held_snapshot(url: str) -> Iterator[None]:
    """A transaction elsewhere that keeps a snapshot: nothing it can see is vacuumed meanwhile."""
    with connect(url, name="bench-snapshot", autocommit=True) as conn:
        from psycopg import IsolationLevel

        conn.isolation_level = IsolationLevel.REPEATABLE_READ
        with contextlib.ExitStack() as stack:
            stack.enter_context(conn.transaction())
            conn.execute(SQL.hold_snapshot)
            yield


def rate(label: str, count: float, seconds: float) -> Figure:
    return Figure(label, count / seconds if seconds else 0.0, "/s")
