"""The HTTP vertex: one call of a destination by the engine itself, as `ctx.http` makes them.

    {"status": 200, "headers": {...}, "json": ...}      or "text", when the answer is no JSON

Statuses outside of 2xx (or `expect`) fail the step: 408, 425 and 5xx may be tried again, and so may
a connection that broke or took too long; all others are refusals that another try would get again.
429 holds the destination and fails nothing. An answer has at most 16 MiB.
"""

from __future__ import annotations

from typing import Any, Final

import httpx2

from suimon.core import jsonsafe
from suimon.errors import CallFailed, CallRefused, DataRefused, Fatal
from suimon.worker import slot_run, wire

LIMIT_BYTES: Final = wire.RESULT_LIMIT_BYTES
#: Statuses below 500 that may be another one the next time.
PASSING: Final = (408, 425, 429)
_SHOWN_CHARACTERS: Final = 500
_HEADERS: Final = 100
#: Not for results that people read.
_KEPT_BACK: Final = frozenset({"set-cookie", "www-authenticate"})


def call(run: slot_run.Run, given: dict[str, Any]) -> dict[str, Any]:
    """Make the call; returns the step's result."""
    definition = run.program.definition
    name, method = definition["destination"], definition["method"]
    path = given.get("path")
    if not isinstance(path, str) or not path.startswith("/") or path.startswith("//"):
        msg = f"the path is {path!r:.200}; it must begin with one /"
        raise Fatal(msg, hint="The address is the destination's base_url.")
    client = run.http(name, f"{run.run_id}:{run.program.vertex}")
    try:
        with client.stream(method, path, **_parts(given)) as response:
            body = _read(response, f"{method} {path}")
    except httpx2.TimeoutException as error:
        msg = f"{method} {path}: no answer in time ({type(error).__name__})"
        raise CallFailed(msg) from None
    except httpx2.TransportError as error:
        msg = f"{method} {path}: {str(error) or type(error).__name__}"
        raise CallFailed(msg) from None
    _judge(response, body, f"{method} {path}", definition.get("expect"))
    return _result(response, body)


def select(run: slot_run.Run, given: dict[str, Any]) -> list[Any]:
    """Run the query of an SQL vertex; returns its rows."""
    from suimon.worker import slot_sql

    return slot_sql.query(run.program.definition, given, run.ask)


def _parts(given: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: given[name] for name in ("json", "params", "headers") if name in given
    }
    for name in ("params", "headers"):
        if name in found and not isinstance(found[name], dict):
            msg = f"{name} is {type(found[name]).__name__}, not an object"
            raise Fatal(msg)
    if "headers" in found:
        found["headers"] = {str(key): str(value) for key, value in found["headers"].items()}
    if "body" in given:
        found["content"] = str(given["body"]).encode()
    return found


def _read(response: httpx2.Response, what: str) -> bytes:
    body = bytearray()
    for part in response.iter_bytes():
        body += part
        if len(body) > LIMIT_BYTES:
            msg = f"{what}: the answer is larger than 16 MiB"
            raise CallRefused(msg, status=response.status_code)
    return bytes(body)


def _judge(response: httpx2.Response, body: bytes, what: str, expect: list[int] | None) -> None:
    status = response.status_code
    if status in expect if expect is not None else 200 <= status < 300:
        return
    shown = body[:_SHOWN_CHARACTERS].decode("utf-8", "replace")
    msg = f"{what} was answered with {status}"
    if status >= 500 or status in PASSING:
        raise CallFailed(msg, status=status, detail=shown or None)
    hint = None if expect is None else f"Expected: {', '.join(map(str, expect))}."
    raise CallRefused(msg, status=status, detail=shown or None, hint=hint)


def _result(response: httpx2.Response, body: bytes) -> dict[str, Any]:
    headers = {
        name: value
        for name, value in list(response.headers.items())[:_HEADERS]
        if name.lower() not in _KEPT_BACK
    }
    found: dict[str, Any] = {"status": response.status_code, "headers": headers}
    try:
        found["json"] = jsonsafe.loads(body)
    except DataRefused:  # no JSON, or one whose numbers would change
        found["text"] = body.decode(response.encoding or "utf-8", "replace")
    return found
