"""One version of a file, as a short text: what a FILE trigger starts a run for.

A version is path, size, time of change and inode. Each lies alone (`cp -p` keeps the time, a
replaced file may have the old size); together they change whenever a file is written anew or
replaced. The text is the run's `event_id`, so whoever opens the file later can see that it still is
the one that was meant, without any other record.

Some file systems invent inodes (FAT, SMB, most of FUSE): there the same file would be new after
each mount, so the inode counts as 0. A reader takes either form.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final

MARK: Final = "file:"


def version_id(path: bytes, size: int, mtime_ns: int, inode: int, tag: str = "") -> str:
    """`file:` and 64 hexadecimal digits. `tag` is an object store's own mark of a version."""
    text = b"%d %d %d %b\0%b" % (size, mtime_ns, inode, tag.encode(), path)
    return MARK + hashlib.sha256(text).hexdigest()


def is_version(path: bytes, version: str, status: os.stat_result) -> bool:
    """Is the file with this path and status the one that `version` names?"""
    return version in (
        version_id(path, status.st_size, status.st_mtime_ns, status.st_ino),
        version_id(path, status.st_size, status.st_mtime_ns, 0),
    )
