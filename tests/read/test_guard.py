"""Whatever a library says of a file is a refused file, never an error of the engine."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suimon.errors import FileRefused
from suimon.read import open_source, opening
from suimon.read.table import Table


def failing(error: Exception, after: int | None) -> Any:
    """A reader that fails while it opens, or after so many rows."""

    def rows() -> Iterator[tuple[int, Any]]:
        for number in range(1, (after or 0) + 1):
            yield number, {"a": number}
        raise error

    def read(*_: Any) -> Table:
        if after is None:
            raise error
        return Table(["a"], rows())

    return read


@pytest.mark.parametrize(
    "error", [ValueError("odd"), KeyError("x"), RecursionError(), OSError("?")]
)
@pytest.mark.parametrize("after", [None, 0, 2])
def test_an_error_of_a_reader_is_a_refused_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, after: int | None
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    monkeypatch.setattr(opening, "_read", failing(error, after))
    with pytest.raises(FileRefused, match=r'a\.csv" cannot be read') as caught:
        list(open_source(path))
    assert caught.value.row == after
    assert type(error).__name__ in (caught.value.detail or "")
    assert caught.value.hint


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EIO, "Input/output error")])
@pytest.mark.parametrize("after", [None, 1])
def test_what_is_the_machines_fault_is_not_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, after: int | None
) -> None:
    """Such a step is tried again; a refused file would be refused again."""
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    monkeypatch.setattr(opening, "_read", failing(error, after))
    with pytest.raises(type(error)):
        list(open_source(path))
