"""From JSON to a call: by name, validated, with the path of what does not fit."""

from __future__ import annotations

import datetime as dt
import timeit
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import pydantic
import pytest

from suimon.binding import bind
from suimon.context import Counts, MergeResult
from suimon.errors import InputRefused

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers


class Line(pydantic.BaseModel):
    sku: str
    quantity: Annotated[int, pydantic.Field(gt=0)]


class Order(pydantic.BaseModel):
    id: str
    due: dt.date
    lines: list[Line]


@dataclass
class Point:
    x: int


GOOD = {"id": "7", "due": "2024-02-29", "lines": [{"sku": "a", "quantity": "3"}]}


def typed(
    order: Order, tenant: str = "none", *, at: Point | None = None, ctx: Any = None
) -> None: ...


def untyped(item, tenant="x", ctx=None): ...  # type: ignore[no-untyped-def]


def everything(first: int, **rest: int) -> None: ...


def test_an_item_goes_to_the_first_parameter_that_is_not_shared() -> None:
    args, kwargs = bind(untyped).call_item({"a": 1}, {})
    assert (args, kwargs) == ((), {"item": {"a": 1}})
    _, kwargs = bind(untyped).call_item("acme", {"item": 3})
    assert kwargs == {"item": 3, "tenant": "acme"}


def test_values_are_validated_from_annotations() -> None:
    """Text of a CSV becomes what the annotation asks for; ctx is nobody's input."""
    _, kwargs = bind(typed).call_item(GOOD, {"tenant": "acme", "at": {"x": "4"}})
    assert kwargs["order"].lines[0].quantity == 3
    assert kwargs["order"].due == dt.date(2024, 2, 29)
    assert (kwargs["tenant"], kwargs["at"]) == ("acme", Point(4))
    assert "ctx" not in kwargs


@pytest.mark.parametrize(
    ("item", "path", "words"),
    [
        ({**GOOD, "lines": [{"sku": "a", "quantity": "x"}]}, "$.lines[0].quantity", "integer"),
        ({**GOOD, "lines": [{"sku": "a", "quantity": 0}]}, "$.lines[0].quantity", "greater"),
        ({**GOOD, "due": "2024-02-30"}, "$.due", "date"),
        ("text", "$", "dictionary"),
        (None, "$", "got None"),
    ],
)
def test_an_item_that_does_not_fit_names_the_field(item: Any, path: str, words: str) -> None:
    with pytest.raises(InputRefused, match="refuses its item") as caught:
        bind(typed).call_item(item, {})
    assert caught.value.path == path
    assert words in caught.value.message


def test_all_fields_that_do_not_fit_are_told() -> None:
    with pytest.raises(InputRefused) as caught:
        bind(typed).call_args({"order": {"id": "1", "due": "x", "lines": 3}})
    assert caught.value.path == "$.order.due"
    assert "$.order.lines" in (caught.value.detail or "")


@pytest.mark.parametrize(
    ("inputs", "path"),
    [({}, "$.order"), ({"order": GOOD, "tenent": 1}, "$.tenent"), ({"ctx": 1}, "$.ctx")],
)
def test_missing_and_unknown_inputs_are_refused(inputs: dict[str, Any], path: str) -> None:
    with pytest.raises(InputRefused) as caught:
        bind(typed).call_args(inputs)
    assert caught.value.path == path


def test_rest_takes_the_others_validated() -> None:
    assert bind(everything).call_args({"first": "1", "a": "2"}) == ((), {"first": 1, "a": 2})
    with pytest.raises(InputRefused) as caught:
        bind(everything).call_args({"first": 1, "a": "x"})
    assert caught.value.path == "$.a"


def test_positional_only_parameters_come_by_position() -> None:
    def function(a, b=2, /, c=3): ...  # type: ignore[no-untyped-def]

    assert bind(function).call_args({"a": 1, "c": 4}) == ((1,), {"c": 4})
    assert bind(function).call_item(1, {}) == ((1,), {})


def test_a_missing_input_is_refused_for_items_too() -> None:
    def function(a=1, *, b): ...  # type: ignore[no-untyped-def]

    with pytest.raises(InputRefused, match='needs "b"'):
        bind(function).call_item(1, {})


def test_one_call_cannot_change_what_the_next_one_shares() -> None:
    shared = {"tenant": {"seen": []}}
    _, kwargs = bind(untyped).call_item(1, shared)
    kwargs["tenant"]["seen"].append(1)
    assert shared == {"tenant": {"seen": []}}


def test_a_live_merge_result_passes_whatever_the_annotation_says() -> None:
    def report(outcome: dict[str, int], more: MergeResult | None = None) -> None: ...

    result = MergeResult.of([])
    _, kwargs = bind(report).call_args({"outcome": result, "more": result})
    assert kwargs["outcome"] is result
    assert kwargs["more"] is result
    assert isinstance(result.counts, Counts)


def test_an_annotation_that_cannot_be_understood_is_told_when_bound() -> None:
    """At deploy, not in the middle of a fan-out."""

    def function(a: OnlyForTypeCheckers) -> None: ...

    with pytest.raises(TypeError, match="must be importable where the task is defined"):
        bind(function)


def test_a_class_of_ones_own_is_checked_by_type() -> None:
    class Own: ...

    def function(a: Any) -> None: ...

    function.__annotations__ = {"a": Own}
    own = Own()
    assert bind(function).call_args({"a": own})[1]["a"] is own
    with pytest.raises(InputRefused):
        bind(function).call_args({"a": 3})


def test_a_task_without_annotations_costs_next_to_nothing() -> None:
    """The aim is below a microsecond; the bound leaves room for a busy machine."""
    bound, shared = bind(untyped), {"tenant": "acme"}
    best = min(timeit.repeat(lambda: bound.call_item(1, shared), number=10_000, repeat=5))
    assert best / 10_000 < 4e-6


def test_a_door_brings_more_than_a_function_names() -> None:
    """What triggers bring of themselves may be left out; anything else is still a mistake."""

    def take(path, size=0): ...

    given = {"path": "a.csv", "mtime": 1, "folder": "/in"}
    assert bind(take).call_args(given, {"mtime", "folder"}) == ((), {"path": "a.csv"})
    with pytest.raises(InputRefused, match='no parameter "pth"'):
        bind(take).call_args({"pth": 1}, {"mtime"})

    def rest(path, **others): ...

    assert bind(rest).call_args(given, {"mtime", "folder"}) == ((), given)
