"""`suimon serve` as a test has it: a real process, its address, its log, and a client.

    with serving(url, folder) as server:
        server.get("/api/v1/runs").json()

The URL goes into the environment as people have it; the port is any free one.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx

from support.wait import wait_until

PATIENCE_SECONDS = 40.0
_LISTENS = re.compile(r"^listening on (http://\S+)$", re.MULTILINE)


class ServeProcess:
    """One server."""

    def __init__(
        self, url: str | None, folder: Path, *arguments: str, env: dict[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("serve-*.log")))
        self.log_file = folder / f"serve-{number}.log"
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("SUIMON_", "PG"))}
        given = {"SUIMON_DATABASE_URL": url} if url else {}
        port = () if "--port" in arguments else ("--port", "0")
        with self.log_file.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "suimon.cli.main", "serve", *port, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                cwd=folder,
                env=kept | given | (env or {}),
                start_new_session=True,
            )
        self.client = httpx.Client(timeout=PATIENCE_SECONDS)

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def ready(self) -> ServeProcess:
        """Until it says where it listens."""

        def look() -> str | None:
            assert self.running, self.log
            found = _LISTENS.search(self.log)
            return found[1] if found else None

        self.base = wait_until(look, PATIENCE_SECONDS, "the server listens")
        assert self.base is not None
        host, _, port = self.base.removeprefix("http://").rpartition(":")
        self.address = (host.strip("[]"), int(port))
        self.client = httpx.Client(base_url=self.base, timeout=PATIENCE_SECONDS)
        return self

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.client.request(method, path, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.ask("GET", path, **more)

    def post(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return self.ask("POST", path, json=json, **more)

    def raw(self, data: bytes) -> bytes:
        """These bytes on a connection of their own; what comes back until it is closed."""
        with socket.create_connection(self.address, timeout=PATIENCE_SECONDS) as sock:
            with contextlib.suppress(OSError):  # it may have refused before all was sent
                sock.sendall(data)
            answer = b""
            with contextlib.suppress(ConnectionError):
                while piece := sock.recv(65536):
                    answer += piece
        return answer

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS)

    def kill9(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.client.close()
        if self.running:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill9()


@contextmanager
def serving(
    url: str, folder: Path, *arguments: str, env: dict[str, str] | None = None
) -> Iterator[ServeProcess]:
    """A server that listens; ended at the end."""
    made = ServeProcess(url, folder, *arguments, env=env)
    try:
        yield made.ready()
    finally:
        made.close()
