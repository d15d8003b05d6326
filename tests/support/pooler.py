"""PgBouncer in transaction mode before the server of a test; where it is not installed, a skip."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

import psycopg
import pytest

from support.database import open_folder
from support.wait import wait_until

_FILE = """
[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 200
server_reset_query =
logfile = {folder}/log
pidfile = {folder}/pid
"""


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def pooler(url: str) -> Iterator[str]:
    """The URL of the same database behind a pooler that shares 8 server connections."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed")
    folder, listen = open_folder("suimon-pooler-"), _free_port()
    parts = urlsplit(url)
    host = parts.hostname or parse_qs(parts.query).get("host", ["127.0.0.1"])[0]
    port = parts.port or parse_qs(parts.query).get("port", ["5432"])[0]
    text = _FILE.format(
        host=host, port=port, user=parts.username or "postgres", password=parts.password or "",
        listen=listen, folder=folder,
    )  # fmt: skip
    file = folder / "pgbouncer.ini"
    file.write_text(text)
    command = [program, str(file)]
    if os.getuid() == 0:  # it refuses to be root; the owner of the server's socket may use it
        owner = pwd.getpwuid(Path(host).stat().st_uid).pw_name if host.startswith("/") else "nobody"
        for one in (folder, file):
            shutil.chown(one, owner)
        command = [program, "-u", owner, str(file)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    user = parts.username or "postgres"
    pooled = urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{listen}", query=""))
    try:
        wait_until(lambda: _answers(pooled), 20, f"the pooler answers:\n{_log(folder)}")
        yield pooled
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _log(folder: Path) -> str:
    log = folder / "log"
    return log.read_text(errors="replace")[-2000:] if log.exists() else "no log"
