"""Opening a file as a stream of rows: the one door for READ vertices, tasks and previews.

A relative path is relative to the folder of the user's PATH, never to wherever a process was
started. What each format promises is in its own module; what they have in common is in `opening`
(the file is watched, and refused when it changes) and `checks` (declared types).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from suimon.errors import FileRefused
from suimon.read.checks import Note, log_note
from suimon.read.fence import Fence
from suimon.read.files import TEMPORARY, Choice, list_files
from suimon.read.folder import read_folder
from suimon.read.names import local_path
from suimon.read.opening import ask, format_by_name, not_opened, open_file

Row = Any

_ADDRESS: Final = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://", re.ASCII)


def open_source(
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002 - the word of the graph
    options: Mapping[str, Any] | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    expected: Mapping[str, int | str] | None = None,
    within: Fence | None = None,
    note: Note = log_note,
) -> Iterator[Row]:
    """The rows of a file or folder. It is opened, and refused if need be, before the first row.

    `root` is the folder that a relative path begins at (default: the working directory, which in a
    slot is that folder). `expected` may hold `size`, `mtime_ns`, `inode`, or a `version` (see
    `versions`). `within` refuses a path that leads elsewhere. `note` is told what was left out or
    kept as text on the author's word.
    """
    name = os.fspath(path)
    given = dict(options or {})
    if _ADDRESS.match(name):
        msg = f'"{name}" lies in an object store; reading takes files of this machine'
        raise FileRefused(msg, path=name, hint="fetch it in a task, for example with obstore.get")
    full = Path(root or ".") / local_path(name)
    if within is not None:
        within.check(name, full)
    is_folder = _is_folder(name, full)
    if format == "files":
        how = ask(name, format, given, note)
        if not is_folder:
            msg = f'"{name}" is no folder: format="files" lists the files of one'
            raise FileRefused(msg, path=name)
        choice = Choice(
            given.get("match", "*"),
            given.get("ignore", TEMPORARY),
            recursive=given.get("recursive", False),
        )
        return list_files(full, os.fsdecode(local_path(name)), choice, how.note)
    if is_folder:
        return read_folder(full, name, format, given, note)
    how = ask(name, format or format_by_name(name), given, note)
    return open_file(full, name, how, expected=expected or {}, within=within).rows()


def _is_folder(name: str, full: Path) -> bool:
    try:
        return full.is_dir()
    except (OSError, ValueError) as error:
        raise not_opened(name, full, error) from None
