"""The files of one folder that a FILE trigger means, as they are now. The listing is the truth.

Whatever is met on the way, a look comes to its end: an unreadable folder or file is named in the
report and looked at again the next time, a folder that is gone gives no files, links are followed
only on the author's word and never out of the base, a folder is entered once however many links
lead to it. The walk holds one folder's names at a time.
"""

# ruff: noqa: PTH116  (paths are bytes)

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from suimon.read.names import shown
from suimon.read.versions import version_id
from suimon.triggers.file_rules import Rules

MAX_DEPTH: Final = 50
#: Of what was left out, so many names are kept for people; the rest is counted.
MAX_NAMED: Final = 100
#: Folders that are watched; beyond them the slow listing has to do.
MAX_FOLDERS: Final = 1_000


class Seen(NamedTuple):
    """One file as a look saw it. `changed_ns` moves with every change, also of name and rights."""

    path: bytes
    size: int
    mtime_ns: int
    inode: int
    changed_ns: int = 0
    tag: str = ""

    @property
    def version(self) -> str:
        return version_id(self.path, self.size, self.mtime_ns, self.inode, self.tag)


@dataclass(slots=True)
class Report:
    """What one look left out, and why."""

    folders: list[tuple[bytes, int, int]] = field(default_factory=list)
    troubles: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    trouble_count: int = 0
    left_count: int = 0
    vanished: bool = False

    @property
    def complete(self) -> bool:
        return not self.vanished and not self.trouble_count

    def trouble(self, path: bytes, reason: str) -> None:
        self.trouble_count += 1
        if len(self.troubles) < MAX_NAMED:
            self.troubles[shown(path)] = reason

    def leave(self, path: bytes, reason: str) -> None:
        self.left_count += 1
        if len(self.left_out) < MAX_NAMED:
            self.left_out[shown(path)] = reason


EMPTY: Final = "it is empty"
LINK: Final = "it is a link, and follow_links is off"
OUTSIDE: Final = "it is a link that leads outside of the folder"
NO_FILE: Final = "it is no regular file"
UNREADABLE: Final = "this process may not read it"


class _Folder(NamedTuple):
    path: bytes
    states: frozenset[int]
    depth: int


def look(rules: Rules, report: Report, *, inodes: bool = True) -> Iterator[Seen]:
    """The files that are meant, in no order. `inodes` is False where inodes are invented."""
    base = os.fsencode(rules.base)
    real = os.path.realpath(base)
    waiting = [_Folder(base, rules.start, 0)]
    visited: set[tuple[int, int]] = set()
    own = {os.fsencode(folder) for folder in rules.own_folders}
    while waiting:  # bounded: each folder is entered once
        folder = waiting.pop()
        for entry in _entries(folder, report, visited):
            name = os.fsdecode(entry.name)
            states = rules.step(folder.states, name)
            path = entry.path
            whole, on = rules.is_whole(states), rules.goes_on(states)
            if not states or (ignored := _ignored(rules, path, base)):
                if states and whole:
                    report.leave(path, f'ignored by "{ignored}"')
                continue
            try:
                kind, reason = _kind(entry, rules, real)
                if kind == "folder":
                    if on and path not in own and folder.depth < MAX_DEPTH:
                        waiting.append(_Folder(path, states, folder.depth + 1))
                elif not whole:
                    continue
                elif kind == "other":
                    report.leave(path, reason)
                else:
                    status = entry.stat(follow_symlinks=rules.follow_links)
                    if (seen := judged(path, status, rules, report, inodes=inodes)) is not None:
                        yield seen
            except FileNotFoundError:
                continue  # gone since it was listed
            except OSError as error:
                report.trouble(path, error.strerror or str(error))


def judged(
    path: bytes, status: os.stat_result, rules: Rules, report: Report, *, inodes: bool
) -> Seen | None:
    """A regular file, unless it is empty."""
    if status.st_size == 0 and not rules.take_empty:
        report.leave(path, EMPTY)
        return None
    inode = status.st_ino if inodes else 0
    return Seen(path, status.st_size, status.st_mtime_ns, inode, status.st_ctime_ns)


def is_readable(path: bytes) -> bool:
    """Asked only of files that nobody knows yet."""
    return os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids)


def _ignored(rules: Rules, path: bytes, base: bytes) -> str | None:
    return rules.ignored_by(os.fsdecode(path[len(base) :].lstrip(b"/")))


def _entries(
    folder: _Folder, report: Report, visited: set[tuple[int, int]]
) -> Iterator[os.DirEntry[bytes]]:
    """The names in one folder, which is entered once, whatever links lead to it."""
    try:
        status = os.stat(folder.path)
        if (status.st_dev, status.st_ino) in visited:
            return
        visited.add((status.st_dev, status.st_ino))
        with os.scandir(folder.path) as entries:
            if len(report.folders) < MAX_FOLDERS:
                report.folders.append((folder.path, status.st_dev, status.st_ino))
            yield from entries
    except OSError as error:
        gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
        if folder.depth == 0:
            report.vanished = True
            reason = "there is no such folder" if gone else error.strerror
            report.trouble(folder.path, reason or str(error))
        elif not gone:
            report.trouble(folder.path, error.strerror or str(error))


def _kind(entry: os.DirEntry[bytes], rules: Rules, real: bytes) -> tuple[str, str]:
    """("file" | "folder" | "other", why it is left out)."""
    if entry.is_symlink():
        if not rules.follow_links:
            return "other", LINK
        if not is_inside(os.path.realpath(entry.path), real):
            return "other", OUTSIDE
    if entry.is_dir(follow_symlinks=rules.follow_links):
        return "folder", ""
    if entry.is_file(follow_symlinks=rules.follow_links):
        return "file", ""
    return "other", NO_FILE


def is_inside(path: bytes, folder: bytes) -> bool:
    """Both are real paths."""
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")


def now(rules: Rules, path: bytes, *, inodes: bool = True) -> Seen | None:
    """One file as it is now; None when it is gone or no file any more."""
    try:
        status = os.stat(path, follow_symlinks=rules.follow_links)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    inode = status.st_ino if inodes else 0
    return Seen(path, status.st_size, status.st_mtime_ns, inode, status.st_ctime_ns)
