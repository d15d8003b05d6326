"""The look at the clock before the first byte of a call, and the bound of its whole length."""

from __future__ import annotations

from typing import Any

import pytest
from httpcore2 import NetworkStream

from suimon.core import clock
from suimon.errors import AddressRefused
from suimon.worker import slot_http, slot_wire
from suimon.worker.slot_turns import Turn


class _Program:
    kind = "task"


class _Run:
    program = _Program()


class _Wire(NetworkStream):
    """Where bytes go in these tests."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.limits: list[float | None] = []

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.sent.append(buffer)
        self.limits.append(timeout)


def a_call(last_in_s: float, **given: Any) -> slot_wire.OnWire:
    facts = {"turn": 1, "last": clock.monotonic() + last_in_s, "timeout_s": 2.0, **given}
    return slot_wire.OnWire(_Run(), Turn("far", facts, own=True))  # type: ignore[arg-type]


def test_a_turn_that_has_passed_sends_nothing() -> None:
    wire = _Wire()
    mark = slot_wire.CALL.set(a_call(-0.01))
    try:
        with pytest.raises(slot_wire.TooLateError):
            slot_wire.Stream(wire).write(b"GET / HTTP/1.1")
    finally:
        slot_wire.CALL.reset(mark)
    assert wire.sent == []


def test_what_has_begun_in_time_goes_on_within_its_length() -> None:
    wire, call = _Wire(), a_call(5.0)
    mark = slot_wire.CALL.set(call)
    try:
        stream = slot_wire.Stream(wire)
        stream.write(b"head", 60.0)
        call.last = 0.0  # its turn passes while its body is being sent
        stream.write(b"body", 60.0)
    finally:
        slot_wire.CALL.reset(mark)
    assert wire.sent == [b"head", b"body"]
    assert all(limit is not None and limit <= 2.0 for limit in wire.limits)


def test_addresses_of_definitions_are_judged_all_of_them() -> None:
    call = a_call(5.0, base_url="http://crm.example", allow="10.0.0.0/8")
    found = [(0, 0, 0, "", ("10.1.2.3", 80))]
    assert call.judged("crm.example", 80, found) == "10.1.2.3"
    with pytest.raises(AddressRefused):
        call.judged("crm.example", 80, [*found, (0, 0, 0, "", ("127.0.0.1", 80))])
    assert a_call(5.0).allow is None  # what user code names is its own affair


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3", 3.0),
        (" 120 ", 120.0),
        ("999999999", 86_400.0),
        ("soon", None),
        (None, None),
        ("-3", None),
    ],
)
def test_retry_after_is_seconds(text: str | None, seconds: float | None) -> None:
    assert slot_http.retry_after(text) == seconds


def test_retry_after_may_be_a_date() -> None:
    found = slot_http.retry_after("Fri, 31 Dec 1999 23:59:59 GMT")
    assert found == 0.0
    later = clock.now().replace(year=clock.now().year + 1)
    assert slot_http.retry_after(later.strftime("%a, %d %b %Y %H:%M:%S GMT")) == 86_400.0
