"""What one process takes at once is bounded, and who comes above is told to ask again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from suimon.api import guard, waiting
from suimon.api.answers import made_cursor, place_of
from suimon.api.refusals import Busy, Malformed
from suimon.api.waiting import Waiting

SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "POST",
    "path": "/api/v1/x",
    "raw_path": b"/api/v1/x",
    "query_string": b"",
    "headers": [(b"host", b"localhost")],
}


async def call(made: guard.Guard, *pieces: bytes, pause_s: float = 0.0) -> tuple[int, bytes]:
    """One request with its body in pieces; its status, and its headers as text."""
    queue = [
        {"type": "http.request", "body": piece, "more_body": place < len(pieces) - 1}
        for place, piece in enumerate(pieces or (b"",))
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(pause_s)
        return queue.pop(0) if queue else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    await made(dict(SCOPE), receive, send)
    return sent[0]["status"], b"\n".join(b": ".join(one) for one in sent[0]["headers"])


def reader(go: asyncio.Event) -> Any:
    """An application that reads the whole body, and answers when it may."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return app


def test_one_request_too_many_is_429(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUESTS", 2)

    async def act() -> None:
        go = asyncio.Event()
        made = guard.Guard(reader(go), guard.Rules())
        two = [asyncio.create_task(call(made)) for _ in range(2)]
        await asyncio.sleep(0)
        status, headers = await call(made)
        assert status == 429
        assert b"retry-after: 1" in headers.lower()
        go.set()
        assert [(await one)[0] for one in two] == [200, 200]
        assert (await call(made))[0] == 200

    asyncio.run(act())


def test_bodies_that_are_too_much_together_are_429(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was held is given back when its request is answered."""
    monkeypatch.setattr(guard, "ALL_BODIES_BYTES", 100)

    async def act() -> None:
        go = asyncio.Event()
        made = guard.Guard(reader(go), guard.Rules())
        first = asyncio.create_task(call(made, b"x" * 40, b"x" * 40))
        await asyncio.sleep(0.01)
        assert (await call(made, b"x" * 21))[0] == 429
        go.set()
        assert (await first)[0] == 200
        assert (await call(made, b"x" * 100))[0] == 200

    asyncio.run(act())


def test_a_body_that_takes_too_long_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.05)

    async def act() -> None:
        go = asyncio.Event()
        made = guard.Guard(reader(go), guard.Rules())
        assert (await call(made, b"x", b"y", pause_s=5.0))[0] == 408

    asyncio.run(act())


def test_a_defect_is_500_without_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        msg = "a detail of the inside"
        raise RuntimeError(msg)

    status, headers = asyncio.run(call(guard.Guard(broken, guard.Rules())))
    assert status == 500
    assert b"application/problem+json" in headers
    assert "a detail of the inside" in caplog.text


def test_one_client_too_many_that_waits_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WAITERS", 1)
    monkeypatch.setattr(waiting, "FOLLOWERS", 1)

    async def nothing(*_: Any) -> set[str]:
        return set()

    monkeypatch.setattr(waiting, "ask", nothing)

    async def act() -> None:
        waits = Waiting(None)  # type: ignore[arg-type]  (nobody asks the database here)
        first = asyncio.create_task(waits.until_ended("a", 30))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await waits.until_ended("b", 30)
        async with waits.follower():
            with pytest.raises(Busy):
                async with waits.follower():
                    pass
        waits.stop()
        await asyncio.wait_for(first, 5)
        await waits.until_ended("c", 30)  # told to stop: nobody waits any more

    asyncio.run(act())


def test_a_cursor_is_what_was_given() -> None:
    question = {"of": "runs", "status": ["failed"]}
    cursor = made_cursor(question, 17)
    assert place_of(cursor, question, lambda place: type(place) is int) == 17
    assert place_of(None, question, lambda _: True) is None
    for wrong in (cursor + "A", cursor[1:], "AAAA", "=", "\u00e9", "x" * 2000):
        with pytest.raises(Malformed):
            place_of(wrong, question, lambda place: type(place) is int)
    with pytest.raises(Malformed):
        place_of(cursor, question, lambda place: isinstance(place, str))
