"""Free disk below the database, measured by a process on the database server's own machine.

Only such a process can: PostgreSQL does not tell. Whether this is one is asked once a connection,
and believed only with a proof: the connection is local (a socket, or the loopback address, which
may be a tunnel), the data directory that the server names exists here, and the server's own file in
it (`postmaster.pid`) holds the instant at which the server says that it started. Everybody else
measures nothing, and without any such process the free disk is unknown.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Final

import psycopg

from suimon.db.connect import Connection
from suimon.db.statements import statements

SQL = statements(__package__, "disk.sql")

#: The file tells whole seconds, and the server takes its own a moment later.
_APART_SECONDS: Final = 5.0
_START_LINE: Final = 2


class Disk:
    """The disk as one process sees it; ``measure`` never asks the database."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @classmethod
    def of(cls, conn: Connection) -> Disk:
        """Of this connection's server; one that measures nothing, if it cannot be proven local."""
        if not _is_local(conn):
            return cls(None)
        try:
            row = conn.execute(SQL.server).fetchone()
        except psycopg.errors.InsufficientPrivilege:
            return cls(None)
        if row is None or not row[0]:
            return cls(None)
        folder = Path(row[0])
        started = _started(folder)
        proven = started is not None and abs(started - float(row[1])) <= _APART_SECONDS
        return cls(folder if proven else None)

    def measure(self) -> tuple[int, int] | None:
        """Bytes that the server may still write, and all; None: not this machine's."""
        if self._folder is None:
            return None
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def _is_local(conn: Connection) -> bool:
    info = conn.info
    if info.host.startswith(("/", "@")):
        return True
    try:
        return ipaddress.ip_address(info.hostaddr or info.host).is_loopback
    except ValueError:
        return False


def _started(folder: Path) -> float | None:
    """When the server began whose data is here, as its own file says (seconds since 1970)."""
    try:
        lines = (folder / "postmaster.pid").read_text().splitlines()
        return float(lines[_START_LINE])
    except (OSError, ValueError, IndexError):
        return None
