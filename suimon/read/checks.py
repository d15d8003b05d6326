"""Rows against what was declared: each bad value is refused, left out or kept as text, as told.

With "stop" nothing is given from the first bad row on, but the rest of the file is still looked
through, so that the refusal can say how many there are and list the first twenty. With "skip" the
row is left out and with "text" the value stays as the text it is; both are counted in a note.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from suimon.core import words
from suimon.core.suggest import one_of
from suimon.errors import FileRefused
from suimon.read.schema import Bad, Misfit, as_text, convert

_LISTED: Final = 20
_LOG: Final = logging.getLogger("suimon.read")

Note = Callable[[str], None]
#: What readers give: the number of a row as people count it in that file, and the row.
Numbered = Iterator[tuple[int, Any]]


def log_note(text: str) -> None:
    """Where notes go by default: a warning; in a run that is the run's log."""
    _LOG.warning("%s", text)


def checked(
    rows: Numbered,
    *,
    name: str,
    schema: Mapping[str, str],
    on_bad: str,
    note: Note,
    cells: Mapping[str, str] | None = None,
    dates_from_text: bool = True,
    only_text: bool = False,
) -> Iterator[Any]:
    """The rows that fit. `cells` maps a column to its letter where a row and it name a cell.

    `dates_from_text` is False where the file has dates of its own (Excel): text is none then.
    `only_text` says that no cell can be a `Bad`, so that without a schema there is nothing to do.
    """
    if only_text and not schema:
        for _, row in rows:
            yield row
        return
    findings = _Findings(name, on_bad, cells or {})
    fit = _Fitter(schema, findings, dates_from_text=dates_from_text)
    try:
        for number, row in rows:
            before = findings.count
            fitted = fit(number, row)
            is_bad = findings.count > before
            findings.rows += is_bad
            if (is_bad and on_bad == "skip") or (findings.count and on_bad == "stop"):
                continue
            yield fitted
    except FileRefused:
        findings.refuse()  # what came first is what is told
        raise
    findings.refuse()
    findings.tell(note)


def refuse_unknown_columns(schema: Mapping[str, str], columns: list[str], name: str) -> None:
    """A schema that names what is not there is a mistake, not a wish."""
    for column in schema:
        if column not in columns:
            msg = f'"{name}" has no column "{column}", which the schema names'
            raise FileRefused(msg, path=name, row=0, hint=one_of(column, columns))


class _Findings:
    """The bad values so far: how many, and where the first of them stand."""

    def __init__(self, name: str, on_bad: str, cells: Mapping[str, str]) -> None:
        self.name = name
        self.on_bad = on_bad
        self.cells = cells
        self.count = 0
        self.rows = 0
        self.first: list[tuple[int, str]] = []

    def add(self, number: int, column: str | None, reason: str) -> None:
        self.count += 1
        if len(self.first) < _LISTED:
            place = f"row {number}"
            if column is not None:
                cell = f" (cell {self.cells[column]}{number})" if column in self.cells else ""
                place += f', column "{column}"{cell}'
            self.first.append((number, f"{place}: {reason}"))

    def refuse(self) -> None:
        if not self.count or self.on_bad != "stop":
            return
        number, said = self.first[0]
        more = f" ({self.count:,} such values)" if self.count > 1 else ""
        hint = (
            'correct the file or the schema, or say onBadValue: "skip" (leave these rows out) '
            'or "text" (keep these values as text)'
        )
        msg = f'"{self.name}", {said}{more}'
        raise FileRefused(msg, path=self.name, row=number, detail=self._listed(), hint=hint)

    def tell(self, note: Note) -> None:
        if self.count:
            what = (
                words.count(self.rows, "row was", "rows were") + " left out"
                if self.on_bad == "skip"
                else f"{self.count:,} values were kept as text"
            )
            note(f'"{self.name}": {what}: {self._listed()}')

    def _listed(self) -> str:
        more = self.count - len(self.first)
        listed = "; ".join(said for _, said in self.first)
        return f"{listed}; and {more:,} more" if more else listed


class _Fitter:
    """One row at a time: declared types, and cells that hold no value."""

    def __init__(
        self, schema: Mapping[str, str], findings: _Findings, *, dates_from_text: bool
    ) -> None:
        self.schema = schema
        self.findings = findings
        self.no_text = frozenset() if dates_from_text else frozenset({"date", "datetime", "time"})

    def __call__(self, number: int, row: Any) -> Any:
        if not isinstance(row, dict):
            if isinstance(row, Bad):
                return self._bad(number, None, row, row.reason)
            if self.schema:
                return self._bad(number, None, row, "the row is no object with named values")
            return row
        holds_none = [column for column, value in row.items() if isinstance(value, Bad)]
        for column in holds_none:
            row[column] = self._bad(number, column, row[column], row[column].reason)
        for column, kind in self.schema.items():
            value = row.get(column)
            if value is None or column in holds_none:
                continue
            try:
                if kind in self.no_text and isinstance(value, str):
                    msg = f'"{value[:60]}" is text, no true {kind}'
                    raise Misfit(msg)
                row[column] = convert(value, kind)
            except Misfit as misfit:
                row[column] = self._bad(number, column, value, str(misfit))
        return row

    def _bad(self, number: int, column: str | None, value: Any, reason: str) -> Any:
        self.findings.add(number, column, reason)
        if isinstance(value, Bad):
            return value.text
        return value if column is None or isinstance(value, dict | list) else as_text(value)
