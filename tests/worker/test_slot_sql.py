"""The SQL vertex in its slot: exact values out, nothing but the files that it may read in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suimon.core import jsonsafe
from suimon.errors import FileRefused, PayloadTooLarge, SuimonError
from suimon.worker import slot_sql


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the pipelines, where a slot is, with two Parquet files below it."""
    folder = tmp_path / "code"
    (folder / "lake").mkdir(parents=True)
    for name, count in (("a", 3), ("b", 4)):
        pq.write_table(pa.table({"n": list(range(count))}), folder / "lake" / f"{name}.parquet")
    monkeypatch.chdir(folder)
    return folder


def query(text: str, constants: list[str] | None = None, **given: Any) -> list[Any]:
    made = {"query": text, "constants": constants or []}
    return slot_sql.query(made, given, lambda _: [])


def test_rows_are_objects_with_exact_values(root: Path) -> None:
    text = """select 1 n, 1.10::decimal(9,2) price, date '2024-02-29' day_, [1, 2] list,
              {'a': true} object, null nothing, 'é' text,
              170141183460469231731687303715::hugeint big,
              timestamptz '2024-01-01 00:00:00+09' at_"""
    (row,) = query(text)
    assert row == {
        "n": 1, "price": "1.10", "day_": "2024-02-29", "list": [1, 2], "object": {"a": True},
        "nothing": None, "text": "é", "big": "170141183460469231731687303715",
        "at_": "2023-12-31T15:00:00Z",
    }  # fmt: skip
    assert jsonsafe.dumps([row], what="result")


def test_relative_files_lie_below_the_folder_of_the_pipelines(root: Path) -> None:
    text = "select count(*) n from read_parquet($files) where n < $below"
    assert query(text, files="lake/*.parquet", below=100) == [{"n": 7}]
    assert query(text, files=["lake/a.parquet", "lake/b.parquet"], below=2) == [{"n": 4}]
    assert query(text, files=str(root / "lake" / "a.parquet"), below=100) == [{"n": 3}]


def test_a_path_of_an_input_leads_nowhere_else(root: Path, tmp_path: Path) -> None:
    """Neither by dots nor by a link; the author's own constant may."""
    (tmp_path / "out").mkdir()
    pq.write_table(pa.table({"n": [1]}), tmp_path / "out" / "secret.parquet")
    (root / "link").symlink_to(tmp_path / "out")
    text = "select * from read_parquet($files)"
    for path in ("../out/*.parquet", str(tmp_path / "out" / "secret.parquet"), "link/*.parquet"):
        with pytest.raises(FileRefused, match="leads outside"):
            query(text, files=path)
        assert query(text, ["files"], files=path) == [{"n": 1}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("copy (select 1) to 'lake/new.parquet'", "must be a SELECT, not COPY"),
        ("select 1; select 2", "one statement"),
        ("attach 'lake/new.db'", "must be a SELECT"),
        ("install httpfs", "must be a SELECT"),
        ("select * from read_csv('/etc/hostname')", "disabled by configuration"),
        ("select * from 'https://example.com/a.parquet'", "query failed"),
        ("set enable_external_access = true", "must be a SELECT"),
        ("selec 1", "query failed"),
        ("select 'a'::blob b", "BLOB"),
    ],
)
def test_anything_but_a_select_of_those_files_is_refused(root: Path, text: str, said: str) -> None:
    with pytest.raises(SuimonError, match=said):
        query(text)
    assert sorted(one.name for one in (root / "lake").iterdir()) == ["a.parquet", "b.parquet"]


def test_too_many_rows_are_refused_before_they_are_carried(root: Path) -> None:
    assert len(query("select * from range(10000)")) == 10_000
    with pytest.raises(PayloadTooLarge, match="more than 10,000 rows"):
        query("select * from range(10001)")


def test_a_file_parameter_must_name_a_file(root: Path) -> None:
    for value in (7, None, "https://example.com/a.parquet", ["lake/a.parquet", 3]):
        with pytest.raises(SuimonError, match="must name a file"):
            query("select * from read_parquet($files)", files=value)
