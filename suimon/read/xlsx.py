"""Excel workbooks (.xlsx): a sheet as rows, streamed, each cell as the kind it is in the file.

Whole numbers are int, others float, dates are dates, texts are texts; a blank cell is None. A cell
without a value of its own kind is never delivered as empty or 0: errors (#N/A) and numbers shown as
days that never were are bad values (see `checks`), and a sheet with formulas that nobody has
calculated is refused with their number and places, before the first row.

Read are all rows below the header, hidden ones included; rows with nothing in them are no rows.
Memory does not grow with the sheet: rows are streamed, and the texts beyond 16 MiB lie on disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from suimon.errors import FileRefused
from suimon.read.checks import Note, Numbered
from suimon.read.schema import Bad, as_text
from suimon.read.table import Table, header_names
from suimon.read.xlsx_container import Container
from suimon.read.xlsx_header import Merged, header_columns
from suimon.read.xlsx_sheet import Survey, letters, raw_rows, survey
from suimon.read.xlsx_values import value_of
from suimon.read.xlsx_workbook import Sheet, Workbook, open_workbook


@dataclass(frozen=True, slots=True)
class ExcelOptions:
    """`header` is True (one line), a number of lines, False (column_1, ...) or the names.

    `skip` counts rows of the sheet. `sheet` is needed when more than one visible sheet has cells.
    `formulas` says what becomes of formulas nobody has calculated: the file is refused ("stop"),
    a stored 0 is believed ("stored"), or the formula is given as text ("text").
    """

    sheet: str | int | None = None
    header: bool | int | Sequence[str] = True
    skip: int = 0
    fillMerged: bool = False  # noqa: N815 - the word of the graph
    formulas: str = "stop"


def read_excel(file: BinaryIO, name: str, options: ExcelOptions, note: Note) -> Table:
    """An open file as a table. Its header and formulas are judged now, its rows later."""
    book = open_workbook(Container(file, name))
    try:
        sheet = _chosen(book, options)
        first_row = options.skip + 1
        found = survey(book, sheet, first_row)
        _judge_formulas(book, sheet, found, options, note)
        rows = _values(book, sheet, options)
        merged = Merged(found.merges, name)
        columns = header_columns(rows, merged, options.header, first_row=first_row, name=name)
        if found.merges and not options.fillMerged:
            _note_merged(merged, columns.last_row, book, note)
        names = header_names(list(columns.names.values()), name)
    except BaseException:
        book.close()
        raise
    cells = {column: letters(place) for place, column in columns.names.items()}
    body = _body(itertools.chain(columns.pending, rows), merged, columns.names, options, name)
    return Table(names, body, cells=cells, close=book.close)


def _chosen(book: Workbook, options: ExcelOptions) -> Sheet:
    if options.sheet is not None:
        return book.sheet(options.sheet)
    visible = [sheet for sheet in book.sheets if sheet.visible]
    with_cells = [sheet for sheet in visible if len(visible) == 1 or _has_cells(book, sheet)]
    if len(with_cells) > 1:
        names = ", ".join(f'"{sheet.name}"' for sheet in with_cells[:20])
        msg = f'"{book.name}" has {len(with_cells)} sheets with cells: {names}'
        hint = f'say which: sheet="{with_cells[0].name}"'
        raise FileRefused(msg, path=book.name, hint=hint)
    if not with_cells:
        msg = f'"{book.name}" is empty: no visible sheet has a cell with a value'
        raise FileRefused(msg, path=book.name)
    return with_cells[0]


def _has_cells(book: Workbook, sheet: Sheet) -> bool:
    return any(cells for _, cells in raw_rows(book, sheet))


def _judge_formulas(
    book: Workbook, sheet: Sheet, found: Survey, options: ExcelOptions, note: Note
) -> None:
    count = found.without_value + (found.suspect if options.formulas == "stop" else 0)
    if not count:
        return
    places = ", ".join(found.places) + (", ..." if len(found.places) < count else "")
    what = f"{count:,} formula{'s' if count > 1 else ''} that nobody has calculated"
    if options.formulas == "text":
        note(f'"{book.name}", sheet "{sheet.name}": {what} given as text: {places}')
        return
    msg = f'"{book.name}", sheet "{sheet.name}" has {what}: {places}'
    zeros = (
        f"{found.suspect:,} of them hold a 0 in a workbook that asks for calculation on opening"
        if found.suspect and options.formulas == "stop"
        else None
    )
    hint = 'open it in Excel and save it; or say formulas: "text" to get the formulas themselves'
    if found.suspect and not found.without_value:
        hint += ', or "stored" if the zeros are right'
    raise FileRefused(msg, path=book.name, detail=zeros, hint=hint)


def _note_merged(merged: Merged, header_row: int, book: Workbook, note: Note) -> None:
    count, first = merged.below(header_row)
    if count:
        msg = f'"{book.name}": {count:,} merged areas among the rows (the first at {first}): only'
        note(f"{msg} their first cell holds the value; fillMerged: true gives it to all")


def _values(
    book: Workbook, sheet: Sheet, options: ExcelOptions
) -> Iterator[tuple[int, dict[int, Any]]]:
    """(row, {column: value}), from the first row of the sheet: a merged value may begin there."""
    as_formula = options.formulas == "text"
    for row, cells in raw_rows(book, sheet):
        yield (
            row,
            {column: value_of(book, cell, as_formula=as_formula) for column, cell in cells.items()},
        )


def _body(
    rows: Iterator[tuple[int, dict[int, Any]]],
    merged: Merged,
    columns: dict[int, str],
    options: ExcelOptions,
    name: str,
) -> Numbered:
    blank = dict.fromkeys(columns.values())
    for number, values in rows:
        merged.pass_row(number, values)
        if all(value is None or value == "" for value in values.values()):
            continue
        if options.fillMerged:
            merged.fill(number, values, columns)
        row: dict[str, Any] = dict(blank)
        for column, value in values.items():
            if column in columns:
                row[columns[column]] = value
            elif value is not None and value != "":
                raise _without_name(name, number, column, value)
        yield number, row


def _without_name(name: str, row: int, column: int, value: Any) -> FileRefused:
    shown = value.text if isinstance(value, Bad) else as_text(value)
    place = f"{letters(column)}{row}"
    msg = f'"{name}", row {row}: the cell {place} holds "{shown[:60]}", but column'
    msg += f" {letters(column)} has no name in the header"
    hint = "say where the header is: skip (rows above it), header (number of its lines, or names)"
    return FileRefused(msg, path=name, row=row, hint=hint)
