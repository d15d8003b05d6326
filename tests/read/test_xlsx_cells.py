"""Excel: each cell as the kind it is, or refused with its place."""

# ruff: noqa: DTZ001  (times without a zone are what is tested)

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from support import workbooks as make
from support.reading import read, refused


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        (make.number("A2", "12"), 12),
        (make.number("A2", "4900000000001"), 4900000000001),
        (make.number("A2", "0.1"), 0.1),
        (make.number("A2", "1E3"), 1000),
        (make.number("A2", "1.5E-7", 6), 1.5e-7),
        (make.number("A2", "0000037"), 37),
        (make.text("A2", "0000037"), "0000037"),
        (make.text("A2", " two  spaces "), " two  spaces "),
        (make.text("A2", "a_x000D_b_x0000_"), "a\rb_x0000_"),
        ('<c r="A2" t="b"><v>1</v></c>', True),
        ('<c r="A2" t="b"><v>0</v></c>', False),
        ('<c r="A2" t="str"><f>"a"</f><v>a</v></c>', "a"),
        ('<c r="A2"><f>1+1</f><v>2</v></c>', 2),
        ('<c r="A2"><f>1-1</f><v>0</v></c>', 0),
        ('<c r="A2" t="d"><v>2024-02-29T10:00:00</v></c>', dt.datetime(2024, 2, 29, 10)),
        (make.number("A2", 45351, 1), dt.date(2024, 2, 29)),
        (make.number("A2", 45351, 2), dt.datetime(2024, 2, 29)),
        (make.number("A2", 45351.5, 1), dt.datetime(2024, 2, 29, 12)),
        (make.number("A2", 45351, 5), dt.date(2024, 2, 29)),
        (make.number("A2", 0.75, 3), dt.time(18)),
        (make.number("A2", 1.5, 4), "36:00:00"),
        (make.number("A2", 59, 1), dt.date(1900, 2, 28)),
        (make.number("A2", 61, 1), dt.date(1900, 3, 1)),
        (make.number("A2", 2958465, 1), dt.date(9999, 12, 31)),
        (make.number("A2", 37319, 7), 37319),
    ],
)
def test_a_cell_is_what_it_is(tmp_path: Path, cell: str, value: Any) -> None:
    body = make.rows([make.text("A1", "a"), make.text("B1", "b")], [cell, make.text("B2", "x")])
    (row,) = read(make.write_book(tmp_path / "a.xlsx", body))
    assert row["a"] == value
    assert type(row["a"]) is type(value)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ('<c r="A2" t="e"><v>#N/A</v></c>', "the cell shows the error #N/A"),
        ('<c r="A2" t="e"><f>1/0</f><v>#DIV/0!</v></c>', "#DIV/0!"),
        (make.number("A2", 60, 1), "the number of no day"),
        (make.number("A2", 0, 1), "the number of no day"),
        (make.number("A2", -5, 1), "the number of no day"),
        (make.number("A2", 2958466, 1), "the number of no day"),
    ],
)
def test_a_cell_without_a_value_is_bad_not_blank(tmp_path: Path, cell: str, said: str) -> None:
    body = make.rows([make.text("A1", "a")], [cell], [make.text("A3", "fine")])
    path = make.write_book(tmp_path / "a.xlsx", body)
    error = refused(path)
    assert error.row == 2
    assert "cell A2" in error.message
    assert said in error.message
    assert read(path, onBadValue="skip") == [{"a": "fine"}]
    assert isinstance(read(path, onBadValue="text")[0]["a"], str)


def test_dates_may_begin_in_1904(tmp_path: Path) -> None:
    body = make.rows(
        [make.text("A1", "d")], [make.number("A2", 0, 1)], [make.number("A3", 43889, 1)]
    )
    path = make.write_book(tmp_path / "a.xlsx", body, properties='date1904="1"')
    assert [row["d"] for row in read(path)] == [dt.date(1904, 1, 1), dt.date(2024, 2, 29)]


def test_shared_texts_come_without_their_readings(tmp_path: Path) -> None:
    """Furigana and formatting runs: the text is what the cell shows."""
    shared = [
        "<si><t>name</t></si>",
        "<si><r><t>東</t></r><r><rPr/><t>京</t></r><rPh sb='0' eb='2'><t>トウキョウ</t></rPh></si>",
        "<si><t/></si>",
    ]
    cells = [[f'<c r="A{n + 1}" t="s"><v>{n}</v></c>'] for n in range(2)]
    path = make.write_book(tmp_path / "a.xlsx", make.rows(*cells), shared=shared)
    assert read(path) == [{"name": "東京"}]
    bad = make.rows(*cells, ['<c r="A3" t="s"><v>7</v></c>'])
    path = make.write_book(tmp_path / "b.xlsx", bad, shared=shared)
    assert "damaged" in refused(path).message


def test_a_stored_zero_is_no_result_where_calculation_is_asked_for(tmp_path: Path) -> None:
    """Some programs write 0 for each formula and ask for calculation when the book is opened."""
    body = make.rows([make.text("A1", "n")], ['<c r="A2"><f>1+1</f><v>0</v></c>'])
    path = make.write_book(tmp_path / "a.xlsx", body, calculation='fullCalcOnLoad="1"')
    error = refused(path)
    assert "1 formula that nobody has calculated: A2" in error.message
    assert "hold a 0" in (error.detail or "")
    assert read(path, formulas="stored") == [{"n": 0}]
    assert read(path, formulas="text") == [{"n": "=1+1"}]


def test_an_empty_text_is_a_result_and_no_value_is_none(tmp_path: Path) -> None:
    body = make.rows(
        [make.text("A1", "a"), make.text("B1", "b")],
        ['<c r="A2" t="str"><f>""</f><v></v></c>', make.number("B2", 1)],
    )
    assert read(make.write_book(tmp_path / "a.xlsx", body)) == [{"a": "", "b": 1}]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([["a", "a"], [1, 2]], 'names the column "a" twice'),
        ([["a", None], [1, 2]], "column B has no name"),
        ([["a"], [1, None, 3]], "C2"),
        ([], "is empty"),
        ([[None]], "is empty"),
    ],
)
def test_a_header_that_is_none_is_refused(
    tmp_path: Path, lines: list[list[object]], said: str
) -> None:
    assert said in refused(make.write_book(tmp_path / "a.xlsx", make.table(*lines))).message


def test_a_header_alone_is_fine_and_blank_rows_are_no_rows(tmp_path: Path) -> None:
    assert read(make.write_book(tmp_path / "a.xlsx", make.table(["a", "b"]))) == []
    lines = [[None], ["a", None, "c"], [None], ["1", None, 2], [None, None, None], ["2"]]
    found = read(make.write_book(tmp_path / "b.xlsx", make.table(*lines)))
    assert found == [{"a": "1", "c": 2}, {"a": "2", "c": None}]


def test_columns_can_be_named_or_numbered(tmp_path: Path) -> None:
    path = make.write_book(tmp_path / "a.xlsx", make.table(["t"], [1, 2], [3, 4]))
    assert read(path, skip=1, header=["x", "y"]) == [{"x": 1, "y": 2}, {"x": 3, "y": 4}]
    assert read(path, skip=1, header=False)[1] == {"column_1": 3, "column_2": 4}


def test_the_sheet_is_the_only_visible_one_with_cells_or_must_be_named(tmp_path: Path) -> None:
    one, two = make.table(["a"], [1]), make.table(["b"], [2])
    path = make.write_book(
        tmp_path / "a.xlsx", {"secret": two, "empty": "", "data": one}, hidden=["secret"]
    )
    assert read(path) == [{"a": 1}]
    assert read(path, sheet="secret") == read(path, sheet=1) == [{"b": 2}]
    assert 'did you mean "data"' in (refused(path, sheet="date").hint or "")
    assert "there is no sheet 9" in refused(path, sheet=9).message
    path = make.write_book(tmp_path / "b.xlsx", {"one": one, "two": two})
    assert '2 sheets with cells: "one", "two"' in refused(path).message


def test_merged_areas_reach_over_skipped_rows_and_keep_what_has_a_value(tmp_path: Path) -> None:
    body = make.rows(
        [make.text("A1", "group"), make.text("B1", "n")],
        [make.text("A2", "x"), make.number("B2", 1)],
        [make.text("A3", "own"), make.number("B3", 2)],
        [make.number("B4", 3)],
        [make.number("B5", 4)],
    )
    path = make.write_book(tmp_path / "a.xlsx", make.sheet(body, ["A2:A4"]))
    filled = [row["group"] for row in read(path, fillMerged=True)]
    assert filled == ["x", "own", "x", None]
    assert read(path, fillMerged=True, skip=2, header=["g", "n"])[1] == {"g": "x", "n": 3}
    overlapping = make.sheet(body, ["A2:XFD4", "B3:XFD9"])
    path = make.write_book(tmp_path / "b.xlsx", overlapping)
    assert "damaged" in refused(path, fillMerged=True).message


def test_other_names_for_the_same_xml_and_cells_without_names(tmp_path: Path) -> None:
    """Prefixes, other namespaces, single quotes, cells that only follow each other."""
    body = (
        "<x:worksheet xmlns:x='urn:other'><x:sheetData><x:row><x:c t='inlineStr'><x:is><x:t>a</x:t>"
        "</x:is></x:c><x:c t='inlineStr'><x:is><x:t>b</x:t></x:is></x:c></x:row><x:row><x:c><x:v>1"
        "</x:v></x:c><x:c><x:f>2</x:f></x:c></x:row></x:sheetData></x:worksheet>"
    )
    path = make.write_book(
        tmp_path / "a.xlsx", {"S": body.replace("<x:worksheet", "<x:worksheet ")}
    )
    assert "B2" in refused(path).message
    path = make.write_book(tmp_path / "b.xlsx", {"S": body.replace("<x:f>2</x:f>", "<x:v>2</x:v>")})
    assert read(path) == [{"a": 1, "b": 2}]
