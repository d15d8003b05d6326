"""What a start must bring is known from the graph, before anything is stored."""

from __future__ import annotations

from typing import Any

import pytest

from suimon.core.door import check_input
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
