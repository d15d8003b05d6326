"""JSONL: one value per line, refused with its row when it could not be stored later."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

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


LONG = "0.1234567890123456789012"
BIG = "123456789012345678901234567890"


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        ("decimal", LONG, Decimal(LONG)),
        ("decimal", "1.10", Decimal("1.10")),
        ("decimal", "1e-400", Decimal("1e-400")),
        ("decimal", "1e400", Decimal("1e400")),
        ("decimal", BIG, Decimal(BIG)),
        ("text", "1.10", "1.10"),
        ("text", "-0", "-0"),
        ("text", "1E5", "1E5"),
        ("text", LONG, LONG),
        ("text", BIG, BIG),
        ("integer", "9007199254740993.0", 9007199254740993),
        ("integer", "1.0", 1),
        ("number", "1.10", 1.1),
        ("number", "7", 7.0),
        ("boolean", "true", True),
    ],
)
def test_a_declared_number_keeps_all_that_was_written(
    tmp_path: Path, kind: str, written: str, value: Any
) -> None:
    path = made(tmp_path, f'{{"b":[1.5],"a":{written},"c":2}}\n'.encode())
    (row,) = open_source(path, None, {"schema": {"a": kind}})
    assert row == {"b": [1.5], "a": value, "c": 2}
    assert str(row["a"]) == str(value)
    assert type(row["a"]) is type(value)


@pytest.mark.parametrize(
    ("kind", "written", "said"),
    [
        ("number", "12345678901234567.89", 'as a number; declare it "decimal" or "text"'),
        ("number", "1e-400", "cannot be kept exactly"),
        ("number", BIG, "cannot be kept exactly"),
        ("integer", "9007199254740993.5", "is no integer"),
        ("integer", "1e-400", "is no integer"),
        ("integer", "18446744073709551616.0", "is no integer"),
        ("integer", BIG, "64 bits"),
        ("boolean", "1", "is no true or false"),
        ("boolean", BIG, "64 bits"),
        ("date", LONG, "cannot be kept exactly"),
    ],
)
def test_a_declared_number_that_does_not_fit_is_refused_and_not_rounded(
    tmp_path: Path, kind: str, written: str, said: str
) -> None:
    path = made(tmp_path, f'{{"a":null}}\n{{"a":{written}}}\n'.encode())
    with pytest.raises(FileRefused) as caught:
        list(open_source(path, None, {"schema": {"a": kind}}))
    assert 'row 2, column "a": ' in caught.value.message
    assert said in caught.value.message
    kept = open_source(path, None, {"schema": {"a": kind}, "onBadValue": "text"})
    assert list(kept)[1] == {"a": written}


@pytest.mark.parametrize(
    ("line", "said", "as_text"),
    [
        ('{"a":1e-400,"b":0.1}', 'column "a": 1e-400 cannot be', {"a": "1e-400", "b": 0.1}),
        (f'{{"a":{BIG}}}', 'declare it "decimal"', {"a": BIG}),
        ('{"a":{"x y":[1.0,1e400]}}', 'at $["x y"][1], 1e400', {"a": '{"x y":[1.0,1e400]}'}),
        (LONG, "row 2: 0.12345678901234", LONG),
        (f"[1,{LONG}]", "at $[1], 0.123", f"[1,{LONG}]"),
    ],
)
def test_an_undeclared_number_that_would_change_is_a_bad_value(
    tmp_path: Path, line: str, said: str, as_text: Any
) -> None:
    path = made(tmp_path, f'{{"a":1}}\n{line}\n{{"a":2}}\n'.encode())
    with pytest.raises(FileRefused) as caught:
        list(open_source(path))
    assert said in caught.value.message
    assert caught.value.row == 2
    assert list(open_source(path, None, {"onBadValue": "text"})) == [{"a": 1}, as_text, {"a": 2}]
    assert list(open_source(path, None, {"onBadValue": "skip"})) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    "line",
    [
        '{"a":1.10}',
        '{"b":{"a":2.5}, "a" :\t1.10}',
        '{"b":"a","a":1.10}',
        '{"\\u0061":1.10,"b":{"a":3.50}}',
        '{"b":"x\\"a","a":1.10}',
        '{"b\\"a":4.0,"a":1.10}',
    ],
)
@pytest.mark.parametrize("other", ["", ',"z":"1e-400"', ',"y":1e-400'])
def test_the_text_of_a_number_is_the_one_beside_its_own_name(
    tmp_path: Path, line: str, other: str
) -> None:
    path = made(tmp_path, (line[:-1] + other + "}").encode())
    schema = {"a": "text", "y": "decimal"}
    assert next(open_source(path, None, {"schema": schema}))["a"] == "1.10"
