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
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn

from suimon.api import app
from suimon.core import clock
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


def raw(port: int, data: bytes, *, finish: bool = False, timeout_s: float = 5.0) -> bytes:
    """These bytes, no more of them, and what comes back until the other side closes.

    With `finish` this side closes first, as a sender that dies half-way.
    """
    with socket.create_connection(("127.0.0.1", port), timeout_s) as sock:
        pieces = []
        with contextlib.suppress(OSError):
            sock.sendall(data)
            if finish:
                sock.shutdown(socket.SHUT_WR)
            while piece := sock.recv(65536):
                pieces.append(piece)
        return b"".join(pieces)


def _answer(response: http.client.HTTPResponse) -> Answer:
    body = response.read()
    return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, body)


@dataclass(frozen=True, slots=True)
class Try:
    """One call of a `Sender`; `answer` None: nobody answered it to its end."""

    name: str
    answer: Answer | None
    seconds: float


class Sender:
    """Sends numbered deliveries to several servers, and each again until it is answered 2xx.

    As a sender in the field: the same id each time, another server, and never longer than
    `pause_s` between two tries, whatever `Retry-After` says. Thread-safe.
    """

    def __init__(self, ports: Sequence[int], slug: str, id_header: str, pause_s: float) -> None:
        self._ports, self._slug, self._id_header = list(ports), slug, id_header
        self._pause_s = pause_s
        self.tries: list[Try] = []

    def deliver(self, name: str, body: bytes) -> Answer:
        """The first answer that says it was taken; gives up after some minutes."""
        give_up_at = clock.monotonic() + 120
        turn = 0
        while clock.monotonic() < give_up_at:
            turn += 1
            answer = self._send(self._ports[turn % len(self._ports)], name, body)
            if answer is not None and answer.status in (200, 202):
                return answer
            time.sleep(self._pause_s)
        msg = f"delivery {name} was never taken: {self.tries[-1]}"
        raise AssertionError(msg)

    def _send(self, port: int, name: str, body: bytes) -> Answer | None:
        began = clock.monotonic()
        try:
            answer = post(port, self._slug, body, {self._id_header: name})
        except OSError:
            answer = None
        self.tries.append(Try(name, answer, clock.monotonic() - began))
        return answer

    def statuses(self) -> dict[int, int]:
        """How often each status was answered."""
        found: dict[int, int] = {}
        for one in list(self.tries):
            if one.answer is not None:
                found[one.answer.status] = found.get(one.answer.status, 0) + 1
        return found
