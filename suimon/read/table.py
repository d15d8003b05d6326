"""What every reader gives: the columns, known before the first row, and the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from suimon.errors import FileRefused
from suimon.read.checks import Numbered

MAX_COLUMNS: Final = 16_384


@dataclass(frozen=True, slots=True)
class Table:
    """What a reader made of an open file.

    `columns` is None where rows need not have the same names (JSONL). `kinds` says what the values
    of a column are, where the file itself says so ("text", "number"). `cells` is the letter of a
    column, where row and letter name a cell. `close` must be called.
    """

    columns: list[str] | None
    rows: Numbered
    kinds: Mapping[str, str] = field(default_factory=dict)
    cells: Mapping[str, str] = field(default_factory=dict)
    close: Callable[[], None] = lambda: None


class FileEmpty(FileRefused):
    """Nothing in it at all: refused alone, passed over with a note among the files of a folder."""


def header_names(names: Sequence[str], name: str) -> list[str]:
    """The names of a header, each there once; else refused."""
    if len(names) > MAX_COLUMNS:
        msg = f'"{name}" has {len(names):,} columns; the limit is {MAX_COLUMNS:,}'
        raise FileRefused(msg, path=name, row=0)
    seen: set[str] = set()
    for index, column in enumerate(names):
        if not column:
            msg = f'"{name}": column {index + 1} has no name in the header'
            hint = "name the columns yourself: header=[...] with skip=1"
            raise FileRefused(msg, path=name, row=0, hint=hint)
        if column in seen:
            msg = f'"{name}": the header names the column "{column}" twice'
            hint = "name the columns yourself: header=[...] with skip=1"
            raise FileRefused(msg, path=name, row=0, hint=hint)
        seen.add(column)
    return list(names)
