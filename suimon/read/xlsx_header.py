"""The header of a sheet, of one or more lines, and the areas where one value stands for many cells.

A header of several lines gives a column the texts above it from top to bottom, joined by " / ":
"上期 / 4月". A merged cell gives its text to every column it covers, and only once to a column it
covers in several lines; blanks add nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from suimon.errors import FileRefused
from suimon.read.schema import Bad, as_text
from suimon.read.xlsx_container import damaged
from suimon.read.xlsx_sheet import MAX_COLUMNS, Area, letters

BETWEEN_LINES: Final = " / "

Row = tuple[int, dict[int, Any]]


class Merged:
    """The merged areas of a sheet, met row by row from the top."""

    def __init__(self, areas: Sequence[Area], name: str) -> None:
        self._areas = areas
        self._name = name
        self._next = 0
        self._active: list[tuple[Area, Any]] = []

    def pass_row(self, number: int, values: dict[int, Any]) -> None:
        """Take the values of areas that begin in this row. Each row is passed once, in order."""
        self._active = [active for active in self._active if active[0].bottom >= number]
        while self._next < len(self._areas) and self._areas[self._next].top <= number:
            area = self._areas[self._next]
            self._next += 1
            if area.bottom >= number:
                value = values.get(area.left) if area.top == number else None
                self._active.append((area, value))
        if sum(area.right - area.left + 1 for area, _ in self._active) > MAX_COLUMNS:
            raise damaged(self._name, "its merged areas overlap")

    def covering(self, number: int, last: int = MAX_COLUMNS) -> Iterator[tuple[int, Any, Area]]:
        """(column, value, area) of the cells of this row that belong to another cell."""
        for area, value in self._active:
            for column in range(area.left, min(area.right, last) + 1):
                if (column, number) != (area.left, area.top) and value is not None:
                    yield column, value, area

    def fill(self, number: int, values: dict[int, Any], columns: Collection[int]) -> None:
        """Give the merged value to the blank cells of its area; what has a value keeps it."""
        for column, value, _ in self.covering(number, max(columns)):
            if column in columns and values.get(column) is None:
                values[column] = value

    def below(self, row: int) -> tuple[int, str]:
        """How many areas begin below a row, and where the first does."""
        found = [area for area in self._areas if area.top > row]
        return len(found), f"{letters(found[0].left)}{found[0].top}" if found else ""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names by place (1 is A), the row read too far if any, and the header's last row."""

    names: dict[int, str]
    pending: list[Row]
    last_row: int


def header_columns(
    rows: Iterator[Row],
    merged: Merged,
    header: bool | int | Sequence[str],
    *,
    first_row: int,
    name: str,
) -> Columns:
    """The names of the columns. Consumes the rows above the first row of data."""
    first = _first(rows, merged, first_row, blank_too=not isinstance(header, bool | int))
    if not isinstance(header, bool | int):
        names = dict(enumerate(header, start=1))
        return Columns(names, [first] if first else [], first[0] - 1 if first else first_row)
    if first is None:
        msg = f'"{name}" is empty: the sheet has no header and no rows'
        raise FileRefused(msg, path=name)
    if header is False:
        places = range(1, max(first[1]) + 1)
        return Columns({place: f"column_{place}" for place in places}, [first], first[0] - 1)
    lines, pending = _lines(first, rows, int(header))
    last = first[0] + int(header) - 1
    names = _names(lines, range(first[0], last + 1), merged, name)
    return Columns(names, pending, last)


def _first(rows: Iterator[Row], merged: Merged, first_row: int, *, blank_too: bool) -> Row | None:
    """The first row of the table that holds anything; what is above it is passed by."""
    for number, values in rows:
        there = any(value is not None and value != "" for value in values.values())
        if number >= first_row and (there or blank_too):
            return number, values
        merged.pass_row(number, values)
    return None


def _lines(
    first: Row, rows: Iterator[Row], count: int
) -> tuple[dict[int, dict[int, Any]], list[Row]]:
    lines = dict([first])
    last = first[0] + count - 1
    if count > 1:
        for number, values in rows:
            if number > last:
                return lines, [(number, values)]
            lines[number] = values
    return lines, []


def _names(
    lines: dict[int, dict[int, Any]], numbers: range, merged: Merged, name: str
) -> dict[int, str]:
    parts: dict[int, list[str]] = {}
    given: set[tuple[int, Area]] = set()
    for number in numbers:
        values = lines.get(number, {})
        merged.pass_row(number, values)
        for column, value in values.items():
            _add(parts, column, value, name, number)
        for column, value, area in merged.covering(number):
            from_above = area.top < number and column == area.left
            if values.get(column) is not None or not (len(numbers) > 1 or from_above):
                continue
            told = area.top >= numbers.start and column == area.left
            if not told and (column, area) not in given:
                given.add((column, area))
                _add(parts, column, value, name, number)
    return {column: BETWEEN_LINES.join(parts[column]) for column in sorted(parts)}


def _add(parts: dict[int, list[str]], column: int, value: Any, name: str, row: int) -> None:
    if isinstance(value, Bad):
        place = f"{letters(column)}{row}"
        msg = f'"{name}", row {row}: the header cell {place} has no value: {value.reason}'
        raise FileRefused(msg, path=name, row=row)
    text = "" if value is None else as_text(value)
    if text.strip():
        parts.setdefault(column, []).append(text)
