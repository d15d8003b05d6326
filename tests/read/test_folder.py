"""Folders: a list of files under any name, and many files as one table without a lost column."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import workbooks as make

from suimon.core import jsonsafe
from suimon.errors import FileChanged, FileRefused
from suimon.read import local_path, open_source

HANDED = Path(__file__).parents[1] / "data" / "handed"
TRUTH = {
    entry["file"]: entry["truth"]
    for entry in json.loads((HANDED / "MANIFEST.json").read_text("utf-8"))["files"]
}


def read(
    folder: Path, kind: str | None = None, notes: list[str] | None = None, **options: Any
) -> list[Any]:
    notes = [] if notes is None else notes
    return list(open_source(folder.name, kind, options, root=folder.parent, note=notes.append))


def filled(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


# --------------------------------------------------------------------------- the list of files


def odd_names() -> list[bytes]:
    listed = json.loads((HANDED / "odd_names.json").read_text("utf-8"))
    return [
        each["name"].encode() if "name" in each else each["bytes_latin1"].encode("latin-1")
        for each in listed
    ]


def test_c35_each_odd_name_is_an_item_that_leads_back_to_its_file(tmp_path: Path) -> None:
    """Blanks, line breaks, quotes, markup, decomposed kana, bytes that are no UTF-8."""
    folder = tmp_path / "in box"
    folder.mkdir()
    names = odd_names()
    for name in names:
        path = folder / os.fsdecode(name)  # one of them has a / in it: a folder and a file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"n\n" + name.hex().encode())
    items = read(folder, "files", recursive=True)
    assert len(items) == len(names)
    for item, name in zip(items, sorted(names), strict=True):
        stored = json.loads(jsonsafe.dumps(item))
        assert stored == item
        assert os.fsencode(local_path(item["path"])) == b"in box/" + name
        assert list(open_source(item["path"], "csv", root=tmp_path)) == [{"n": name.hex()}]
        full = tmp_path / local_path(item["path"])
        full.rename(tmp_path / "done")
        assert (tmp_path / "done").read_bytes().endswith(name.hex().encode())
    shown = {item["name"] for item in items}
    assert "caf\\xe9_latin1.csv" in shown
    assert read(folder, "files", recursive=True) == []


def test_a_path_that_looks_like_an_escaped_one_is_still_itself(tmp_path: Path) -> None:
    folder = tmp_path / "file:x"
    folder.mkdir()
    (folder / "a%41.csv").write_text("n\n1\n")
    (item,) = list(open_source("./file:x", "files", root=tmp_path))
    assert list(open_source(item["path"], root=tmp_path)) == [{"n": "1"}]


def test_items_have_path_name_size_and_time(tmp_path: Path) -> None:
    folder = filled(tmp_path, b_csv="n\n", a_csv="n\n1\n", z_txt="")
    os.utime(folder / "a.csv", ns=(0, 1_700_000_000_123_456_789))
    first, second = read(folder, "files", match="*.csv")
    assert first == {
        "path": f"{folder.name}/a.csv",
        "name": "a.csv",
        "size": 4,
        "mtime": "2023-11-14T22:13:20.123456+00:00",
    }
    assert second["name"] == "b.csv"
    here = list(open_source(".", "files", {"match": "a*"}, root=folder))
    assert here[0]["path"] == "a.csv"


def test_c30_what_is_being_written_or_hidden_is_left_out_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    listed = [
        entry["file"] for entry in json.loads((HANDED / "MANIFEST.json").read_text())["files"]
    ]
    for name in (each for each in listed if each.startswith("inbox_temp/")):
        (folder / Path(name).name).write_text("a\n1\n")
    (folder / "link.csv").symlink_to("/etc/hostname")
    (folder / "below").mkdir()
    os.mkfifo(folder / "pipe.csv")
    notes: list[str] = []
    assert [item["name"] for item in read(folder, "files", notes)] == ["monthly.csv"]
    for name in ("~$monthly.xlsx", ".monthly.csv.swp", "link.csv", "pipe.csv"):
        assert name in notes[0]
    names = [item["name"] for item in read(folder, "files", ignore=["~$*"])]
    assert names == ["monthly.csv", "monthly.csv.filepart", "monthly.xlsx.part"]
    assert [item["name"] for item in read(folder, "files", match=".*")] == []


def test_folders_below_are_listed_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "1.csv").write_text("")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "2.csv").write_text("")
    (tmp_path / "b.csv").write_text("")
    assert [item["name"] for item in read(tmp_path, "files")] == ["b.csv"]
    paths = [item["path"] for item in read(tmp_path, "files", recursive=True)]
    assert paths == [f"{tmp_path.name}/b.csv", f"{tmp_path.name}/b/c/1.csv"]


def test_what_is_no_folder_is_refused_and_a_vanished_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n")
    with pytest.raises(FileRefused, match="is no folder"):
        read(tmp_path / "a.csv", "files")
    with pytest.raises(FileRefused, match="there is no such"):
        read(tmp_path / "gone", "csv")
    (tmp_path / "b.csv").write_text("n\n")
    stream = open_source(tmp_path, "files")
    next(stream)
    (tmp_path / "b.csv").unlink()
    with pytest.raises(FileChanged, match=r'"b\.csv"'):
        next(stream)


# --------------------------------------------------------------------------- many files, one table


def test_c45_a_column_added_later_is_there_from_the_first_row(tmp_path: Path) -> None:
    truth = TRUTH["multi_added_column/"]
    folder = HANDED / "multi_added_column"
    csv = read(folder, "csv")
    assert len(csv) == truth["csv_rows"]
    assert all(list(row) == ["a", "b", "c"] for row in csv)
    assert [row["c"] for row in csv] == [None, None, "9.5", "8.5"]
    assert csv[3]["b"] == "w"
    parquet = read(folder, "parquet")
    assert len(parquet) == truth["parquet_rows"]
    assert [row["c"] for row in parquet] == [None, None, 9.5]


def test_c45_several_formats_in_one_folder_are_a_question() -> None:
    with pytest.raises(FileRefused, match="3 csv and 2 parquet") as caught:
        read(HANDED / "multi_added_column")
    assert "format" in (caught.value.hint or "")


def test_c34_empty_files_add_no_rows_and_do_not_block_their_neighbours(tmp_path: Path) -> None:
    folder = filled(tmp_path, a_csv="n\n1\n", b_csv="", c_csv="n\n2\n", d_csv="m\n")
    (folder / "bom.csv").write_bytes(b"\xef\xbb\xbf")
    notes: list[str] = []
    assert read(folder, None, notes) == [{"n": "1", "m": None}, {"n": "2", "m": None}]
    assert sum("is empty and adds no rows" in note for note in notes) == 2
    assert [item["size"] for item in read(folder, "files")] == [4, 0, 3, 4, 2]
    with pytest.raises(FileRefused, match=r"b\.csv.* is empty"):
        list(open_source(folder / "b.csv"))


def test_a_column_of_two_kinds_is_refused_with_file_and_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": ["y"], "a": [2.5]}), tmp_path / "2.parquet")
    assert read(tmp_path) == [{"a": 1, "b": "x"}, {"a": 2.5, "b": "y"}]
    pq.write_table(pa.table({"a": ["3"], "b": pa.nulls(1)}), tmp_path / "3.parquet")
    with pytest.raises(FileRefused, match=r'3\.parquet", column "a" holds text, but .*1\.parquet'):
        read(tmp_path)
    assert [row["a"] for row in read(tmp_path, schema={"a": "text"})] == ["1", "2.5", "3"]


def test_a_bad_row_is_named_with_its_own_file_and_row(tmp_path: Path) -> None:
    folder = filled(tmp_path, a_csv="n,q\n1,1\n2,2\n", b_csv="q,n\nx,3\n")
    with pytest.raises(FileRefused, match=r'b\.csv", row 1, column "q": "x" is no integer'):
        read(folder, schema={"q": "integer"})
    with pytest.raises(FileRefused, match='no column "w"'):
        read(folder, schema={"w": "integer"})
    (folder / "c.csv").write_text("n,q\n1\n")
    with pytest.raises(FileRefused, match=r'c\.csv", row 1 \(line 2\) has too few'):
        read(folder)


def test_other_files_beside_the_table_are_said_and_none_is_refused(tmp_path: Path) -> None:
    folder = filled(tmp_path, a_csv="n\n1\n", README_txt="read me", x_pdf="")
    notes: list[str] = []
    assert read(folder, None, notes) == [{"n": "1"}]
    assert "README.txt" in notes[0]
    assert "x.pdf" in notes[0]
    with pytest.raises(FileRefused, match="holds no parquet files"):
        read(folder, "parquet")
    assert read(folder, "csv", match="*.txt", header=["n"]) == [{"n": "read me"}]


def test_excel_and_jsonl_folders_are_tables_too(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    make.write_book(tmp_path / "x" / "1.xlsx", make.table(["a"], [1]))
    make.write_book(tmp_path / "x" / "2.xlsx", make.table(["b", "a"], ["y", 2]))
    assert read(tmp_path / "x") == [{"a": 1, "b": None}, {"a": 2, "b": "y"}]
    (tmp_path / "j").mkdir()
    filled(tmp_path / "j", a_jsonl='{"a":1}\n', b_jsonl="", c_jsonl='{"b":2}\n')
    assert read(tmp_path / "j") == [{"a": 1}, {"b": 2}]


def test_a_file_that_changes_after_its_header_was_read_is_refused(tmp_path: Path) -> None:
    folder = filled(tmp_path, a_csv="n\n1\n2\n", b_csv="n\n3\n")
    stream = open_source(folder)
    next(stream)
    (folder / "b.csv").write_text("m\n3\n4\n")
    with pytest.raises(FileChanged, match=r"b\.csv"):
        list(stream)
