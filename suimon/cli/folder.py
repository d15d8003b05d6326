"""The worker's private folder for the temporary files of its slots.

It lies in TMPDIR, can be read by this account only, and is removed when the worker leaves. A
worker that was killed with -9 cannot do that: the next one on this machine removes what has no
owner any more, which a lock tells (the kernel lets it go with its process).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from suimon.core import clock
from suimon.errors import SuimonError

_PREFIX: Final = "suimon-worker-"
_LOCK: Final = ".lock"
#: A folder without a lock may be one that is just being made.
_YOUNG_SECONDS: Final = 60.0
_MOST: Final = 1000


@contextmanager
def private_folder() -> Iterator[str]:
    """Make it, hold it, remove it. TMPDIR is taken at its word; Python would go elsewhere."""
    place = os.environ.get("TMPDIR")
    _remove_ownerless(Path(place or tempfile.gettempdir()))
    try:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place or None)
    except OSError as error:
        msg = f"the worker cannot make its folder: {error.strerror}"
        detail = f"in {place}, which TMPDIR names" if place else None
        hint = "Make room, or set TMPDIR to a folder with some."
        raise SuimonError(msg, detail=detail, hint=hint) from None
    held = os.open(f"{folder}/{_LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _remove_ownerless(place: Path) -> None:
    """At most 1,000; whatever cannot be judged or removed is left alone."""
    with contextlib.suppress(OSError):
        for folder, _ in zip(place.glob(f"{_PREFIX}*"), range(_MOST), strict=False):
            with contextlib.suppress(OSError):
                if folder.lstat().st_uid == os.geteuid() and not folder.is_symlink():
                    _remove_if_ownerless(folder)


def _remove_if_ownerless(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        age = clock.now().timestamp() - folder.lstat().st_mtime
        if age > _YOUNG_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return  # its worker lives
    finally:
        os.close(lock)
