"""A READ vertex says what a reader knows, and nothing that its format does not know."""

from __future__ import annotations

import json
from typing import Any

import pytest

from suimon import Pipeline
from suimon.graph_check import check
from suimon.read.options import FORMATS, OPTIONS, RULES, problem


def mistakes(**config: Any) -> list[str]:
    vertex = {"type": "READ", "inputs": {"path": "a"}, "config": config}
    found = check({"suimon": 1, "pipeline": "p", "vertices": {"rows": vertex}})
    return [mistake.message for mistake in found]


def test_every_option_can_be_said_in_python_and_is_checked() -> None:
    p = Pipeline("p")
    p.read(
        "rows",
        "book.xlsx",
        format="excel",
        sheet="売上",
        header=2,
        skip=1,
        fill_merged=True,
        formulas="text",
        schema={"日付": "date"},
        on_bad_value="skip",
        match="*.xlsx",
        ignore=("~$*",),
        recursive=True,
    )
    config = json.loads(p.to_json())["vertices"]["rows"]["config"]
    assert config["fillMerged"] is True
    assert config["ignore"] == ["~$*"]
    assert not mistakes(**config)


def test_defaults_are_left_out() -> None:
    p = Pipeline("p")
    p.read("rows", "a.csv", header=True, skip=0, on_bad_value="stop", recursive=False)
    assert "config" not in json.loads(p.to_json())["vertices"]["rows"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"format": "csv", "sheet": "x"}, "sheet is no option of reading csv"),
        ({"format": "csv", "header": 2}, "for CSV"),
        ({"format": "jsonl", "header": True}, "header is no option of reading jsonl"),
        ({"format": "files", "encoding": "auto"}, "encoding is no option of reading files"),
        ({"schema": {"a": "int"}}, "types: text"),
        ({"formulas": "zero"}, 'must be one of "stop"'),
        ({"format": "xlsx"}, '"excel"'),
    ],
)
def test_what_a_format_does_not_know_is_a_mistake(config: dict[str, Any], said: str) -> None:
    found = mistakes(**config)
    assert len(found) == 1
    assert said in found[0]


def test_every_option_has_a_rule() -> None:
    assert {option for each in OPTIONS.values() for option in each} == set(RULES)
    for kind in FORMATS:
        assert problem(kind, "nonsense", 1)
