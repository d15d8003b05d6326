"""The server of a test session, and databases cloned from one migrated template.

The server is the one of SUIMON_DATABASE_URL, or an embedded one in a folder of its own, once for
the whole session: under xdist the controlling process starts it and hands its URL to the workers,
each of which makes its own template. SUIMON_TEST_PG_BIN chooses the programs: a folder, or "oldest"
for the oldest PostgreSQL that is installed on the system.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from psycopg import sql
from psycopg.conninfo import make_conninfo

from suimon.db import embedded_binaries, migrate
from suimon.db.connect import connect
from suimon.db.embedded import EmbeddedServer

#: A server's folder lies in memory where that much is free: a test's database is 300 files.
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 6 * 1024**3

# Not durable against a power failure, which no test makes; kill -9 loses nothing with these.
FAST = {"fsync": "off", "full_page_writes": "off"}


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    if "://" not in url:
        return make_conninfo(url, dbname=name)
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def chosen_bin() -> Path | None:
    """The folder that SUIMON_TEST_PG_BIN names, or None for the default search."""
    value = os.environ.get("SUIMON_TEST_PG_BIN")
    if value != "oldest":
        return Path(value) if value else None
    bin_dir = oldest_bin()
    assert bin_dir, "SUIMON_TEST_PG_BIN=oldest, but no PostgreSQL is installed on this system"
    return bin_dir


def oldest_bin() -> Path | None:
    """The oldest PostgreSQL on the system that Suimon promises to run on."""
    found = embedded_binaries.system_installations()
    promised = [one.bin for one in found if one.major >= embedded_binaries.OLDEST_MAJOR]
    return promised[0] if promised else None


def in_memory() -> Path | None:
    """A folder whose files are in memory, where there is one with room."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        return MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES else None
    return None


def open_folder(prefix: str, below: Path | None = None) -> Path:
    """A temporary folder that another account may pass through, unlike pytest's own under root."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=below))
    folder.chmod(0o711)
    return folder


@contextmanager
def session_server() -> Iterator[str]:
    """The URL of a server for this session."""
    if given := os.environ.get("SUIMON_DATABASE_URL"):
        yield given
        return
    folder = open_folder("suimon-tests-", in_memory())
    try:
        with EmbeddedServer(folder / "pg", bin=chosen_bin(), settings=FAST) as server:
            yield server.url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Databases:
    """Makes and drops databases on one server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = f"suimon_test_{os.getpid()}"
        self._numbers = itertools.count(1)
        self._template: str | None = None

    @property
    def template(self) -> str:
        """A database with the whole schema, made at the first use."""
        if self._template is None:
            self._template = f"{self._prefix}_template"
            self._create(self._template)
            with connect(with_database(self._url, self._template), name="template") as conn:
                migrate.migrate(conn)
        return self._template

    @contextmanager
    def fresh(self, *, migrated: bool = True) -> Iterator[str]:
        """The URL of a new database that is dropped afterwards, whoever is still connected."""
        name = f"{self._prefix}_{next(self._numbers)}"
        self._create(name, self.template if migrated else None)
        try:
            yield with_database(self._url, name)
        finally:
            self._drop(name)

    def close(self) -> None:
        if self._template is not None:
            self._drop(self._template)

    def _create(self, name: str, template: str | None = None) -> None:
        # copied by files: four times faster than through the WAL where nothing is synced
        statement = sql.SQL("create database {} template {} strategy file_copy").format(
            sql.Identifier(name), sql.Identifier(template or "template0")
        )
        with connect(self._url, name="tests") as conn:
            conn.execute(statement)

    def _drop(self, name: str) -> None:
        statement = sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
        with connect(self._url, name="tests") as conn:
            conn.execute(statement)
