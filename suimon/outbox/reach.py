"""HTTP to an address that somebody else has chosen, and only to where it may lead.

The name is resolved once, each address it has is judged (core/addresses.py), and one of exactly
these is connected to. Redirects are not followed, no proxy and nothing of the environment is used,
and the whole exchange has an end: a server that sends a byte now and then is left when it comes.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpcore2
import httpx2

from suimon.core import addresses, clock
from suimon.core.addresses import Allowed
from suimon.db.connect import Connection

TIMEOUT_SECONDS: Final = 10.0
#: Addresses of one name that are tried.
TRIED: Final = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """What is kept of a response: never its body."""

    status: int
    headers: Mapping[str, str]


class Reach:
    """Where this process may connect to. Thread-safe: nothing in it changes."""

    def __init__(self, allow: Allowed, forbidden: Collection[tuple[str, int]] = ()) -> None:
        self.allow = allow
        self.forbidden = frozenset(forbidden)

    def check(self, url: str) -> list[str]:
        """The addresses that a URL leads to, all of them open; AddressRefused otherwise."""
        target = addresses.parse(url)
        found = _resolve(target.host, target.port)
        for address in found:
            addresses.judge(target, address, self.allow, forbidden=self.forbidden)
        return found

    def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        timeout_s: float = TIMEOUT_SECONDS,
    ) -> Answer:
        """POST, and what was answered; raises AddressRefused, httpx2.HTTPError."""
        addresses.parse(url)
        with (
            self.client(timeout_s) as client,
            client.stream("POST", url, content=body, headers=dict(headers)) as response,
        ):
            return Answer(response.status_code, dict(response.headers))

    def client(self, timeout_s: float = TIMEOUT_SECONDS) -> httpx2.Client:
        """A client for one exchange: `timeout_s` counts for all of it, from the connect on."""
        return httpx2.Client(
            transport=_Transport(self, timeout_s),
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=False,
        )


def of_database(conn: Connection) -> list[tuple[str, int]]:
    """Address and port of the server behind this connection, for `forbidden`."""
    info = conn.info
    found = {info.hostaddr} if info.hostaddr else set()
    if info.host and not info.host.startswith("/"):
        found |= set(_resolve(info.host, info.port))
    else:  # a socket file: the same server may listen on loopback
        found |= {"127.0.0.1", "::1"}
    return [(address, info.port) for address in sorted(found)]


def _resolve(host: str, port: int) -> list[str]:
    """Every address of a name, each once."""
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        msg = f'"{host}" cannot be resolved: {error}'
        raise httpx2.ConnectError(msg) from None
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


class _Transport(httpx2.HTTPTransport):
    """One connection, made by `_Backend`."""

    def __init__(self, reach: Reach, timeout_s: float) -> None:
        context = ssl.create_default_context()
        super().__init__(verify=context, trust_env=False)
        self._pool = httpcore2.ConnectionPool(
            ssl_context=context,
            max_connections=1,
            max_keepalive_connections=0,
            network_backend=_Backend(reach, timeout_s),
        )


class _Backend(httpcore2.NetworkBackend):
    """Resolves, judges, and connects to what was judged."""

    def __init__(self, reach: Reach, timeout_s: float) -> None:
        self._reach = reach
        self._give_up_at = clock.monotonic() + timeout_s
        self._sockets = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        shown = f"[{host}]" if ":" in host else host
        found = self._reach.check(f"http://{shown}:{port}/")
        problem: Exception = httpcore2.ConnectError(f'"{host}" has no address')
        for address in found[:TRIED]:
            try:
                stream = self._sockets.connect_tcp(
                    address,
                    port,
                    _left(self._give_up_at, timeout),
                    local_address,
                    socket_options or (),
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
            else:
                return _Stream(stream, self._give_up_at)
        raise problem


class _Stream(httpcore2.NetworkStream):
    """A connection with an end: each wait is at most as long as what is left of the whole."""

    def __init__(self, inner: httpcore2.NetworkStream, give_up_at: float) -> None:
        self._inner = inner
        self._give_up_at = give_up_at

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(self._give_up_at, timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(self._give_up_at, timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        inner = self._inner.start_tls(
            ssl_context, server_hostname, _left(self._give_up_at, timeout)
        )
        return _Stream(inner, self._give_up_at)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _left(give_up_at: float, timeout: float | None) -> float:
    left = give_up_at - clock.monotonic()
    if left <= 0:
        msg = "the exchange took too long"
        raise httpcore2.ReadTimeout(msg)
    return left if timeout is None else min(left, timeout)
