"""Opening a file as a stream of rows: the one door for READ vertices, tasks and previews.

A relative path is relative to the folder of the user's PATH, never to wherever a process was
started. The file is watched from beginning to end: when size, time or inode differ from those the
run was started for, or change while it is read, the rows are refused (`FileChanged`) rather than
mixed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from suimon.core.suggest import one_of
from suimon.errors import FileChanged, FileRefused
from suimon.read.csv import CsvOptions, read_csv
from suimon.read.jsonl import read_jsonl

Row = Any

#: File endings and the format they mean when none is named.
ENDINGS: Final[Mapping[str, str]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "csv": ("encoding", "delimiter", "header", "skip"),
    "jsonl": ("encoding", "skip"),
}


def open_source(
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002 - the word of the graph
    options: Mapping[str, Any] | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    expected: Mapping[str, int] | None = None,
) -> Iterator[Row]:
    """The rows of a file. The file is opened, and refused if need be, before the first row.

    `root` is the folder that a relative path begins at (default: the working directory, which in a
    slot is that folder). `expected` may hold `size`, `mtime_ns` and `inode`.
    """
    name = os.fspath(path)
    reader = _reader(name, format, dict(options or {}))
    full = Path(root or ".") / name
    try:
        file = full.open("rb")
    except OSError as error:
        raise _not_opened(name, full, error) from None
    try:
        before = os.fstat(file.fileno())
        if not stat.S_ISREG(before.st_mode):
            msg = f'"{name}" is not a regular file'
            raise FileRefused(msg, path=name)
        _compare(name, expected or {}, before, "since the run was started")
    except BaseException:
        file.close()
        raise
    return _watched(file, name, before, reader)


def _watched(
    file: BinaryIO,
    name: str,
    before: os.stat_result,
    reader: Callable[[BinaryIO], Iterator[Row]],
) -> Iterator[Row]:
    with file:
        yield from reader(file)
        _compare(name, _marks(before), os.fstat(file.fileno()), "while it was read")


def format_of(name: str, format: str | None) -> str:  # noqa: A002
    """The format by its name, else by the file's ending."""
    if format is not None:
        if format not in _OPTIONS:
            msg = f'unknown file format "{format}"'
            raise FileRefused(msg, path=name, hint=one_of(format, _OPTIONS))
        return format
    ending = Path(name).suffix.lower()
    if ending not in ENDINGS:
        known = ", ".join(ENDINGS)
        msg = f'the format of "{name}" cannot be told from its name'
        raise FileRefused(msg, path=name, hint=f'name it: format="csv"; known endings: {known}')
    return ENDINGS[ending]


def _reader(
    name: str,
    format: str | None,  # noqa: A002
    options: dict[str, Any],
) -> Callable[[BinaryIO], Iterator[Row]]:
    chosen = format_of(name, format)
    for option in options:
        if option not in _OPTIONS[chosen]:
            msg = f'reading {chosen} knows no option "{option}"'
            raise FileRefused(msg, path=name, hint=one_of(option, _OPTIONS[chosen]))
    try:
        if chosen == "csv":
            csv_options = CsvOptions(**options)
            return lambda file: read_csv(file, name, csv_options)
        "".encode(options.get("encoding", "utf-8").replace("auto", "utf-8"))
        return lambda file: read_jsonl(file, name, **options)
    except LookupError:
        msg = f'unknown encoding "{options["encoding"]}"'
        raise FileRefused(msg, path=name) from None


def _marks(status: os.stat_result) -> dict[str, int]:
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino}


def _compare(name: str, expected: Mapping[str, int], status: os.stat_result, when: str) -> None:
    found = _marks(status)
    different = [key for key, value in expected.items() if key in found and found[key] != value]
    if different:
        listed = ", ".join(f"{key} {expected[key]} -> {found[key]}" for key in different)
        msg = f'"{name}" has changed {when}'
        hint = "start a new run for the new file; write files under another name, then rename"
        raise FileChanged(msg, detail=listed, hint=hint)


def _not_opened(name: str, full: Path, error: OSError) -> FileRefused:
    reason = {
        FileNotFoundError: "there is no such file",
        PermissionError: "this process may not read it",
        IsADirectoryError: "it is a folder",
    }.get(type(error), error.strerror or str(error))
    msg = f'"{name}" cannot be opened: {reason}'
    hint = None if full.is_absolute() and name == str(full) else f"looked for {full.absolute()}"
    return FileRefused(msg, path=name, hint=hint)
