"""What kind of file system a folder lies on, from the kernel's own table.

Two things depend on it: whether anybody is told when another machine writes (nobody is, on network
and FUSE file systems: they are listed), and whether inodes mean anything (FAT, SMB and most of FUSE
invent them anew at each mount).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_TABLE: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = frozenset(
    (
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs",
        "beegfs", "ncpfs", "davfs", "virtiofs", "vboxsf", "prl_fs", "ocfs2", "gfs2", "autofs",
    )
)  # fmt: skip
_INVENTED: Final = frozenset(
    ["vfat", "msdos", "exfat", "cifs", "smb3", "smbfs", "9p", "virtiofs", "vboxsf", "prl_fs"]
)


def kind_of(path: str, *, table: str | None = None) -> str:
    """The file system's type, as in `ext4`; empty where it cannot be found out."""
    try:
        text = _TABLE.read_text(encoding="utf-8", errors="surrogateescape") if table is None else ""
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, found = "", ""
    for line in (table if table is not None else text).splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount on the same point hides the earlier
            best, found = point, after.split(" ", 1)[0]
    return found


def is_told(kind: str) -> bool:
    """Does the kernel tell about every write there, whoever wrote?"""
    return kind not in _NETWORK and not kind.startswith("fuse")


def has_inodes(kind: str) -> bool:
    """Does a file keep its inode?"""
    return kind not in _INVENTED and not kind.startswith("fuse")
