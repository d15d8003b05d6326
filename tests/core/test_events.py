"""What may be told as an event, and how much of it by one step."""

from __future__ import annotations

import pytest

from suimon.core import events
from suimon.core.events import Told
from suimon.errors import InputRefused, InvalidJson, PayloadTooLarge
from suimon.testing import Context


@pytest.mark.parametrize("kind", ["order.paid", "a", "A/b:c-d_e.f", "9", "x" * 200])
def test_a_type_is_letters_digits_and_some_marks(kind: str) -> None:
    assert events.check_type(kind) == kind


@pytest.mark.parametrize("kind", ["", ".a", "a b", "ä", "a\n", "x" * 201, None, 7, "order.*"])
def test_any_other_type_is_refused(kind: object) -> None:
    with pytest.raises(InputRefused, match="event type cannot be used"):
        events.check_type(kind)


@pytest.mark.parametrize("key", ["", "k" * 1025, "ü" * 513, "a\0b", "\ud800", 7, None])
def test_a_key_is_text_of_1_to_1024_bytes(key: object) -> None:
    assert events.check_key("ü" * 512) == "ü" * 512
    with pytest.raises(InputRefused, match="key of the event"):
        events.check_key(key)


def test_a_key_without_a_word_of_the_task_is_the_same_in_every_try() -> None:
    first, second = Told("run:vertex"), Told("run:vertex")
    for told in (first, second):
        told.add("a", {"n": 1}, None)
        told.add("b", None, "mine")
        told.add("a", {"n": 1}, None)
    assert first.events == second.events
    assert [key for _, _, key in first.events] == ["run:vertex:0", "mine", "run:vertex:2"]


def test_a_step_tells_of_a_thousand_events_and_no_more() -> None:
    told = Told("p")
    for _ in range(events.STEP_EVENTS):
        told.add("a", None, None)
    with pytest.raises(InputRefused, match="at most 1,000 events"):
        told.add("a", None, None)
    assert len(told.events) == 1000


def test_the_payloads_of_a_step_are_bounded_together() -> None:
    told = Told("p")
    told.add("a", "x" * (events.STEP_BYTES - 100), None)
    with pytest.raises(PayloadTooLarge, match="the events of a step"):
        told.add("a", "x" * 200, None)
    told.add("a", "x", None)
    assert len(told.events) == 2


def test_a_payload_that_is_no_json_is_refused_where_it_is_told() -> None:
    with pytest.raises(InvalidJson, match="payload"):
        Told("p").add("a", {"n": float("nan")}, None)


def test_the_test_kits_context_keeps_what_was_told() -> None:
    ctx = Context()
    ctx.emit("order.paid", {"n": 1})
    ctx.emit("order.sent", key="k")
    assert ctx.emitted == [("order.paid", {"n": 1}), ("order.sent", {})]
    with pytest.raises(InputRefused):
        ctx.emit("not a type")
    assert len(ctx.emitted) == 2
