"""What a start must bring is known from the graph, before anything is stored."""

from __future__ import annotations

from typing import Any

import pytest

from suimon.core.door import check_input, lane_key
from suimon.errors import InputRefused

GRAPH = {
    "vertices": {
        "a": {"type": "TASK", "inputs": {"x": {"$ref": "input.order.id"}}},
        "b": {"type": "TASK", "inputs": {"y": {"$ref": "a"}}},
    }
}


def test_an_input_with_all_fields_passes() -> None:
    check_input(GRAPH, {"order": {"id": 3}, "more": 1})
    check_input({"vertices": {"a": {"type": "TASK", "inputs": {}}}}, None)


@pytest.mark.parametrize(
    ("value", "path"),
    [({}, "$.order.id"), ({"order": {}}, "$.order.id"), (None, "$"), ([], "$"), ("x", "$")],
)
def test_a_missing_field_is_named(value: Any, path: str) -> None:
    with pytest.raises(InputRefused) as caught:
        check_input(GRAPH, value)
    assert caught.value.path == path


def test_a_whole_input_must_be_an_object() -> None:
    whole = {"vertices": {"a": {"type": "TASK", "inputs": {"$ref": "input"}}}}
    check_input(whole, {})
    with pytest.raises(InputRefused, match="must be an object, not int"):
        check_input(whole, 3)


def test_a_condition_reads_the_input_like_any_other_value() -> None:
    graph = {"vertices": {"a": {"type": "TASK", "when": {"$ref": "input.go"}}}}
    check_input(graph, {"go": True})
    with pytest.raises(InputRefused, match='lacks "go", which vertex "a" reads'):
        check_input(graph, {})


LANES = {"concurrency": {"limit": 3, "per": "customer.id"}, "vertices": {}}


def test_each_value_of_the_field_has_its_own_lane() -> None:
    assert lane_key(LANES, {"customer": {"id": "c1"}}) == "c1"
    assert lane_key(LANES, {"customer": {"id": 7}}) == "7"
    for one_lane in ({}, {"concurrency": 3}, {"concurrency": "unlimited"}):
        assert lane_key(one_lane, {"customer": {"id": "c1"}}) is None


@pytest.mark.parametrize(
    "value",
    [None, {}, {"customer": None}, *({"customer": {"id": x}} for x in (None, True, "", 1.5, [1]))],
)
def test_an_input_that_belongs_to_no_lane_is_refused(value: Any) -> None:
    """It may not slip past a limit."""
    with pytest.raises(InputRefused) as caught:
        check_input(LANES, value)
    assert caught.value.path == "$.customer.id"
