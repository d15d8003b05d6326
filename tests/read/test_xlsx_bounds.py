"""Excel: files made to do harm or that contradict themselves, and a second opinion."""

# ruff: noqa: DTZ001  (times without a zone are what is tested)

from __future__ import annotations

import datetime as dt
import tracemalloc
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import workbooks as make
from support.reading import read, refused

from suimon.read import open_source

# --------------------------------------------------------------------------- bounds


def test_a_workbook_made_to_do_harm_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = make.rows([make.text("A1", "a")])
    bomb = make.sheet(row + "<row r='2'><c r='A2'><v>1</v></c></row>" + " " * (6 * 1024 * 1024))
    path = make.write_book(tmp_path / "a.xlsx", bomb)
    assert path.stat().st_size < 200_000
    with monkeypatch.context() as patch:
        patch.setattr("suimon.read.xlsx_container._RATIO_FROM", 4 * 1024 * 1024)
        assert "unpacks to more than is read" in refused(path).message
    entity = f'<!DOCTYPE x [<!ENTITY a "aaaa">]>{make.sheet(row)}'
    assert "document type" in (
        refused(make.write_book(tmp_path / "b.xlsx", {"S": entity})).detail or ""
    )
    deep = make.sheet("<a>" * 100 + "</a>" * 100)
    assert "too deeply" in (refused(make.write_book(tmp_path / "c.xlsx", deep)).detail or "")
    long_tag = make.sheet(f'<row r="1"><c r="A1" x="{"y" * 4_500_000}"/></row>')
    assert "one tag" in (refused(make.write_book(tmp_path / "d.xlsx", long_tag)).detail or "")


@pytest.mark.parametrize(
    "body",
    [
        "<row r='2'/><row r='1'/>",
        "<row r='1'><c r='A2'><v>1</v></c></row>",
        "<row r='1'><c r='A1'><v>1</v></c><c r='A1'><v>2</v></c></row>",
        "<row r='1'><c r='1A'><v>1</v></c></row>",
        "<row r='1'><c r='XFE1'><v>1</v></c></row>",
        "<row r='1048577'/>",
        "<row r='1'><c r='A1'><v>one</v></c></row>",
        "<row r='1'><c r='A1' t='s'><v>0</v></c></row>",
        "<row r='1'><c r='A1' s='99'><v>1</v></c></row>",
        "<row r='1'><c r='A1' t='zz'><v>1</v></c></row>",
        "<row r='1'><c r='A1'><v>1</v></row>",
    ],
)
def test_a_sheet_that_contradicts_itself_is_damaged(tmp_path: Path, body: str) -> None:
    assert "is damaged" in refused(make.write_book(tmp_path / "a.xlsx", body)).message


def test_texts_beyond_the_first_are_read_from_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suimon.read.xlsx_strings._HELD_CHARS", 200)
    shared = [f"<si><t>text 番号 {n}</t></si>" for n in range(300)]
    cells = [[f'<c r="A{n + 1}" t="s"><v>{n}</v></c>'] for n in range(300)]
    path = make.write_book(tmp_path / "a.xlsx", make.rows(*cells), shared=shared)
    found = read(path)
    assert [row["text 番号 0"] for row in found] == [f"text 番号 {n}" for n in range(1, 300)]
    stream = open_source(path)
    del stream  # not even begun: its files are closed all the same


def test_memory_is_flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the rows and texts, the same memory: texts beyond the first lie on disk."""
    monkeypatch.setattr("suimon.read.xlsx_strings._HELD_CHARS", 1_000)

    def peak(count: int) -> int:
        cells = ([f'<c r="A{n}" t="s"><v>{n - 1}</v></c>', make.number(f"B{n}", n)]
                 for n in range(1, count + 1))  # fmt: skip
        shared = [f"<si><t>{n:0200d}</t></si>" for n in range(count)]
        path = make.write_book(tmp_path / f"{count}.xlsx", make.rows(*cells), shared=shared)
        tracemalloc.start()
        try:
            options = {"header": ["text", "n"]}
            assert sum(1 for _ in open_source(path, None, options)) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(100)
    assert peak(6_000) < 1.2 * peak(1_500) + 100_000


# --------------------------------------------------------------------------- a second opinion

CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**14), 10**14),
    st.integers(-(10**6), 10**6).map(lambda n: n + 0.5),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
    .filter(lambda t: not t.startswith("=") and "_x" not in t and t.strip() == t),
    st.dates(dt.date(1900, 3, 1), dt.date(9999, 12, 31)),
    st.datetimes(dt.datetime(1900, 3, 1), dt.datetime(9999, 12, 31)).map(
        lambda moment: moment.replace(microsecond=0)
    ),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS, st.integers(0, 9)), max_size=4))
def test_what_another_program_writes_is_read_the_same(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[Any, Any, int]]
) -> None:
    path = tmp_path_factory.mktemp("books") / "a.xlsx"
    book = openpyxl.Workbook()
    page = book.active
    page.append(["a", "b", "c"])
    for line in values:
        page.append(list(line))
    book.save(path)
    found = [tuple(row.values()) for row in read(path)]
    assert found == [tuple(line) for line in values]
