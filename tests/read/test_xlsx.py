"""Excel: the handed workbooks and others like them; nothing turns into nothing."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from support import workbooks as make
from support.reading import HANDED, TRUTH, read, refused

from suimon.errors import FileRefused
from suimon.read import open_source

# --------------------------------------------------------------------------- the handed files


def test_c41_merged_cells_filled() -> None:
    """A blank inside a merged area is its value, a blank outside stays; two header lines."""
    truth = TRUTH["xlsx_merged_cells.xlsx"]
    found = read("xlsx_merged_cells.xlsx", skip=1, header=2, fillMerged=True)
    assert len(found) == truth["data_rows"]
    assert list(found[0]) == ["部門", "上期 / 4月", "上期 / 5月", "備考"]
    assert [row["部門"] for row in found] == truth["column_A_filled"]
    assert [row["備考"] for row in found] == truth["column_D"]
    assert [row["上期 / 5月"] for row in found] == [11, 21, 31, 41, 51]


def test_c41_merged_cells_not_filled_are_blank_and_said() -> None:
    notes: list[str] = []
    found = read("xlsx_merged_cells.xlsx", notes, sheet="売上", skip=1, header=2)
    assert [row["部門"] for row in found] == ["営業", None, None, "総務", None]
    assert "2 merged areas among the rows (the first at A4)" in notes[0]


def test_c41_the_header_where_it_is_not_is_refused() -> None:
    error = refused("xlsx_merged_cells.xlsx")
    assert 'row 2: the cell B2 holds "上期"' in error.message


def test_c42_formulas_nobody_calculated_are_refused_with_number_and_places() -> None:
    truth = TRUTH["xlsx_formula_without_cached_value.xlsx"]
    error = refused("xlsx_formula_without_cached_value.xlsx")
    assert f"{truth['formula_cells']} formulas that nobody has calculated" in error.message
    assert "D2, D3, D4, D5, D6, D7" in error.message


def test_c42_or_given_as_text_and_said() -> None:
    notes: list[str] = []
    found = read("xlsx_formula_without_cached_value.xlsx", notes, formulas="text")
    assert [row["total"] for row in found] == [
        "=B2*C2", "=B3*C3", "=B4*C4", "=B5*C5", "=B6*C6", "=SUM(D2:D6)",
    ]  # fmt: skip
    assert "6 formulas" in notes[0]
    assert refused("xlsx_formula_without_cached_value.xlsx", formulas="stored")


def test_c43_each_cell_keeps_its_own_kind() -> None:
    truth = TRUTH["xlsx_mixed_dates.xlsx"]
    found = {str(row["id"]): row["date"] for row in read("xlsx_mixed_dates.xlsx")}
    assert len(found) == truth["rows"]
    for name, true in truth["true_dates"].items():
        assert isinstance(found[name], dt.date)
        assert found[name].isoformat() == true
    assert [found[name] for name in truth["text_cells"]] == ["22/05/2000", "2002年3月4日"]
    assert {name: found[name] for name in truth["number_cells"]} == truth["number_cells"]


def test_c43_declared_dates_stop_at_the_first_and_list_all() -> None:
    stream = open_source("xlsx_mixed_dates.xlsx", None, {"schema": {"date": "date"}}, root=HANDED)
    assert next(stream)["date"] == dt.date(2002, 3, 4)
    with pytest.raises(FileRefused, match="3 such values") as caught:
        next(stream)
    assert caught.value.row == 3
    assert caught.value.detail is not None
    for cell in ("B3", "B4", "B5"):
        assert f"(cell {cell})" in caught.value.detail


def test_c43_declared_dates_skip_or_keep_as_text_as_told() -> None:
    notes: list[str] = []
    schema = {"date": "date"}
    left = read("xlsx_mixed_dates.xlsx", notes, schema=schema, onBadValue="skip")
    assert [row["id"] for row in left] == [1, 5, 6]
    assert "3 rows were left out" in notes[0]
    assert "row 4" in notes[0]
    kept = read("xlsx_mixed_dates.xlsx", notes, schema=schema, onBadValue="text")
    assert [row["date"] for row in kept if isinstance(row["date"], str)] == [
        "22/05/2000", "37319", "2002年3月4日",
    ]  # fmt: skip
    assert "3 values were kept as text" in notes[1]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("looks_encrypted.xlsx", "is protected, or an old or unsupported container"),
        ("html_table.xls", "is not an Excel workbook: it is a web page"),
        ("csv_inside.xlsx", "is not an Excel workbook: it is a text file, perhaps CSV"),
        ("truncated.xlsx", "is damaged"),
    ],
)
def test_c44_what_is_no_workbook_is_refused_in_one_sentence(name: str, said: str) -> None:
    error = refused(f"not_excel/{name}")
    assert error.message.startswith(f'"not_excel/{name}" {said}')
    assert "\n" not in error.message


# --------------------------------------------------------------------------- other files like them


def ole(*words: str) -> bytes:
    return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600 + "".join(words).encode("utf-16-le")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty (0 bytes)"),
        (ole("EncryptionInfo", "EncryptedPackage"), "is protected with a password"),
        (ole("Workbook"), "an old Excel file"),
        (b"PK\x03\x04 cut", "is damaged"),
        (b"<?xml version='1.0'?><Workbook/>", "an XML file"),
        (b"\xef\xbb\xbf\r\n<!DOCTYPE html><table>", "a web page"),
        ("id\tname\n".encode("utf-16"), "a text file"),
        (b"%PDF-1.7", "a PDF"),
        (b"\x00\x01\x02", "something else"),
    ],
)
def test_wrong_containers_are_named(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "a.xlsx"
    path.write_bytes(data)
    assert said in refused(path).message


def test_archives_of_other_programs_are_named(tmp_path: Path) -> None:
    import zipfile

    for part, said in {
        "word/document.xml": "Word",
        "mimetype": "OpenDocument",
        "xl/workbook.bin": "xlsb",
        "readme.txt": "a ZIP archive",
    }.items():
        path = tmp_path / "a.xlsx"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(part, "x")
        assert said in refused(path).message


def test_damage_anywhere_is_told_before_the_first_row(tmp_path: Path) -> None:
    """A flipped byte in the middle of a sheet: the checksum is compared first."""
    path = make.write_book(
        tmp_path / "a.xlsx", make.table(["n"], *([f"{n * 7919 % 10_007}"] for n in range(5_000)))
    )
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    stream = None
    with pytest.raises(FileRefused, match="is damaged"):
        stream = open_source(path)
    assert stream is None
