"""The server process: a socket, uvicorn, the application, and the duties beside it.

``serve_until_told`` returns the exit code: 0 after SIGTERM or SIGINT (open requests get
``grace_s``, those that merely wait are answered at once, a second signal ends all), 78 when the
database has another schema or version. What is bound is said in one line on standard error once
it answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from suimon.api import app
from suimon.api.address import Address, address_of, bound
from suimon.api.guard import OWN_NAMES, Rules
from suimon.api.pool import SIZE
from suimon.core import words
from suimon.errors import EXIT_VERSION
from suimon.store.secret_key import KeyRing
from suimon.worker.keeper import Keeper

log = logging.getLogger("suimon.serve")

BACKLOG: Final = 2048
KEEP_ALIVE_SECONDS: Final = 75
#: Head of one request, and the time until its last line.
HEAD_BYTES: Final = 64 * 1024
HEAD_SECONDS: Final = 20.0
#: At the webhooks' addresses a longer one is read all the same, so that a sender is told by the
#: door itself what is wrong (a signature of 1 MB is a wrong signature); so many at once.
LARGE_HEAD_BYTES: Final = 1280 * 1024
LARGE_HEADS: Final = 32
_WEBHOOKS: Final = b"/webhooks/"
_TOO_LONG: Final = (
    b"\r\n".join(
        [
            b"HTTP/1.1 431 Request Header Fields Too Large",
            b"content-length: 0",
            b"connection: close",
        ]
    )
    + b"\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Everything that a server process is started with."""

    url: str
    listen_url: str | None = None
    host: str = "127.0.0.1"
    port: int = 8700
    token: str | None = field(default=None, repr=False)
    connections: int = SIZE
    duties: bool = True
    heartbeat_s: float = 5.0
    sweep_s: float = 45.0
    grace_s: float = 10.0
    keyring: KeyRing = field(default_factory=KeyRing)


class Server(uvicorn.Server):
    """One server process."""

    def __init__(self, options: ServeOptions) -> None:
        self._where = address_of(options.host, options.port)
        token = options.token.encode() if options.token else None
        assert token is not None or self._where.loopback, "the command line refuses this"
        names = None if token else _names(options.host, self._where.host)
        self.exit_code = 0
        self._made = app.make(
            app.Options(
                options.url,
                Rules(token, names),
                connections=options.connections,
                public=not self._where.loopback,
                keyring=options.keyring,
                wrong_schema=self._wrong_schema,
            )
        )
        self._keeper: Keeper | None = None
        if options.duties:
            self._keeper = Keeper(
                options.url,
                options.listen_url,
                look_s=options.heartbeat_s,
                sweep_s=options.sweep_s,
                wrong_schema=self._wrong_schema,
                keyring=options.keyring,
            )
        super().__init__(_config(self._made.asgi, options.grace_s))

    def serve_until_told(self) -> int:
        """Bind, answer, keep duties; returns the exit code."""
        sock = bound(self._where)
        self._where = Address(
            self._where.family, self._where.host, sock.getsockname()[1], self._where.loopback
        )
        if self._keeper is not None:
            self._keeper.start()
        try:
            self.run(sockets=[sock])
        finally:
            if self._keeper is not None and self._keeper.is_alive():
                self._keeper.close()
            self._made.pool.close()
        _leave_if_held(self.exit_code)
        return self.exit_code

    def _wrong_schema(self) -> None:
        self.exit_code = EXIT_VERSION
        self.should_exit = True

    # ------------------------------------------------------------------ uvicorn's hooks

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host = f"[{self._where.host}]" if ":" in self._where.host else self._where.host
            sys.stderr.write(f"listening on http://{host}:{self._where.port}\n")
            sys.stderr.flush()

    async def on_tick(self, counter: int) -> bool:
        over = await super().on_tick(counter)
        if over:
            self._made.waiting.stop()
        return over

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Once: end in order. Twice: end now. The exit code is ours, not the signal's."""
        before = {
            one: signal.signal(one, self._told) for one in (signal.SIGTERM, signal.SIGINT)
        }  # fmt: skip
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _told(self, *_: Any) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


class Bounded(HttpToolsProtocol):
    """A connection whose request heads are bounded in size and in time."""

    _large: ClassVar[set[Bounded]] = set()  # those with a head above HEAD_BYTES

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head = 0
        self._late = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        self._large.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head == 0:
            self._large.discard(self)
            self._late.cancel()
            self._late = self.loop.call_later(HEAD_SECONDS, self._too_late)
        self._head += len(data)
        super().data_received(data)
        # judged afterwards: head and body may come in one piece
        closing = self.transport.is_closing() or self._reads_body()
        if not closing and not self._may_be(self._head):
            self.transport.write(_TOO_LONG)
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._head = 0
        self._late.cancel()
        if not self._may_be(sum(len(name) + len(value) for name, value in self.headers)):
            msg = "the head of the request is too long"
            raise ValueError(msg)  # uvicorn answers 400 and closes
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()

    def _may_be(self, head: int) -> bool:
        """Whether a head may have so many bytes."""
        if head <= HEAD_BYTES:
            return True
        if head > LARGE_HEAD_BYTES or not self.url.startswith(_WEBHOOKS):
            return False
        if self not in self._large and len(self._large) >= LARGE_HEADS:
            return False
        self._large.add(self)
        return True

    def _reads_body(self) -> bool:
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and bool(cycle.more_body)

    def _too_late(self) -> None:
        if not self._reads_body() and not self.transport.is_closing():
            self.transport.close()


def _config(asgi: Any, grace_s: float) -> uvicorn.Config:
    return uvicorn.Config(
        asgi,
        loop="uvloop",
        http=Bounded,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace_s)),
    )


def _names(*hosts: str) -> frozenset[str]:
    """The names that a server on loopback answers to: the usual ones, and those it was given."""
    given = {f"[{one}]" if ":" in one else one.lower() for one in hosts}
    return OWN_NAMES | given


def _leave_if_held(code: int) -> None:
    """A thread that still waits for the database must not keep a process that was told to end."""
    others = [one for one in threading.enumerate() if one is not threading.main_thread()]
    if any(not one.daemon for one in others):
        log.warning("leaving with %s unanswered", words.count(len(others), "request"))
        logging.shutdown()
        sys.stderr.flush()
        os._exit(code)
