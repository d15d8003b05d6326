"""A database and a worker of one's own, for ``suimon dev`` and ``suimon demo``.

    with Database(home, url=None) as database:      # embedded, unless a URL is given
        worker = LocalWorker.start(database.url, path, slots=2)

While an embedded server runs, the file ``address`` in its home holds its URL (readable by its
owner only), so that ``suimon runs list`` in the same folder finds it. Both are children of this
process and die with it, however it dies.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Final, Self

from suimon.cli import clean
from suimon.cli import serve as serving
from suimon.cli.worker import arguments
from suimon.core.settings import ADDRESS_FILE, Settings
from suimon.db.embedded import EmbeddedServer
from suimon.db.embedded_system import die_with_parent
from suimon.errors import FileRefused

if TYPE_CHECKING:
    from suimon.db.connect import Connection

_KILL_SECONDS: Final = 10.0


class Database:
    """The server of the given URL, or an embedded one in ``home``."""

    def __init__(self, home: Path, *, url: str | None = None) -> None:
        self.home = home.absolute()
        self._given = url
        self.server = None if url else EmbeddedServer(self.home / "postgres")

    def __enter__(self) -> Self:
        if self.server is not None:
            try:
                self.home.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                msg = f"the folder {self.home} cannot be made: {error.strerror}"
                raise FileRefused(
                    msg, path=str(self.home), hint="Choose another one: --home DIR"
                ) from None
            self.server.start()
            self._write_address()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.server is not None:
            (self.home / ADDRESS_FILE).unlink(missing_ok=True)
            self.server.stop()

    @property
    def url(self) -> str:
        if self.server is None:
            assert self._given is not None
            return self._given
        return self.server.url

    def connect(self, name: str) -> Connection:
        """A connection to it."""
        from suimon.db import connect

        return connect.connect(self.url, name=name, patience_seconds=10)

    def _write_address(self) -> None:
        file = self.home / ADDRESS_FILE
        file.unlink(missing_ok=True)
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            stream.write(self.url + "\n")


def _settings(slots: int, folder: Path | None) -> Settings:
    given = [os.environ.get("SUIMON_READ_FOLDERS", ""), str(folder.absolute()) if folder else ""]
    return Settings(slots=slots, read_folders=":".join(filter(None, given)) or None)


@dataclass(slots=True)
class LocalProcess:
    """A child of ours, started without a secret in its environment or command line."""

    process: subprocess.Popen[bytes]

    @classmethod
    def begin(cls, arguments: list[str], fd: int, log: IO[bytes] | None = None) -> Self:
        """``suimon`` with these arguments, and with the secrets' descriptor, which is closed."""
        try:
            process = subprocess.Popen(
                clean.command(arguments),
                env=clean.environment(),
                pass_fds=(fd,),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we pass it on as a drain
                preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509  (it takes no lock)
            )
        finally:
            os.close(fd)
        return cls(process)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def drain(self) -> None:
        """Ask it to finish what runs and to leave; asked twice it leaves at once."""
        if self.alive:
            self.process.send_signal(signal.SIGTERM)

    def end(self, *, patience_s: float) -> None:
        """Drain it; whoever has not left in time leaves at once."""
        for seconds in (patience_s, _KILL_SECONDS):
            self.drain()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                continue
            return
        self.process.kill()  # its guardian ends the slots
        self.process.wait()


class LocalWorker(LocalProcess):
    """A worker process; its log goes where ``start`` was told."""

    @classmethod
    def start(
        cls,
        url: str,
        path: Path,
        *,
        slots: int,
        listen_url: str | None = None,
        log: IO[bytes] | None = None,
        reads: Path | None = None,
    ) -> Self:
        """A worker with the code below ``path``; paths of inputs may also lead into ``reads``."""
        addresses = {"database_url": url, "listen_url": listen_url}
        fd = clean.hand_over(clean.with_environment(addresses))
        return cls.begin(arguments(str(path), _settings(slots, reads), {}, fd), fd, log)


class LocalServer(LocalProcess):
    """A server on loopback. It keeps no duties: the worker beside it does."""

    @classmethod
    def start(cls, url: str, *, port: int, token: str | None = None) -> Self:
        """A server at this port, or an error on its standard error."""
        found = Settings(database_url=url, port=port, api_token=token)
        fd = serving.hand_over(found)
        given = {"no_duties": True, "grace": 1.0}
        return cls.begin(serving.arguments(None, found, given, fd), fd)


def free_port(first: int) -> int:
    """The first free port on loopback from this one on; at most 100 are tried."""
    for port in range(first, first + 100):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                sock.bind(("127.0.0.1", port))
                return port
    return 0
