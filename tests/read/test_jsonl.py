"""JSONL: one value per line, refused with its row when it could not be stored later."""

from __future__ import annotations

from pathlib import Path

import pytest

from suimon.errors import FileRefused
from suimon.read.source import open_source


def made(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    return path


def test_values_come_line_by_line(tmp_path: Path) -> None:
    path = made(tmp_path, b'\xef\xbb\xbf{"a":"007"}\n\n[1]\r\nnull\n"\xc3\xa9"')
    assert list(open_source(path)) == [{"a": "007"}, [1], None, "é"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"a":1}\n{"a":}\n', "row 2 (line 2): the row is not valid JSON"),
        (b'{"a":1}\n\n{"a":NaN}\n', "row 2 (line 3)"),
        (b'"\\u0000"\n', "NUL"),
        (b'"\\ud83d"\n', "row 1"),
        (b"123456789012345678901234567890\n", "64 bits"),
        (b'"\xff"\n', "byte 1 (0xff) is no text"),
        (b'{"a":1,"b":{"c":1,"c":2}}\n', 'names the key "c" twice'),
        (b'{"a":"x:y","a":2}\n', 'names the key "a" twice'),
        (b'{"a":"x:y","b":2}\n{"a"', "row 2"),
        (b"PAR1", "a Parquet file"),
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
    ],
)
def test_a_bad_line_is_refused_with_its_row(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(FileRefused) as caught:
        list(open_source(made(tmp_path, data)))
    assert said in caught.value.message


def test_a_unicode_line_separator_is_no_line_end(tmp_path: Path) -> None:
    path = made(tmp_path, '{"a":"x\u2028y"}\n'.encode())
    assert list(open_source(path)) == [{"a": "x\u2028y"}]
