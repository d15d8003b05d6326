"""Which parameters a query has, by its text."""

from __future__ import annotations

import pytest

from suimon.core.sql_text import FILE_PARAMETER, parameters


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("select 1", []),
        ("select $a, $b, $a", ["a", "b"]),
        ("select '$a', \"$b\", 'it''s $c' -- $d\n, $e /* $f */", ["e"]),
        ("select count(*) late from read_parquet($files) where due < $at", ["files", "at"]),
        ("select price_$x, $$tag$$", []),
    ],
)
def test_parameters_are_found_outside_of_quoted_texts(query: str, names: list[str]) -> None:
    assert parameters(query) == names


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("from read_parquet($files, union_by_name = true) where a < $at", ["files"]),
        ("from READ_CSV_AUTO ( $a ) join glob($b)", ["a", "b"]),
        ("select upper($name)", []),
    ],
)
def test_those_of_reading_functions_name_files(query: str, names: list[str]) -> None:
    assert [match[1] for match in FILE_PARAMETER.finditer(query)] == names
