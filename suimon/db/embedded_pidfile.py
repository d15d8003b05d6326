"""What `postmaster.pid` says, and whether the process it names is that server.

A pid file proves nothing by itself: after a crash its number may belong to anybody. So the process
is asked who it is, and a zombie or a stranger is never taken for a server.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PidFile:
    """The lines that matter: the first (process id) and the eighth (state)."""

    pid: int
    ready: bool

    @staticmethod
    def read(pgdata: Path) -> PidFile | None:
        """The file's content, or None if there is none or it is only half written."""
        try:
            lines = (pgdata / "postmaster.pid").read_text(encoding="utf-8").splitlines()
            pid = abs(int(lines[0]))
        except (FileNotFoundError, IndexError, ValueError):
            return None
        return PidFile(pid, len(lines) > 7 and lines[7].strip() == "ready")

    def process_exists(self) -> bool:
        """Whether some process has this number, living or zombie, ours or not."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def is_server_of(self, pgdata: Path) -> bool:
        """Whether that process is a living PostgreSQL whose working folder is this data folder."""
        process = Path("/proc") / str(self.pid)
        try:
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            same_folder = (process / "cwd").samefile(pgdata)
            program = (process / "exe").readlink().name
        except OSError:
            return False
        return (
            state not in "ZX" and same_folder and program.removesuffix(" (deleted)") == "postgres"
        )
