"""Of the processes of one machine, one lists a trigger's folder: an advisory lock on a file.

The kernel frees it when the process dies, however it dies, so another takes over at its next try.
It only saves work: where the lock file cannot be made, everybody lists, and the keys see to it that
no file is taken twice.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import tempfile
from pathlib import Path
from typing import Final

from psycopg.conninfo import conninfo_to_dict

log = logging.getLogger("suimon.files")

_PARTS: Final = ("host", "hostaddr", "port", "dbname")


class HostLock:
    """The lock of one trigger of one database."""

    def __init__(self, url: str, trigger: int, *, folder: Path | None = None) -> None:
        parts = conninfo_to_dict(url)
        text = "\0".join(f"{name}={parts.get(name, '')}" for name in _PARTS)
        self._name = f"{hashlib.sha256(text.encode()).hexdigest()[:32]}-{trigger}.lock"
        self._folder = folder or Path(tempfile.gettempdir()) / f"suimon-{os.geteuid()}"
        self._fd: int | None = None
        self._without = False

    @property
    def held(self) -> bool:
        return self._fd is not None or self._without

    def take(self) -> bool:
        """Try to become the one that lists; True also where nobody can have the lock."""
        if self.held:
            return True
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if self._folder.stat().st_uid != os.geteuid():
                msg = "it belongs to somebody else"
                raise PermissionError(msg)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            path = self._folder / self._name
            fd = os.open(path, flags, 0o600)
        except OSError as error:
            log.info('no lock in "%s" (%s): listing without', self._folder, error)
            self._without = True
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.fstat(fd).st_ino == path.stat().st_ino  # else its last holder removed it
        except OSError:
            same = False
        if not same:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def release(self) -> None:
        if self._fd is not None:
            (self._folder / self._name).unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = None
        self._without = False
