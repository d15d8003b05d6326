"""What the embedded server needs of the operating system, and the making of its data folder."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from suimon.db.embedded_binaries import Account, Binaries
from suimon.errors import DatabaseUnavailable

USER = "suimon"  # the server's superuser
_PR_SET_PDEATHSIG = 1


def initialize(programs: Binaries, account: Account, server_dir: Path, password_file: Path) -> None:
    """Make `server_dir/data` under another name, and rename it when it is whole."""
    half_made = server_dir / "data.tmp"
    shutil.rmtree(half_made, ignore_errors=True)
    password = secrets.token_urlsafe(24)
    write_private(password_file, password)
    given = server_dir / "initial-password"
    write_private(given, password)
    os.chown(given, account.uid, account.gid)
    # Where PostgreSQL has its own locale, an upgrade of the system's breaks no index.
    locale = (
        ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        if programs.major >= 17
        else ["--locale=C.UTF-8"]
    )
    command = [
        *(str(programs.program("initdb")), "-D", str(half_made), "--username", USER),
        *("--encoding=UTF8", *locale, f"--pwfile={given}", "--data-checksums"),
        *("--auth-local=scram-sha-256", "--auth-host=scram-sha-256"),
    ]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=server_dir,
        env=server_environment(),
        **account.popen_arguments(),
    )
    given.unlink()
    if done.returncode != 0:
        msg = "initdb could not make a database"
        raise DatabaseUnavailable(msg, detail=(done.stderr or done.stdout).strip()[-1000:])
    half_made.rename(server_dir / "data")


def server_environment() -> dict[str, str]:
    """What the server may know of ours: the path, and nothing else."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:  # noqa: PTH123  (a descriptor)
        file.write(text)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def small_shared_memory() -> bool:
    """Containers often have 64 MB there, which parallel queries exceed."""
    try:
        usage = shutil.disk_usage("/dev/shm")  # noqa: S108  (looked at, not written)
    except OSError:
        return True
    return usage.total < 256 * 1024 * 1024


def die_with_parent(parent: int) -> Callable[[], None] | None:
    """For the child, after it has changed its account: SIGINT when its parent's thread ends."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:
            os._exit(1)  # it died before we asked

    return ask
