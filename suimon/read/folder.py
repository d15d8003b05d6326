"""A folder of files read as one table: the union of their columns, by name.

All headers are read before the first row is given, so that a column that appears on the second day
exists from the first row on, empty (None) where a file does not have it. Files come in the order of
the bytes of their names. Refused, naming file and column: a column that is text in one file and a
number in another. Files with nothing in them add no rows; a note says so.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from suimon.errors import FileRefused
from suimon.read.checks import Note, refuse_unknown_columns
from suimon.read.files import TEMPORARY, Choice, find_files
from suimon.read.names import shown
from suimon.read.opening import How, ask, marks, open_file
from suimon.read.options import ENDINGS, format_of
from suimon.read.table import FileEmpty, Table

MAX_FILES: Final = 100_000
_LISTED: Final = 10
#: Files called .txt in a folder are as often a note for people as a table.
_NOT_BY_ENDING: Final = (".txt",)


@dataclass(frozen=True, slots=True)
class _Member:
    """One of the files, with the state it was in when its header was read."""

    full: Path
    name: str
    marks: Mapping[str, int]


def read_folder(
    folder: Path,
    name: str,
    format: str | None,  # noqa: A002
    options: Mapping[str, Any],
    note: Note,
) -> Iterator[Any]:
    """The rows of all files of one format."""
    chosen, names = _members(folder, name, format, options, note)
    how = ask(name, chosen, options, note)
    union = _Union(how)
    members = []
    for each in names:
        full = Path(os.fsdecode(os.path.join(os.fsencode(folder), each)))  # noqa: PTH118 - bytes
        member_name = f"{name.rstrip('/')}/{shown(each)}"
        try:
            opened = open_file(full, member_name, how, expected={}, check_schema=False)
        except FileEmpty:
            note(f'"{member_name}" is empty and adds no rows')
            continue
        try:
            union.add(opened.table, member_name)
            members.append(_Member(full, member_name, marks(opened.before)))
        finally:
            opened.close()
    columns = list(union.columns)
    if chosen != "jsonl":
        refuse_unknown_columns(how.schema, columns, name)
    return _rows(members, columns, how)


def _rows(members: list[_Member], columns: list[str], how: How) -> Iterator[Any]:
    blank = dict.fromkeys(columns)
    for member in members:
        opened = open_file(member.full, member.name, how, expected=member.marks, check_schema=False)
        rows = opened.rows()
        try:
            if opened.table.columns is None or opened.table.columns == columns:
                yield from rows
            else:
                for row in rows:
                    yield blank | row
        except FileEmpty:
            how.note(f'"{member.name}" is empty and adds no rows')


def _members(
    folder: Path,
    name: str,
    format: str | None,  # noqa: A002
    options: Mapping[str, Any],
    note: Note,
) -> tuple[str, list[bytes]]:
    """The format, and the names of the files that are read."""
    choice = Choice(
        options.get("match", "*"),
        options.get("ignore", TEMPORARY),
        recursive=options.get("recursive", False),
    )
    found = find_files(folder, name, choice, note)
    by_format: dict[bytes, str | None]
    if format is not None and "match" in options:
        by_format = dict.fromkeys(found, format)
    else:
        by_format = {each: _format(each) for each in found}
    formats = Counter(each for each in by_format.values() if each)
    if format is None:
        if len(formats) > 1:
            listed = " and ".join(f"{count} {each}" for each, count in sorted(formats.items()))
            msg = f'"{name}" holds files of several formats: {listed}'
            raise FileRefused(msg, path=name, hint='say which: format="csv"')
        format = next(iter(formats), None)  # noqa: A001
    names = [each for each in found if format and by_format[each] == format]
    if not names or format is None:
        msg = f'"{name}" holds no {format or "table"} files'
        raise FileRefused(msg, path=name, hint=f"endings that are known: {', '.join(ENDINGS)}")
    if len(names) > MAX_FILES:
        msg = f'"{name}" holds {len(names):,} files; one table is made of at most {MAX_FILES:,}'
        raise FileRefused(msg, path=name)
    others = [each for each in found if by_format[each] != format]
    if others:
        listed = ", ".join(f'"{shown(each)}"' for each in others[:_LISTED])
        note(f'"{name}": {len(others):,} files are no {format} and were not read: {listed}')
    return format, names


def _format(name: bytes) -> str | None:
    text = shown(name)
    return None if text.lower().endswith(_NOT_BY_ENDING) else format_of(text)


class _Union:
    """The columns so far, and which file said first what is in each."""

    def __init__(self, how: How) -> None:
        self.columns: dict[str, None] = {}
        self._declared = how.schema
        self._kinds: dict[str, tuple[str, str]] = {}

    def add(self, table: Table, file: str) -> None:
        for column in table.columns or ():
            self.columns[column] = None
        for column, kind in table.kinds.items():
            if kind == "nothing" or column in self._declared:
                continue
            known, first = self._kinds.setdefault(column, (kind, file))
            if known != kind:
                msg = f'"{file}", column "{column}" holds {kind}, but "{first}" has {known} there'
                hint = f'declare it: schema={{"{column}": "text"}}, or read the files apart'
                raise FileRefused(msg, path=file, hint=hint)
