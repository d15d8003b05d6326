"""`done` and `failed`: a file leaves the inbox when its run has ended.

Only the version that the run was started for is moved; what replaced it meanwhile stays. Nothing is
ever overwritten: a name that is taken gets a number. The file passes through a hidden name of its
own in the target folder, so that there is no moment in which a file that arrives under the old name
could be moved or removed in its stead, and a crash at any point leaves the file under one of the
two names, from which the next look goes on. It waits for every run that any trigger started for
that version, and the worst of their ends is the file's. Folders must be on the same file system: a
copy could be interrupted, a rename cannot.
"""

# ruff: noqa: PTH103, PTH104, PTH108, PTH114, PTH116, PTH118, PTH119, PTH120  (paths are bytes)

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from suimon.db.connect import Connection
from suimon.read.names import shown
from suimon.triggers.file_rules import Rules
from suimon.triggers.files import SQL
from suimon.triggers.fire import Trigger
from suimon.triggers.listing import is_inside

#: Names that are tried for one file.
MAX_NAMES: Final = 10_000
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True, slots=True)
class Move:
    key: str
    path: bytes
    host: str
    size: int
    mtime_ns: int
    inode: int
    state: str

    def is_it(self, path: bytes) -> bool:
        """Is there the version that is to be moved?"""
        try:
            status = os.lstat(path)
            if os.path.islink(path):
                status = os.stat(path)
        except OSError:
            return False
        found = (status.st_size, status.st_mtime_ns)
        inode = self.inode in (0, status.st_ino)
        return found == (self.size, self.mtime_ns) and inode


class Blocked(Exception):  # noqa: N818  (told to people, not raised to callers)
    """The file cannot be moved now; it stays where it is, and a note says why."""


def round(  # noqa: A001  (the word of the doors)
    conn: Connection, trigger: Trigger, rules: Rules, host: str
) -> tuple[bool, dict[str, str]]:
    """Move what is due. Returns whether any file is still to be moved one day, and what hinders."""
    states = [s for s in ("succeeded", "failed", "timed_out", "cancelled") if rules.target(s)]
    where = {"trigger": trigger.id, "states": states}
    moves = [
        Move(key, bytes(path), seen_by, size, mtime, int(inode), state)
        for key, path, seen_by, size, mtime, inode, state in conn.execute(SQL.due_moves, where)
    ]
    over: list[Move] = []
    troubles: dict[str, str] = {}
    for move in moves:
        target = rules.target(move.state)
        assert target is not None
        try:
            _check_links(rules, target)
            if carry(move, os.fsencode(target)) or move.host == host:
                over.append(move)  # moved, or gone or replaced here, where it was seen
        except Blocked as error:
            troubles[shown(move.path)] = str(error)
    if over:
        columns = {"keys": [m.key for m in over], "paths": [m.path for m in over]}
        conn.execute(SQL.moved, {"trigger": trigger.id, **columns})
    conn.execute(SQL.forget_moves, where)
    row = conn.execute(SQL.open_moves, where).fetchone()
    return bool(row and row[0]), troubles


def _check_links(rules: Rules, target: str) -> None:
    """Who may write into the inbox could put a link in the folder's place, and have files of their
    own name and content moved to wherever this process may write. An author's `/archive` is meant.
    """
    base, real = os.path.realpath(rules.base), os.path.realpath(target)
    if rules.below(target) and not is_inside(os.fsencode(real), os.fsencode(base)):
        msg = f'"{shown(os.fsencode(target))}" is a link that leads outside of the folder'
        raise Blocked(msg)


def carry(move: Move, folder: bytes) -> bool:
    """Move one file into the folder; False: it is not there, or no longer the version meant."""
    hidden = _hidden(move, folder)
    if not move.is_it(hidden):
        if not move.is_it(move.path):
            return False
        try:
            os.makedirs(folder, exist_ok=True)
            os.rename(move.path, hidden)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise Blocked(_why(error, folder)) from None
        if not move.is_it(hidden):
            _put_back(move, hidden)
            return False
    _name(hidden, folder, os.path.basename(move.path))
    return True


def _put_back(move: Move, hidden: bytes) -> None:
    """Another file took the name in the last moment: it goes back, as the same version."""
    folder, name = os.path.split(move.path)
    _name(hidden, folder, name)


def _name(hidden: bytes, folder: bytes, name: bytes) -> None:
    """Give a file its name in the folder, or the name with the first number that is free."""
    inode = os.lstat(hidden).st_ino
    for candidate in _names(name):
        path = os.path.join(folder, candidate)
        try:
            os.link(hidden, path, follow_symlinks=False)
        except FileExistsError:
            if os.lstat(path).st_ino != inode:  # else it is ours, named before a crash
                continue
        except FileNotFoundError:
            return  # another process was faster
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise Blocked(_why(error, folder)) from None
            if not _claim(hidden, path):
                continue
            return
        _unlink(hidden)
        return
    msg = f"{MAX_NAMES:,} names like it are taken"
    raise Blocked(msg)


def _claim(hidden: bytes, path: bytes) -> bool:
    """Where there are no hard links: make the name ours, then rename over our own empty file."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        os.rename(hidden, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise Blocked(_why(error, os.path.dirname(path))) from None
    return True


def _names(name: bytes) -> Iterator[bytes]:
    """`a.csv`, `a (2).csv`, `a (3).csv`, ... within what a name may be long."""
    yield name
    stem, dot, ending = name.rpartition(b".")
    if not stem:
        stem, dot, ending = name, b"", b""
    for number in range(2, MAX_NAMES):
        suffix = b" (%d)" % number + dot + ending
        yield stem[: 255 - len(suffix)] + suffix


def _hidden(move: Move, folder: bytes) -> bytes:
    mark = hashlib.sha256(move.key.encode() + b"\0" + move.path).hexdigest()[:32]
    return os.path.join(folder, b".suimon-moving-" + mark.encode())


def _unlink(path: bytes) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _why(error: OSError, folder: bytes) -> str:
    where = shown(folder)
    if error.errno == errno.EXDEV:
        return f'"{where}" is on another file system; choose a folder on the same one'
    return f'it cannot be moved to "{where}": {error.strerror or error}'
