"""The command line as people meet it: a real process, its exit code, what it prints where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.forked_cli import ForkedCli
from support.wait import wait_until

from suimon.db.connect import Connection

PIPELINES = '''
"""Pipelines for the command line's tests."""

from __future__ import annotations

import os
import time
from pathlib import Path

from suimon import Context, Pipeline, pipeline, task


@pipeline
def limited(n: int = 0) -> int:
    return n + 1


@pipeline(concurrency=None)
def free(n: int) -> int:
    return n + 1


@pipeline(concurrency=None)
def broken(n: int) -> int:
    raise ValueError(f"{n} is not my number")


@pipeline(concurrency=None)
def gate(folder: str) -> str:
    Path(folder, "begun").touch()
    while not Path(folder, "open").exists():
        time.sleep(0.01)
    return "open"


@pipeline(concurrency=None)
def chatty(folder: str) -> None:
    print("first")
    Path(folder, "begun").touch()
    while not Path(folder, "open").exists():
        time.sleep(0.01)
    print("second")


@pipeline(concurrency=None)
def talkative(words: str, ctx: Context) -> None:
    ctx.log("logged", words=words)
    print("printed", words)


@pipeline(concurrency=None)
def told(names: list) -> dict:
    return {name: os.environ.get(name) for name in names}


@task
def numbers(n: int) -> list:
    return [{"n": i, "key": f"k{i}"} for i in range(n)]


@task
def odd(item: dict, bad: int) -> int:
    if item["n"] % bad == bad - 1:
        raise ValueError(f"item {item['n']} is not to my taste")
    return item["n"]


@task
def summed(outcome) -> dict:
    return {"sum": sum(child.value for child in outcome.succeeded), "bad": outcome.counts.failed}


p = Pipeline("fan", concurrency=None)
items = p.run("items", numbers, p.input.n)
kids = p.spawn("kids", odd, items, key="key", bad=p.input.bad)
outcome = p.merge("outcome", kids, tolerate=["FAILED"])
p.run("report", summed, outcome)
'''


@dataclass(frozen=True, slots=True)
class Answer:
    """What one command said, and with which exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def problem(self) -> Any:
        return json.loads(self.err)


def environment(url: str | None, more: dict[str, str] | None = None) -> dict[str, str]:
    """This process's, without anything of Suimon's, and with the given database."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("SUIMON_", "PG"))}
    return kept | ({"SUIMON_DATABASE_URL": url} if url else {}) | (more or {})


class Cli:
    """`cli("runs", "list")` runs the command against this test's database."""

    def __init__(self, url: str | None, folder: Path) -> None:
        self.url, self.folder = url, folder

    def __call__(
        self, *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> Answer:
        code, out, err = ForkedCli.here().run(
            list(arguments), stdin, cwd=self.folder, env=environment(self.url, env)
        )
        return Answer(code, out.decode(), err.decode("utf-8", "replace"))

    @staticmethod
    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "suimon.cli.main", *arguments]

    @contextmanager
    def started(
        self, *arguments: str, env: dict[str, str] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The command as a process under way, in a session of its own; ended at the end."""
        process = subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=environment(self.url, env),
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.communicate()


@pytest.fixture
def cli(db_url: str, tmp_path: Path) -> Cli:
    """The command line in an empty folder, with this test's database."""
    return Cli(db_url, tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the pipelines of these tests."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "work.py").write_text(PIPELINES, encoding="utf-8")
    return folder


@pytest.fixture
def deployed(cli: Cli, project: Path) -> Path:
    """The same, deployed."""
    assert cli("deploy", str(project)).code == 0
    return project


StartWorker = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def worker(cli: Cli, deployed: Path, conn: Connection) -> Iterator[StartWorker]:
    """`worker("--slots", "1")` starts one and waits until it claims; all are drained at the end."""
    running: list[subprocess.Popen[bytes]] = []
    log = deployed.parent / "worker.log"

    def start(
        *arguments: str, env: dict[str, str] | None = None, path: Path = deployed
    ) -> subprocess.Popen[bytes]:
        known = _live(conn)
        quick: Sequence[str] = ("--heartbeat", "200ms", "--sweep", "500ms")
        with log.open("ab") as stream:
            process = subprocess.Popen(
                cli.command("worker", str(path), *quick, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=environment(cli.url, env),
                start_new_session=True,
            )
        running.append(process)

        def claims() -> bool:
            assert process.poll() is None, log.read_text()
            return bool(_live(conn) - known)

        wait_until(claims, 60, "a worker that claims")
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.terminate()
    for process in running:
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail(f"a worker did not leave when it was drained:\n{log.read_text()[-3000:]}")


def _live(conn: Connection) -> set[int]:
    rows = conn.execute("select id from suimon.workers where not dead").fetchall()
    return {row[0] for row in rows}


def count_runs(conn: Connection) -> int:
    row = conn.execute("select count(*) from suimon.runs").fetchone()
    assert row is not None
    return int(row[0])
