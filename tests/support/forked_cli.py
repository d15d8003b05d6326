"""Runs `suimon` in a process of its own that has its modules already: one process loads them once,
and each command is a fork of it. The command is as real as any (arguments, environment, folder,
standard streams, exit code); what is spared is half a second of imports each.

    code, out, err = ForkedCli.here().run(["runs", "list"], b"", cwd=folder, env=environment)
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

REQUEST_BYTES = 100_000
SECONDS = 110.0


class ForkedCli:
    """The process that forks; one for each process of the test session."""

    _made: ForkedCli | None = None

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self._close)

    @classmethod
    def here(cls) -> ForkedCli:
        if cls._made is None:
            cls._made = cls()
        return cls._made

    def run(
        self, arguments: list[str], stdin: bytes, *, cwd: Path, env: dict[str, str]
    ) -> tuple[int, bytes, bytes]:
        """Exit code (minus a signal's number) and what it printed to its two streams.

        Raises TimeoutError when it took longer than ``SECONDS`` and was ended.
        """
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin)
            given.seek(0)
            request = json.dumps({"arguments": arguments, "cwd": str(cwd), "env": env}).encode()
            assert len(request) <= REQUEST_BYTES
            files = [given.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(self._socket, [request], files)
            code = int(self._socket.recv(16))
            out.seek(0)
            err.seek(0)
            if code == -signal.SIGALRM:
                raise TimeoutError(arguments, out.read(), err.read())
            return code, out.read(), err.read()

    def _close(self) -> None:
        self._socket.close()
        self._process.wait(10)


def _serve(sock: socket.socket) -> None:
    """Fork for each request, one after the other, until the other side has gone."""
    while True:
        request, files, _, _ = socket.recv_fds(sock, REQUEST_BYTES, 3)
        if not request:
            return
        child = os.fork()
        if child == 0:
            sock.close()
            _become(json.loads(request), files)
        for one in files:
            os.close(one)
        _, status = os.waitpid(child, 0)
        sock.send(b"%d" % os.waitstatus_to_exitcode(status))


def _become(asked: dict[str, Any], files: list[int]) -> NoReturn:
    """The command itself; never comes back."""
    from suimon.cli import main

    code = 1
    try:
        os.setsid()
        for number, one in enumerate(files):
            os.dup2(one, number)
            os.close(one)
        os.environ.clear()
        os.environ.update(asked["env"])
        time.tzset()
        os.chdir(asked["cwd"])
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        code = main.run(asked["arguments"])
    except BaseException:  # noqa: BLE001 - a defect shows its traceback, as it would alone
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    for package in ("suimon.cli", "suimon.run"):
        found = importlib.import_module(package)
        for module in pkgutil.iter_modules(found.__path__, f"{package}."):
            importlib.import_module(module.name)
    _serve(socket.socket(fileno=int(sys.argv[1])))
