"""One file: opened, watched from beginning to end, read by the reader of its format.

When size, time or inode differ from those the run was started for, or change while the file is
read, the rows are refused (`FileChanged`) rather than mixed. Only regular files are read: a pipe or
a device could make a reader wait for ever.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from suimon.core.suggest import one_of
from suimon.errors import FileChanged, FileRefused
from suimon.read import options as rules
from suimon.read.checks import Note, checked, refuse_unknown_columns
from suimon.read.csv import CsvOptions, read_csv
from suimon.read.fence import Fence
from suimon.read.guard import guard, guarded
from suimon.read.jsonl import read_jsonl
from suimon.read.options import ENDINGS, FORMATS
from suimon.read.table import Table
from suimon.read.versions import is_version

_CHANGED: Final = "start a new run for the new file; write files under another name, then rename"
_NO_OPTIONS_OF_A_FILE: Final = ("schema", "onBadValue", "match", "ignore", "recursive")


@dataclass(frozen=True, slots=True)
class How:
    """What was asked for: the format, its checked options, and where notes go."""

    format: str
    options: Mapping[str, Any]
    note: Note

    @property
    def schema(self) -> Mapping[str, str]:
        schema: Mapping[str, str] = self.options.get("schema") or {}
        return schema


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file with its columns read. `rows` gives the stream, which closes the file at its end."""

    file: BinaryIO
    name: str
    before: os.stat_result
    table: Table
    how: How

    def rows(self) -> Iterator[Any]:
        stream = self._rows()
        next(stream)  # begun, so that the file is closed with the stream even when it is not read
        return stream

    def close(self) -> None:
        self.table.close()
        self.file.close()

    def _rows(self) -> Iterator[Any]:
        try:
            yield None
            yield from checked(
                guarded(self.table.rows, self.name),
                name=self.name,
                schema=self.how.schema,
                on_bad=self.how.options.get("onBadValue", "stop"),
                note=self.how.note,
                cells=self.table.cells,
                dates_from_text=self.how.format != "excel",
                only_text=self.how.format == "csv",
            )
            compare(
                self.name, marks(self.before), os.fstat(self.file.fileno()), "while it was read"
            )
        finally:
            self.close()


def ask(name: str, format: str, options: Mapping[str, Any], note: Note) -> How:  # noqa: A002
    """The options, checked by the rules that also check a READ vertex."""
    if format not in FORMATS:
        msg = f'unknown file format "{format}"'
        raise FileRefused(msg, path=name, hint=one_of(format, FORMATS))
    for option, value in options.items():
        if option not in rules.OPTIONS[format]:
            msg = f'reading {format} knows no option "{option}"'
            raise FileRefused(msg, path=name, hint=one_of(option, rules.OPTIONS[format]))
        problem = rules.problem(format, option, value)
        if problem:
            msg = f'"{name}": {option} {problem}'
            raise FileRefused(msg, path=name)
    return How(format, options, note)


def format_by_name(name: str) -> str:
    """The format by the file's ending, or FileRefused with the endings that are known."""
    found = rules.format_of(name)
    if found is None:
        known = ", ".join(ENDINGS)
        msg = f'the format of "{name}" cannot be told from its name'
        raise FileRefused(msg, path=name, hint=f'name it: format="csv"; known endings: {known}')
    return found


def open_file(
    full: Path,
    name: str,
    how: How,
    *,
    expected: Mapping[str, int | str],
    within: Fence | None = None,
    check_schema: bool = True,
) -> OpenFile:
    """Open one file and read its header. Whatever is refused here has closed the file again."""
    file = _opened(full, name)
    table: Table | None = None
    try:
        if within is not None:
            within.check_open(name, file.fileno())
        before = os.fstat(file.fileno())
        compare(name, expected, before, "since the run was started")
        _compare_version(name, full, expected.get("version"), before)
        with guard(name):
            table = _read(file, name, how)
        if check_schema and table.columns is not None:
            refuse_unknown_columns(how.schema, table.columns, name)
    except BaseException:
        if table is not None:
            table.close()
        file.close()
        raise
    return OpenFile(file, name, before, table, how)


def _read(file: BinaryIO, name: str, how: How) -> Table:
    options = {key: value for key, value in how.options.items() if key not in _NO_OPTIONS_OF_A_FILE}
    match how.format:
        case "csv":
            return read_csv(file, name, CsvOptions(**options))
        case "jsonl":
            return Table(None, read_jsonl(file, name, how.schema, **options))
        case "parquet":
            from suimon.read.parquet import read_parquet

            return read_parquet(file, name, how.schema)
        case "excel":
            from suimon.read.xlsx import ExcelOptions, read_excel

            return read_excel(file, name, ExcelOptions(**options), how.note)
        case other:
            raise AssertionError(other)


def _opened(full: Path, name: str) -> BinaryIO:
    try:
        # without waiting: opening a pipe that nobody writes to would never end
        fd = os.open(full, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise not_opened(name, full, error) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        msg = f'"{name}" is not a regular file'
        raise FileRefused(msg, path=name)
    return os.fdopen(fd, "rb")


def not_opened(name: str, full: Path, error: OSError | ValueError) -> FileRefused:
    reasons: dict[type[Exception], str] = {
        FileNotFoundError: "there is no such file",
        PermissionError: "this process may not read it",
        IsADirectoryError: "it is a folder",
    }
    reason = reasons.get(type(error)) or getattr(error, "strerror", None) or str(error)
    msg = f'"{name}" cannot be opened: {reason}'
    where = str(full.absolute()).encode("utf-8", "backslashreplace").decode()
    hint = None if full.is_absolute() and name == str(full) else f"looked for {where}"
    return FileRefused(msg, path=name, hint=hint)


def marks(status: os.stat_result) -> dict[str, int]:
    """What tells one state of a file from another."""
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino}


def compare(
    name: str, expected: Mapping[str, int | str], status: os.stat_result, when: str
) -> None:
    found = marks(status)
    different = [key for key, value in expected.items() if key in found and found[key] != value]
    if different:
        listed = ", ".join(f"{key} {expected[key]} -> {found[key]}" for key in different)
        msg = f'"{name}" has changed {when}'
        raise FileChanged(msg, detail=listed, hint=_CHANGED)


def _compare_version(
    name: str, full: Path, version: int | str | None, status: os.stat_result
) -> None:
    """Is it the file that a FILE trigger saw?"""
    if isinstance(version, str) and not is_version(os.fsencode(full), version, status):
        msg = f'"{name}" has changed since it started the run'
        found = f"now it has {status.st_size:,} bytes; its own run reads what is there now"
        raise FileChanged(msg, detail=found, hint=_CHANGED)
