"""What an HTTP vertex makes of an answer."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from suimon.worker import slot_vertex


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b'{"a": 1.10}', {"json": {"a": 1.1}}),
        (b'{"a": 12345678901234567.89}', {"text": '{"a": 12345678901234567.89}'}),
        (b'{"a": 123456789012345678901234}', {"text": '{"a": 123456789012345678901234}'}),
        (b"plain", {"text": "plain"}),
    ],
)
def test_an_answer_is_json_where_nothing_of_it_changes_else_its_text(
    body: bytes, kept: dict[str, Any]
) -> None:
    found = slot_vertex._result(httpx2.Response(200, content=body), body)
    assert {"status": 200, "headers": found["headers"], **kept} == found
