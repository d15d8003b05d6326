"""Free disk of the database: measured by who is provably on its machine, and by nobody else."""

from __future__ import annotations

import os
from pathlib import Path

from support.database import chosen_bin
from support.lab import Lab
from support.worker_process import PATIENCE_SECONDS

from suimon.db.connect import connect
from suimon.db.embedded import EmbeddedServer
from suimon.store.disk import Disk


def test_the_servers_own_machine_measures_its_disk(tmp_path: Path) -> None:
    """By the socket, and only while the server's own file says when this very server started."""
    with EmbeddedServer(tmp_path / "pg", bin=chosen_bin()) as server:
        with connect(server.url, name="test", patience_seconds=PATIENCE_SECONDS) as conn:
            disk = Disk.of(conn)
            measured = disk.measure()
            row = conn.execute(b"select current_setting('data_directory')").fetchone()
            assert row is not None
            folder = Path(row[0])
            assert measured is not None
            found = os.statvfs(folder)
            assert measured[1] == found.f_blocks * found.f_frsize
            assert 0 < measured[0] <= measured[1]
            pid_file = folder / "postmaster.pid"
            lines = pid_file.read_text().splitlines()
            lines[2] = str(int(lines[2]) - 60)
            text = pid_file.read_text()
            pid_file.write_text("\n".join(lines) + "\n")
            try:
                assert Disk.of(conn).measure() is None, "another server's folder"
            finally:
                pid_file.write_text(text)
            assert Disk.of(conn).measure() is not None
        with connect(server.url, name="test") as conn:
            Lab(conn).sql("create role reader")
            Lab(conn).sql("set role reader")
            assert Disk.of(conn).measure() is None, "a role that may not know where the data is"


def test_nobody_measures_without_a_proof() -> None:
    assert Disk(None).measure() is None
    assert Disk(Path("/nowhere/at/all")).measure() is None
