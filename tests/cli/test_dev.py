"""`suimon dev`: start, reload on change, mistakes, and an end that leaves nothing."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.database import open_folder
from support.wait import wait_until

from suimon.worker import processes

from .conftest import Cli, environment

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

CODE = '''
"""One pipeline."""
from suimon import pipeline


@pipeline(concurrency=None)
def answer() -> int:
    return 1
'''


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that the server's account may pass through."""
    import shutil

    folder = open_folder("suimon-dev-")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Dev:
    """A `suimon dev` under way."""

    def __init__(self, home: Path, path: Path, url: str | None = None, *more: str) -> None:
        self.log = home / "dev.log"
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(
                Cli.command("dev", str(path), "--home", str(home / "data"), *more),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=environment(url),
                start_new_session=True,
            )

    def says(self, text: str, times: int = 1) -> None:
        def look() -> bool:
            said = self.log.read_text(errors="replace")
            assert self.process.poll() is None, said
            return said.count(text) >= times

        wait_until(look, 60, f'said "{text}" {times} times')

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(60)
        finally:
            self.kill9()

    def kill9(self) -> None:
        self.process.kill()
        self.process.wait()


def answer(home: Path) -> int:
    done = subprocess.run(
        Cli.command("run", "answer", "--wait", "--json", "--home", str(home / "data")),
        capture_output=True,
        check=True,
        env=environment(None),
        timeout=60,
    )
    import json

    return int(json.loads(done.stdout)["output"])


def test_from_an_empty_folder_through_a_change_to_the_end(home: Path) -> None:
    """Embedded server, first code, a mistake, corrected code, Ctrl-C; no process is left."""
    path = home / "pipelines"
    path.mkdir()
    file = path / "work.py"
    file.write_text(CODE, encoding="utf-8")
    dev = Dev(home, path)
    try:
        dev.says("ready")
        assert answer(home) == 1
        file.write_text(CODE.replace("return 1", "return 1 +"), encoding="utf-8")
        dev.says("not deployed; the code before goes on")
        assert answer(home) == 1
        file.write_text(CODE.replace("return 1", "return 20"), encoding="utf-8")
        dev.says("worker: process", times=2)
        wait_until(lambda: answer(home) == 20, 30, "answered by the new code")
        below = processes.descendants(dev.process.pid)
        assert below
    finally:
        code = dev.end()
    assert code == 0
    assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]
    assert not (home / "data" / "address").exists()


def test_it_ends_with_its_terminal(home: Path) -> None:
    """kill -9 of `suimon dev` leaves neither server nor worker."""
    path = home / "pipelines"
    path.mkdir()
    (path / "work.py").write_text(CODE, encoding="utf-8")
    dev = Dev(home, path)
    try:
        dev.says("ready")
        below = processes.descendants(dev.process.pid)
    finally:
        dev.kill9()
    wait_until(lambda: not [pid for pid in below if Path(f"/proc/{pid}").exists()], 30, "all gone")


def test_with_a_server_of_your_own(home: Path, empty_db_url: str) -> None:
    """It migrates and works there, and starts no server."""
    path = home / "pipelines"
    path.mkdir()
    (path / "work.py").write_text(CODE, encoding="utf-8")
    dev = Dev(home, path, empty_db_url)
    try:
        dev.says("ready")
        done = Cli(empty_db_url, home)("run", "answer", "--wait", "--json")
        assert done.json["output"] == 1
        assert not (home / "data").exists()
    finally:
        assert dev.end() == 0


def test_the_api_runs_beside_the_worker_at_the_next_free_port(
    home: Path, empty_db_url: str
) -> None:
    """It says where, answers there, and ends with it; the port before is somebody else's."""
    import re
    import socket
    import urllib.request

    path = home / "pipelines"
    path.mkdir()
    (path / "work.py").write_text(CODE, encoding="utf-8")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        dev = Dev(home, path, empty_db_url, "--port", str(port))
        try:
            dev.says("ready")
            dev.says("listening on")
            found = re.search(r"listening on (http://\S+)", dev.log.read_text())
            assert found
            assert f":{port}" not in found[1]
            assert f"API: {found[1]}/api/v1" in dev.log.read_text()
            with urllib.request.urlopen(f"{found[1]}/api/v1/pipelines", timeout=30) as answer:
                assert b'"answer"' in answer.read()
            below = processes.descendants(dev.process.pid)
        finally:
            assert dev.end() == 0
    wait_until(lambda: not [pid for pid in below if Path(f"/proc/{pid}").exists()], 30, "all gone")
