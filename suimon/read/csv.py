"""CSV and its relatives: rows as `{column: text}`, streamed.

Text stays text: "0000037" is no number and "2024-02-30" no date; what a cell means is the task's
annotation to say. The dialect is fixed (RFC 4180: quotes are double quotes, doubled inside), so a
first quote after a million lines is read like one in the first. Only the delimiter is found, by a
written rule: the one of `,` `;` tab that stands most often in the header line outside quotes, the
comma when none does; a name ending in .tsv means tab.

Refused with row number: rows with too many or too few fields, quotes that are not closed, columns
without a name or with the same one, a first line that is JSON. Blank lines are no rows.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

from suimon.errors import FileRefused
from suimon.read.checks import Numbered
from suimon.read.table import FileEmpty, Table, header_names
from suimon.read.text import MAX_LINE_CHARS, TextLines

DELIMITERS: Final = (",", ";", "\t")


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """`header` is True (first line), False (columns are named column_1, ...) or the names."""

    encoding: str = "utf-8"
    delimiter: str = "auto"
    header: bool | Sequence[str] = True
    skip: int = 0


class _Reader(Protocol):
    """What `csv.reader` makes; its type has no public name before Python 3.13."""

    @property
    def line_num(self) -> int: ...

    def __next__(self) -> list[str]: ...


def read_csv(file: BinaryIO, name: str, options: CsvOptions) -> Table:
    """An open file as a table. Raises FileRefused now for its header, later at a bad row."""
    # the module's own limit is for a whole process; ours is the larger one and bounded too
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_CHARS))
    lines = TextLines(file, name=name, encoding=options.encoding)
    stream = iter(lines)
    for _ in range(options.skip):
        next(stream, None)
    first = next(stream, "")
    while first and not first.strip():
        first = next(stream, "")
    if not first:
        msg = f'"{name}" is empty: it has no header and no rows'
        hint = "a file with a header and no rows is fine" if options.header is True else None
        raise FileEmpty(msg, path=name, hint=hint)
    _refuse_json(first, name)
    delimiter = options.delimiter
    if delimiter == "auto":
        delimiter = find_delimiter(first, name)
    reader = csv.reader(_chain(first, stream), delimiter=delimiter, strict=True)
    records = _records(reader, lines, name)
    if not isinstance(options.header, bool):
        columns = list(options.header)
        return Table(columns, _rows(records, reader, lines, name, columns))
    record = next(records, [])
    if options.header:
        columns = header_names(record, name)
        return Table(columns, _rows(records, reader, lines, name, columns))
    columns = [f"column_{index + 1}" for index in range(len(record))]
    rows = itertools.chain([record], records)
    return Table(columns, _rows(rows, reader, lines, name, columns))


def find_delimiter(header: str, name: str) -> str:
    """The written rule: most often in the header line outside quotes; ties go to the first."""
    if name.lower().endswith(".tsv"):
        return "\t"
    outside = "".join(header.split('"')[::2])
    return max(DELIMITERS, key=outside.count)


def _rows(
    records: Iterator[list[str]], reader: _Reader, lines: TextLines, name: str, columns: list[str]
) -> Numbered:
    width = len(columns)
    for record in records:
        lines.row += 1
        if len(record) != width:
            raise _wrong_width(name, lines.row, reader.line_num, len(record), width)
        yield lines.row, dict(zip(columns, record, strict=True))


def _records(reader: _Reader, lines: TextLines, name: str) -> Iterator[list[str]]:
    """Records that are not blank lines, with the reader's complaints in our words."""
    while True:
        begun = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row = lines.row + 1
            msg = f'"{name}", row {row} (from line {begun}) cannot be read: {error}'
            hint = 'look for a quote (") that is not closed, or not doubled inside a quoted cell'
            raise FileRefused(msg, path=name, row=row, hint=hint) from None
        if record:
            yield record


def _refuse_json(first: str, name: str) -> None:
    """A file of JSON lines under the name of a CSV would be read as one odd header."""
    if first.lstrip()[:1] not in ("{", "["):
        return
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict | list) and value:
        msg = f'"{name}" holds JSON, not CSV: its first line is a JSON value'
        raise FileRefused(msg, path=name, row=0, hint='say format="jsonl"')


def _wrong_width(name: str, row: int, line: int, found: int, wanted: int) -> FileRefused:
    many = "too many" if found > wanted else "too few"
    msg = f'"{name}", row {row} (line {line}) has {many} fields: {found}, the header has {wanted}'
    hint = "look for a delimiter inside a cell that is not quoted, or name the delimiter"
    return FileRefused(msg, path=name, row=row, hint=hint)


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest
