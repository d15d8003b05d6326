"""The files of a folder: each is an item {path, name, size, mtime}, sorted by the bytes of names.

Listed are regular files that can be meant to be read. Left out, and named in a note: hidden files,
temporary and lock files of programs that are still writing, links (a link may lead outside), and
what is no file. Only names are held, at most a million; sizes and times are asked for one by one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from suimon.errors import FileChanged, FileRefused
from suimon.read.checks import Note
from suimon.read.names import path_text, shown

#: Names of files that somebody is still writing, or that only say that somebody has one open.
TEMPORARY: Final = (
    "~$*", "*.part", "*.filepart", "*.partial", "*.crdownload", "*.tmp", "*.temp", "*.swp",
    ".~lock.*",
)  # fmt: skip
MAX_FILES: Final = 1_000_000
_LISTED: Final = 10
_DEPTH: Final = 50
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which names: `match` is a pattern of the name; `ignore` replaces the list TEMPORARY."""

    match: str = "*"
    ignore: Sequence[str] = TEMPORARY
    recursive: bool = False

    def takes(self, name: str) -> bool | None:
        """None when the pattern does not mean it at all, False when it is left out with a note."""
        if not fnmatchcase(name, self.match):
            return None
        hidden = name.startswith(".") and not self.match.startswith(".")
        return not hidden and not any(fnmatchcase(name, each) for each in self.ignore)


def list_files(folder: Path, given: str, choice: Choice, note: Note) -> Iterator[dict[str, Any]]:
    """The items, one by one. `given` is the folder's name as it was said: paths begin with it."""
    names = find_files(folder, given, choice, note)
    begin = b"" if given in ("", ".") else os.fsencode(given).rstrip(b"/") + b"/"
    for name in names:
        status = status_of(folder, name, given)
        yield {
            "path": path_text(begin + name),
            "name": shown(name.rpartition(b"/")[2]),
            "size": status.st_size,
            "mtime": _time(status.st_mtime_ns),
        }


def find_files(folder: Path, given: str, choice: Choice, note: Note) -> list[bytes]:
    """Names relative to the folder, sorted by their bytes."""
    found: list[bytes] = []
    left_out: list[bytes] = []
    _walk(os.fsencode(folder), b"", given, choice, found, left_out, 0)
    if left_out:
        listed = ", ".join(f'"{shown(name)}"' for name in sorted(left_out)[:_LISTED])
        more = f" and {len(left_out) - _LISTED:,} more" if len(left_out) > _LISTED else ""
        note(f'"{given}": left out (hidden, temporary, links or no files): {listed}{more}')
    found.sort()
    return found


def status_of(folder: Path, name: bytes, given: str) -> os.stat_result:
    """Size and times of a listed file."""
    try:
        return os.lstat(os.path.join(os.fsencode(folder), name))  # noqa: PTH118 - names are bytes
    except OSError as error:
        msg = f'"{shown(name)}" in "{given}" was listed and cannot be looked at any more'
        raise FileChanged(msg, detail=error.strerror) from None


def _walk(
    root: bytes,
    below: bytes,
    given: str,
    choice: Choice,
    found: list[bytes],
    left_out: list[bytes],
    depth: int,
) -> None:
    if depth > _DEPTH:
        msg = f'"{given}" has folders more than {_DEPTH} levels deep'
        raise FileRefused(msg, path=given)
    folder = root + b"/" + below if below else root
    try:
        with os.scandir(folder) as entries:
            listed = list(_bounded(entries, given))
    except OSError as error:
        place = f', folder "{shown(below)}"' if below else ""
        msg = f'"{given}"{place} cannot be listed: {error.strerror}'
        raise FileRefused(msg, path=given) from None
    for entry in listed:
        name = below + b"/" + entry.name if below else entry.name
        if entry.is_dir(follow_symlinks=False):
            if choice.recursive and not entry.name.startswith(b"."):
                _walk(root, name, given, choice, found, left_out, depth + 1)
            continue
        taken = choice.takes(os.fsdecode(entry.name))
        if taken and entry.is_file(follow_symlinks=False):
            found.append(name)
        elif taken is not None:
            left_out.append(name)
    if len(found) > MAX_FILES:
        raise _too_many(given)


def _bounded(entries: Any, given: str) -> Iterator[os.DirEntry[bytes]]:
    for count, entry in enumerate(entries):
        if count > 2 * MAX_FILES:
            raise _too_many(given)
        yield entry


def _too_many(given: str) -> FileRefused:
    msg = f'"{given}" has more than {MAX_FILES:,} files'
    return FileRefused(msg, path=given, hint='spread them over folders, or narrow match="*.csv"')


def _time(ns: int) -> str:
    return (_EPOCH + timedelta(microseconds=ns // 1000)).isoformat(timespec="microseconds")
