"""Connections of a slot to destinations, which look at the clock before the first byte of a call.

Between a turn and its call stand a queue for a connection, a resolver, a handshake. Therefore the
last instant of the turn is compared here, right before the write: a process that was frozen in
between does not call. The same place bounds a call's whole length, and judges the addresses that a
definition names (`SUIMON_ALLOW_ADDRESSES`): the address that was judged is the one connected to.
"""

from __future__ import annotations

import asyncio
import socket
from contextvars import ContextVar
from typing import Any, Final

import httpcore2
import httpx2
from httpcore2 import AsyncNetworkBackend, AsyncNetworkStream, NetworkBackend, NetworkStream

from suimon.core import addresses, clock
from suimon.worker import slot_run
from suimon.worker.slot_turns import Turn

CONNECTIONS: Final = 200
KEPT_SECONDS: Final = 5.0


class TooLateError(Exception):
    """The last instant of the turn passed before the first byte was sent: nothing was sent."""


class OnWire:
    """One call between its turn and its end."""

    __slots__ = ("allow", "ends_by", "last", "sent")

    def __init__(self, run: slot_run.Run, turn: Turn) -> None:
        self.last = turn.last
        self.sent = False
        # an address that a definition names is judged; one that user code names is its own affair
        guarded = turn.base_url is not None or run.program.kind == "http"
        self.allow = addresses.allowed(turn.allow) if guarded else None
        self.ends_by = clock.monotonic() + turn.timeout_s

    def before_write(self) -> None:
        if not self.sent:
            if clock.monotonic() >= self.last:
                raise TooLateError
            self.sent = True

    def left(self, timeout: float | None) -> float:
        """Seconds for the next read or write."""
        left = max(0.001, self.ends_by - clock.monotonic())
        return left if timeout is None else min(timeout, left)

    def judged(self, host: str, port: int, found: list[Any]) -> str:
        """The first of the addresses that the name was resolved to, if all are open."""
        assert self.allow is not None
        target = addresses.Target(f"//{host}:{port}", "", host, port)
        for one in found:
            addresses.judge(target, one[4][0], self.allow)
        return str(found[0][4][0])


CALL: ContextVar[OnWire | None] = ContextVar("suimon_call", default=None)


# --------------------------------------------------------------------------- the wire


class Stream(NetworkStream):
    """A connection that looks at the clock before the first byte of a call."""

    def __init__(self, inner: NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        call = CALL.get()
        return self._inner.read(max_bytes, timeout if call is None else call.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        call = CALL.get()
        if call is not None:
            timeout = call.left(timeout)
            call.before_write()
        self._inner.write(buffer, timeout)

    def close(self) -> None:
        self._inner.close()

    def start_tls(self, *args: Any, **more: Any) -> NetworkStream:
        return Stream(self._inner.start_tls(*args, **more))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class Backend(NetworkBackend):
    def __init__(self) -> None:
        self._inner = httpcore2.SyncBackend()

    def connect_tcp(self, host: str, port: int, *args: Any, **more: Any) -> NetworkStream:
        call = CALL.get()
        if call is not None and call.allow is not None:
            try:
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                raise httpcore2.ConnectError(str(error)) from error
            host = call.judged(host, port, found)
        return Stream(self._inner.connect_tcp(host, port, *args, **more))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class AsyncStream(AsyncNetworkStream):
    """The same for `async def` tasks."""

    def __init__(self, inner: AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        call = CALL.get()
        return await self._inner.read(max_bytes, timeout if call is None else call.left(timeout))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        call = CALL.get()
        if call is not None:
            timeout = call.left(timeout)
            call.before_write()
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(self, *args: Any, **more: Any) -> AsyncNetworkStream:
        return AsyncStream(await self._inner.start_tls(*args, **more))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class AsyncBackend(AsyncNetworkBackend):
    def __init__(self) -> None:
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self, host: str, port: int, *args: Any, **more: Any
    ) -> AsyncNetworkStream:
        call = CALL.get()
        if call is not None and call.allow is not None:
            loop = asyncio.get_running_loop()
            try:
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                raise httpcore2.ConnectError(str(error)) from error
            host = call.judged(host, port, found)
        return AsyncStream(await self._inner.connect_tcp(host, port, *args, **more))

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class Connections(httpx2.HTTPTransport):
    """The connections of one slot, for plain functions."""

    def __init__(self) -> None:
        super().__init__(trust_env=False)
        self._pool = httpcore2.ConnectionPool(
            ssl_context=httpx2.create_ssl_context(),
            max_connections=CONNECTIONS,
            max_keepalive_connections=CONNECTIONS,
            keepalive_expiry=KEPT_SECONDS,
            network_backend=Backend(),
        )


class AsyncConnections(httpx2.AsyncHTTPTransport):
    """The connections of one slot's loop."""

    def __init__(self) -> None:
        super().__init__(trust_env=False)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(),
            max_connections=CONNECTIONS,
            max_keepalive_connections=CONNECTIONS,
            keepalive_expiry=KEPT_SECONDS,
            network_backend=AsyncBackend(),
        )
