"""A sender of webhooks, and a server to send them to.

    with serving(db_url) as port:
        answer = post(port, "orders", b"{}", {"Idempotency-Key": "1"})

The server here is the whole application in a thread; tests that kill servers start `suimon serve`.
A sender speaks HTTP by itself, byte by byte where it must, so that no library mends what is sent.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import uvicorn

from suimon.api import app
from suimon.store.secret_key import KeyRing
from support.wait import wait_until

PATIENCE_SECONDS = 20.0
Headers = Mapping[str, str] | Iterable[tuple[str, str | bytes]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@contextlib.contextmanager
def serving(
    url: str, *, environment: Mapping[str, str] | None = None, public: bool = False
) -> Iterator[int]:
    """The application on a free port of loopback, until the block ends."""
    options = app.Options(url, public=public, keyring=KeyRing.of(environment or {}))
    made = app.make(options)
    config = uvicorn.Config(made.asgi, host="127.0.0.1", port=0, log_level="error", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="test-serve", daemon=True)
    thread.start()
    wait_until(lambda: server.started, PATIENCE_SECONDS, "the server listens")
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)


def post(
    port: int,
    slug: str,
    body: bytes = b"{}",
    headers: Headers = (),
    *,
    method: str = "POST",
    timeout_s: float = PATIENCE_SECONDS,
) -> Answer:
    """One call; JSON unless the headers say otherwise. Raises OSError where nobody answers."""
    given = list(headers.items() if isinstance(headers, Mapping) else headers)
    if not any(name.lower() == "content-type" for name, _ in given):
        given.append(("Content-Type", "application/json"))
    return bare(port, f"/webhooks/{slug}", body, given, method=method, timeout_s=timeout_s)


def bare(
    port: int,
    path: str,
    body: bytes,
    headers: Iterable[tuple[str, str | bytes]],
    *,
    method: str = "POST",
    timeout_s: float = PATIENCE_SECONDS,
) -> Answer:
    """One call with these headers and no others but Host and Content-Length."""
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        conn.putrequest(method, path, skip_accept_encoding=True)
        named = [name.lower() for name, _ in headers]
        for name, value in headers:
            conn.putheader(name, value)
        if "content-length" not in named and "transfer-encoding" not in named:
            conn.putheader("Content-Length", str(len(body)))
        conn.endheaders(body)
        return _answer(conn.getresponse())
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from error
    finally:
        conn.close()


def raw(port: int, data: bytes, *, timeout_s: float = PATIENCE_SECONDS) -> bytes:
    """These bytes, no more of them, and what comes back until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout_s) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        pieces = []
        with contextlib.suppress(ConnectionError):
            while piece := sock.recv(65536):
                pieces.append(piece)
        return b"".join(pieces)


def _answer(response: http.client.HTTPResponse) -> Answer:
    body = response.read()
    return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, body)
