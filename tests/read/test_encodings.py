"""Encodings: marks at the beginning, and names that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from suimon.errors import FileRefused
from suimon.read.source import open_source


def made(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("marks", [1, 2, 3])
def test_a_mark_decides_and_is_no_part_of_the_first_name_however_often_it_is_there(
    tmp_path: Path, encoding: str, marks: int
) -> None:
    path = made(tmp_path, ("\ufeff" * marks + "é,b\n1,\ufeff2\n").encode(encoding))
    for said in ("auto", encoding, encoding[:6].rstrip("-")):
        assert list(open_source(path, None, {"encoding": said})) == [{"é": "1", "b": "\ufeff2"}]
    with pytest.raises(FileRefused, match=f"begins with the mark of {encoding}"):
        list(open_source(path, None, {"encoding": "latin-1"}))


NO_ENCODINGS = [
    "punycode", "idna", "utf-7", "UTF7", "unicode_escape", "raw-unicode-escape", "undefined",
    "charmap", "rot13", "base64", "hex", "zlib", "bz2", "quopri", "uu", "nope", "",
]  # fmt: skip


@pytest.mark.parametrize("encoding", NO_ENCODINGS)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_codec_that_is_no_character_set_is_no_encoding(
    tmp_path: Path, encoding: str, kind: str
) -> None:
    path = made(tmp_path, b"id,a\n1,+AOk-\n")
    with pytest.raises(FileRefused, match="the name of an encoding"):
        list(open_source(path, kind, {"encoding": encoding}))


def test_utf_16_that_needs_a_mark_and_has_none_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path, "a\n1\n".encode("utf-16-le"))
    with pytest.raises(FileRefused, match="is not valid utf-16"):
        list(open_source(path, None, {"encoding": "utf-16"}))
