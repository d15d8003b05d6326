"""`suimon serve` as processes of a test: started, killed, started again at the same port."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from support.engine import Engine
from support.hooks import bare
from support.wait import wait_until
from support.worker_process import PATIENCE_SECONDS, WorkerProcess


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class EngineServer:
    """One server at one port; a killed one comes back with `start`."""

    def __init__(
        self, engine: Engine, *options: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.port = free_port()
        self._engine, self._options = engine, options
        self._environment = dict(environment or {})
        self.process: WorkerProcess
        self.start()

    def start(self, *, ready: bool = True) -> None:
        command = ["serve", "--port", str(self.port), *self._options]
        self.process = self._engine.command(*command, env=self._environment)
        if ready:
            self.await_ready()

    def await_ready(self) -> None:
        def answers() -> bool:
            assert self.process.running, self.process.tail()
            try:
                return bare(self.port, "/readyz", b"", [], method="GET").status == 200
            except OSError:
                return False

        wait_until(answers, PATIENCE_SECONDS, f"the server at {self.port} is ready")

    def kill9(self) -> None:
        self.process.kill9()
