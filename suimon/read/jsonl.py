"""JSONL: one JSON value per line, streamed. Blank lines are no rows.

A value that could not be stored later (NUL, half a surrogate pair, a number beyond 64 bits) is
refused here, with its row, instead of in the middle of a fan-out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from suimon.core import jsonsafe
from suimon.errors import FileRefused, InvalidJson, PayloadTooLarge
from suimon.read.text import TextLines


def read_jsonl(
    file: BinaryIO, name: str, *, encoding: str = "utf-8", skip: int = 0
) -> Iterator[Any]:
    """The values of an open file. Raises FileRefused at the row that cannot be read."""
    lines = TextLines(file, name=name, encoding=encoding)
    found_any = False
    for number, line in enumerate(lines, start=1):
        found_any = True
        if number <= skip or not line.strip():
            continue
        try:
            value = jsonsafe.loads(line, what="row")
        except (InvalidJson, PayloadTooLarge) as error:
            row = lines.row + 1
            said = f"{error.message}: {error.detail}" if error.detail else error.message
            msg = f'"{name}", row {row} (line {number}): {said}'
            raise FileRefused(msg, path=name, row=row, hint=error.hint) from None
        lines.row += 1
        yield value
    if not found_any:
        msg = f'"{name}" is empty: it has no rows'
        raise FileRefused(msg, path=name)
