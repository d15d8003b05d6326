"""The cells of one sheet as they stand in the file, row by row, and what must be known beforehand.

A sheet says at its end which cells are merged, and a formula without a value is found only where it
stands. So a sheet with merged cells or formulas is read twice: `survey` first, then `raw_rows`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from suimon.errors import FileRefused
from suimon.read.xlsx_container import damaged
from suimon.read.xlsx_workbook import Sheet, Workbook
from suimon.read.xlsx_xml import Attributes, Texts, parse

MAX_ROWS: Final = 1_048_576
MAX_COLUMNS: Final = 16_384
_MAX_MERGES: Final = 200_000
_LISTED: Final = 20
_REFERENCE: Final = re.compile(r"\$?([A-Z]{1,3})\$?([0-9]{1,7})")
_TELLING: Final = re.compile(rb"<(?:[\w.-]+:)?(?:f|mergeCell)[\s/>]")
_OVERLAP: Final = 256


class Raw(NamedTuple):
    """A cell as written: its type, its style, its value and its formula, each if there is one."""

    type: str
    style: str | None
    value: str | None
    formula: str | None


class Area(NamedTuple):
    """A merged area; rows and columns from 1, the last ones included."""

    top: int
    left: int
    bottom: int
    right: int


@dataclass(slots=True)
class Survey:
    """What must be known of a sheet before its first row is given."""

    merges: list[Area] = field(default_factory=list)
    without_value: int = 0
    suspect: int = 0
    places: list[str] = field(default_factory=list)


def survey(book: Workbook, sheet: Sheet, first_row: int) -> Survey:
    """Merged areas, and formulas (from `first_row` on) whose value nobody has calculated.

    Where the writing program asks for everything to be calculated on opening, a stored 0 is as good
    as none: some programs write it in place of each result.
    """
    found = Survey()
    if not _has_either(book.chunks(sheet)):
        return found
    for row, cells in raw_rows(book, sheet, found.merges):
        for column, cell in cells.items() if row >= first_row else ():
            if cell.formula is None or not lacks_value(book, cell):
                continue
            found.without_value += cell.value is None or cell.value == ""
            found.suspect += cell.value not in (None, "")
            if len(found.places) < _LISTED:
                found.places.append(f"{letters(column)}{row}")
    found.merges.sort()
    return found


def lacks_value(book: Workbook, cell: Raw) -> bool:
    """Has nobody calculated this formula?"""
    if cell.type == "str":
        return cell.value is None
    if not cell.value:
        return True
    return book.uncalculated and cell.type in ("", "n") and cell.value in ("0", "0.0")


def _has_either(chunks: Iterable[bytes]) -> bool:
    """Is there any formula or merged area? Looked for in the bytes, many times faster than XML."""
    rest = b""
    first = True
    for chunk in chunks:
        data = rest + chunk
        if first and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"<\0", b"\0<")):
            return True
        first = False
        if _TELLING.search(data):
            return True
        rest = data[-_OVERLAP:]
    return False  # read to its end, where the archive's checksum was compared


def raw_rows(
    book: Workbook, sheet: Sheet, merges: list[Area] | None = None
) -> Iterator[tuple[int, dict[int, Raw]]]:
    """(row, {column: cell}) of rows that are in the file, in order; merged areas on the way."""
    reader = _Reader(book.name, merges)
    for _ in parse(book.chunks(sheet), book.name, reader.start, reader.end, reader.texts):
        yield from reader.rows
        reader.rows.clear()
    if not reader.has_data:
        raise damaged(book.name, f'the sheet "{sheet.name}" has no table of cells')


class _Reader:
    """From tags to rows. Cells may leave out their names: then they follow each other."""

    def __init__(self, name: str, merges: list[Area] | None) -> None:
        self.name = name
        self.merges = merges
        self.texts = Texts(name)
        self.rows: list[tuple[int, dict[int, Raw]]] = []
        self.has_data = False
        self._row = 0
        self._column = 0
        self._cells: dict[int, Raw] = {}
        self._type = ""
        self._style: str | None = None
        self._value: str | None = None
        self._formula: str | None = None
        self._inline: list[str] | None = None
        self._in_cell = False
        self._reading = False

    def start(self, tag: str, attributes: Attributes) -> None:
        if tag == "c":
            self._begin_cell(attributes)
        elif tag == "v" or tag == "f":
            if self._in_cell:
                self.texts.begin()
        elif tag == "row":
            self._begin_row(attributes.get("r"))
        elif tag == "t":
            if self._in_cell and self._inline is not None and not self._reading:
                self.texts.begin()
        elif tag == "is":
            self._inline = []
        elif tag == "rPh":
            self._reading = True
        elif tag == "mergeCell":
            self._merge(attributes.get("ref", ""))
        elif tag == "sheetData":
            self.has_data = True

    def end(self, tag: str) -> None:
        if tag == "v":
            if self._in_cell:
                self._value = self.texts.end()
        elif tag == "c":
            self._end_cell()
        elif tag == "row":
            self.rows.append((self._row, self._cells))
            self._cells = {}
        elif tag == "f":
            if self._in_cell:
                self._formula = self.texts.end()
        elif tag == "t":
            if self._inline is not None and self.texts.wanted:
                self._inline.append(self.texts.end())
        elif tag == "rPh":
            self._reading = False

    def _begin_row(self, number: str | None) -> None:
        row = self._row + 1
        if number is not None:
            row = int(number) if number.isascii() and number.isdigit() else 0
        if not self._row < row <= MAX_ROWS:
            raise damaged(self.name, f"row {number!r} follows row {self._row}")
        self._row = row
        self._column = 0

    def _begin_cell(self, attributes: Attributes) -> None:
        reference = attributes.get("r")
        if reference is None:
            self._column += 1
        else:
            column, row = self._place(reference)
            if row != self._row:
                raise damaged(self.name, f"the cell {reference} stands in row {self._row}")
            self._column = column
        if self._column > MAX_COLUMNS:
            raise damaged(self.name, f"row {self._row} has more than {MAX_COLUMNS:,} columns")
        kind = attributes.get("t", "")
        self._type = "" if kind == "n" else kind
        self._style = attributes.get("s")
        self._value = self._formula = None
        self._inline = None
        self._in_cell = True

    def _end_cell(self) -> None:
        self._in_cell = False
        if self._inline is not None and self._type == "inlineStr":
            self._value = "".join(self._inline)
        self._inline = None
        if self._value is None and self._formula is None:
            return  # a blank cell that only has a format
        if self._column in self._cells:
            place = f"{letters(self._column)}{self._row}"
            raise damaged(self.name, f"the cell {place} is there twice")
        self._cells[self._column] = Raw(self._type, self._style, self._value, self._formula)

    def _merge(self, reference: str) -> None:
        if self.merges is None:
            return
        first, _, last = reference.partition(":")
        left, top = self._place(first)
        right, bottom = self._place(last or first)
        if len(self.merges) >= _MAX_MERGES:
            msg = f'"{self.name}" has more than {_MAX_MERGES:,} merged areas on one sheet'
            raise FileRefused(msg, path=self.name)
        self.merges.append(Area(top, left, bottom, right))

    def _place(self, reference: str) -> tuple[int, int]:
        found = _REFERENCE.fullmatch(reference)
        if found is None:
            raise damaged(self.name, f"{reference[:40]!r} is no name of a cell")
        column = 0
        for letter in found[1]:
            column = column * 26 + ord(letter) - 64
        return column, int(found[2])


def letters(column: int) -> str:
    """1 is A, 27 is AA."""
    text = ""
    while column:
        column, rest = divmod(column - 1, 26)
        text = chr(65 + rest) + text
    return text
