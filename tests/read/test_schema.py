"""Declared types: a value fits exactly, or is refused with file, row and column."""

# ruff: noqa: DTZ001  (times without a zone are what is tested)

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from suimon.errors import FileRefused
from suimon.read import open_source


def read(path: Path, text: str, **options: Any) -> list[Any]:
    path.write_text(text)
    return list(open_source(path, None, options, note=lambda _: None))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("text", "0000037", "0000037"),
        ("text", "", ""),
        ("integer", "0000037", 37),
        ("integer", "-5", -5),
        ("integer", "", None),
        ("integer", "18446744073709551615", 2**64 - 1),
        ("number", "0.1", 0.1),
        ("number", "1e3", 1000.0),
        ("decimal", "12345678901234567890.10", Decimal("12345678901234567890.10")),
        ("boolean", "TRUE", True),
        ("boolean", "0", False),
        ("date", "2024-02-29", dt.date(2024, 2, 29)),
        ("date", "2024/02/29", dt.date(2024, 2, 29)),
        ("datetime", "2024-02-29 10:11:12.5", dt.datetime(2024, 2, 29, 10, 11, 12, 500_000)),
        ("datetime", "2024-02-29T10:11Z", dt.datetime(2024, 2, 29, 10, 11, tzinfo=dt.UTC)),
        ("time", "23:59", dt.time(23, 59)),
    ],
)
def test_text_that_fits_becomes_the_value(tmp_path: Path, kind: str, text: str, value: Any) -> None:
    (row,) = read(tmp_path / "a.csv", f'v\n"{text}"\n', schema={"v": kind})
    assert row["v"] == value
    assert type(row["v"]) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("integer", "1,234"),
        ("integer", " 1"),
        ("integer", "1.0"),
        ("integer", "1_000"),
        ("integer", "\uff11\uff12"),
        ("integer", "18446744073709551616"),
        ("number", "NaN"),
        ("number", "1e999"),
        ("number", "12345678901234567890.1"),
        ("number", "0x1F"),
        ("decimal", "1,5"),
        ("boolean", "yes"),
        ("date", "22/05/2000"),
        ("date", "2002年3月4日"),
        ("date", "2023-02-29"),
        ("date", "2024-1-2"),
        ("date", "37319"),
        ("date", "2024-02-29T10:00"),
        ("datetime", "2024-02-29"),
        ("datetime", "2024-02-29T10:11:12.1234567"),
        ("time", "24:00"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_its_place(
    tmp_path: Path, kind: str, text: str
) -> None:
    with pytest.raises(FileRefused) as caught:
        read(tmp_path / "a.csv", f'n,v\n1,\n2,"{text}"\n', schema={"v": kind})
    assert caught.value.row == 2
    assert 'a.csv", row 2, column "v": "' in caught.value.message
    assert text in caught.value.message


def test_what_is_left_out_is_counted_and_listed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("v\n" + "".join(f"{'x' if n % 2 else n}\n" for n in range(100)))
    notes: list[str] = []
    options = {"schema": {"v": "integer"}, "onBadValue": "skip"}
    assert len(list(open_source(path, None, options, note=notes.append))) == 50
    assert "50 rows were left out: row 2" in notes[0]
    assert "and 30 more" in notes[0]
    kept = list(open_source(path, None, {**options, "onBadValue": "text"}, note=notes.append))
    assert [row["v"] for row in kept[:3]] == [0, "x", 2]
    assert "50 values were kept as text" in notes[1]


def test_jsonl_values_are_held_to_the_schema_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    text = '{"v":"2024-02-29","n":1}\n{"n":2}\n{"v":null}\n'
    assert read(path, text, schema={"v": "date"})[0] == {"v": dt.date(2024, 2, 29), "n": 1}
    for line, kind in (
        ('{"v":true}', "integer"),
        ('{"v":[1]}', "text"),
        ('{"v":1.5}', "integer"),
        ('{"v":9007199254740993}', "number"),
        ("[1]", "text"),
    ):
        with pytest.raises(FileRefused, match="row 1"):
            read(path, line + "\n", schema={"v": kind})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schema": {"v": "int"}}, "types: text, integer"),
        ({"schema": {}}, "must be an object"),
        ({"schema": {"w": "text"}}, 'no column "w"'),
        ({"onBadValue": "drop"}, 'must be one of "stop"'),
        ({"header": 2}, "for CSV"),
        ({"header": ["a", "a"]}, "twice"),
        ({"sheet": "x"}, 'knows no option "sheet"'),
        ({"encoding": "utf-99"}, "name of an encoding"),
        ({"skip": -1}, "whole number"),
        ({"match": "../*"}, "pattern"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(FileRefused) as caught:
        read(tmp_path / "a.csv", "v\n1\n", **options)
    assert said in caught.value.message
