"""The gate that every request passes: who may ask, from where, how much.

Pure ASGI, outside of everything else, so that nothing is read or routed before it agrees:

``Host``           on loopback without a token only the machine's own names: a foreign page whose
                   name was made to point here (DNS rebinding) is refused
``Origin``         what changes something is refused when a browser says that another site asks
``Authorization``  the bearer token, compared in constant time, on ``/api`` and ``/metrics``
body               at most so many bytes a request and in all, and not slower than ``BODY_SECONDS``

Each answer has an ``X-Request-Id``, the caller's own if it is readable. Whatever goes wrong inside
becomes a problem document here at the latest; a traceback goes to the log alone.
"""

from __future__ import annotations

import asyncio
import contextvars
import hmac
import logging
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from suimon.api import problems
from suimon.api.refusals import Busy, Forbidden, Malformed, TokenRefused, TooSlow
from suimon.core import clock, jsonsafe
from suimon.errors import PayloadTooLarge

log = logging.getLogger("suimon.api")
access = logging.getLogger("suimon.access")

#: Of the request that is being answered; for logs.
request_id: contextvars.ContextVar[str | None] = contextvars.ContextVar("request_id", default=None)

#: Requests that one process answers at once, waiting ones included.
REQUESTS: Final = 1000
#: Bytes of one body: an input of the largest size, and what is around it.
BODY_BYTES: Final = jsonsafe.MAX_BYTES + 64 * 1024
#: Bytes of all bodies that one process holds at once.
ALL_BODIES_BYTES: Final = 256 * 1024 * 1024
BODY_SECONDS: Final = 60.0
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_OPEN: Final = ("/healthz", "/readyz")
_READABLE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
OWN_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True)
class Rules:
    """``token``: demanded where it is set. ``names``: the only hosts it answers to; None: any."""

    token: bytes | None = None
    names: frozenset[str] | None = OWN_NAMES


class Guard:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app, self._rules = app, rules
        self._requests = 0
        self._bodies = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            self._requests += 1
            try:
                await self._http(scope, receive, send)
            finally:
                self._requests -= 1

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope["headers"])
        given = [value.decode("latin-1") for value in headers.all("x-request-id")]
        fine = len(given) == 1 and _READABLE_ID.fullmatch(given[0])
        ident = given[0] if fine else uuid.uuid4().hex
        request_id.set(ident)
        answer = Answer(send, ident)
        body = Body(self, receive)
        began = clock.monotonic()
        try:
            self._check(scope, headers)
            await self._app(scope, body, answer)
        except ClientDisconnect:
            return  # nobody is left to be told
        except Exception as error:
            if answer.status is not None:
                log.exception("the answer broke off")
                raise
            await problems.answer(problems.known(error), ident)(scope, receive, answer)
        finally:
            self._bodies -= body.size
            _tell(scope, answer, clock.monotonic() - began)

    def _check(self, scope: Scope, headers: Headers) -> None:
        if self._requests > REQUESTS:
            msg = f"this process answers {REQUESTS:,} requests at once, and has so many"
            raise Busy(msg, hint="Ask again; or start more servers.")
        _check_text(scope)
        path, method = scope["path"], scope["method"]
        if path in _OPEN:
            return
        host = headers.one("host") or ""
        if self._rules.names is not None and _name_of(host) not in self._rules.names:
            msg = "this server does not answer to that name"
            hint = "Without SUIMON_API_TOKEN it answers to localhost, 127.0.0.1 and [::1] alone."
            raise Forbidden(msg, hint=hint)
        if method not in _SAFE:
            _check_origin(headers, host)
        if self._rules.token is not None and _is_guarded(path):
            _check_token(headers, self._rules.token)
        length = headers.one("content-length") or "0"
        if length.isdigit() and int(length[:20]) > BODY_BYTES:
            raise too_large(int(length[:20]))

    def take(self, count: int) -> None:
        """So many more bytes of bodies are held. Raises Busy."""
        self._bodies += count
        if self._bodies > ALL_BODIES_BYTES:
            msg = "this process holds as many bytes of requests as it may"
            raise Busy(msg, hint="Ask again; or start more servers.")


class Headers:
    """Request headers by their lower-case name."""

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._raw = list(raw)

    def all(self, name: str) -> list[bytes]:
        wanted = name.encode()
        return [value for key, value in self._raw if key.lower() == wanted]

    def one(self, name: str) -> str | None:
        """Its value; None where it is missing. Raises Malformed when it is there twice."""
        found = self.all(name)
        if len(found) > 1:
            msg = f"the header {name} is there {len(found)} times"
            raise Malformed(msg)
        return found[0].decode("latin-1").strip() if found else None


class Body:
    """Counts what comes in, and the time it takes."""

    def __init__(self, guard: Guard, receive: Receive) -> None:
        self._guard, self._receive = guard, receive
        self._until = clock.monotonic() + BODY_SECONDS
        self._whole = False
        self.size = 0

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), self._until - clock.monotonic())
        except TimeoutError:
            msg = f"the body did not arrive within {BODY_SECONDS:.0f} s"
            raise TooSlow(msg) from None
        if message["type"] == "http.request":
            count = len(message.get("body", b""))
            self.size += count
            self._guard.take(count)
            if self.size > BODY_BYTES:
                raise too_large(self.size)
            self._whole = not message.get("more_body", False)
        return message


class Answer:
    """Remembers the status, and adds what every answer has."""

    def __init__(self, send: Send, ident: str) -> None:
        self._send, self._ident = send, ident
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            extra = [
                (b"x-request-id", self._ident.encode()),
                (b"x-content-type-options", b"nosniff"),
            ]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await self._send(message)


def too_large(size: int) -> PayloadTooLarge:
    msg = f"the body has more than {BODY_BYTES:,} bytes"
    hint = "Put the data into a file or a table and pass its name."
    return PayloadTooLarge(msg, size=size, limit=BODY_BYTES, hint=hint)


def _is_guarded(path: str) -> bool:
    return path == "/metrics" or path == "/api" or path.startswith("/api/")


def _check_token(headers: Headers, token: bytes) -> None:
    given = headers.all("authorization")
    scheme, _, value = (given[0] if len(given) == 1 else b"").partition(b" ")
    fits = hmac.compare_digest(value.strip(), token)
    if not (fits and scheme.lower() == b"bearer"):
        msg = "the request has no valid token"
        raise TokenRefused(msg, hint="Authorization: Bearer TOKEN, that of SUIMON_API_TOKEN.")


def _check_origin(headers: Headers, host: str) -> None:
    """A browser says where a request comes from; programs say nothing."""
    site = headers.one("sec-fetch-site")
    origin = headers.one("origin")
    foreign = site is not None and site.lower() not in ("same-origin", "none")
    if origin is not None and not foreign:
        foreign = not _same_place(origin, host)
    if foreign:
        msg = "a page of another site asked for a change"
        raise Forbidden(msg, hint="A proxy in front has to pass the header Host on.")


def _same_place(origin: str, host: str) -> bool:
    """The Origin's host and port are the Host's; default ports may be left out."""
    try:
        parts = urlsplit(origin)
        ours = urlsplit(f"{parts.scheme}://{host}")
        default = {"http": 80, "https": 443}[parts.scheme]
        return (parts.hostname, parts.port or default) == (ours.hostname, ours.port or default)
    except (ValueError, KeyError):  # `null`, and what is no address
        return False


def _name_of(host: str) -> str:
    """``localhost`` of ``localhost:8700``, ``[::1]`` of ``[::1]:8700``."""
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/@]*)(?::\d{1,5})?", host)
    return found[1].lower() if found else ""


def _check_text(scope: Scope) -> None:
    """Path and query are UTF-8 without NUL: everything behind this line may rely on it."""
    for what, raw in (("path", scope.get("raw_path") or b""), ("query", scope["query_string"])):
        decoded = unquote_to_bytes(raw.replace(b"+", b" "))
        try:
            fine = "\x00" not in decoded.decode()
        except UnicodeDecodeError:
            fine = False
        if not fine:
            msg = f"the {what} is not UTF-8 without NUL"
            raise Malformed(msg)


def _tell(scope: Scope, answer: Answer, seconds: float) -> None:
    """One line for each request: the route's own form, never a query, never a body."""
    if not access.isEnabledFor(logging.INFO):
        return
    route = getattr(scope.get("route"), "path", None) or scope["path"][:200]
    shown = {
        "method": scope["method"],
        "route": route,
        "status": answer.status,
        "ms": round(seconds * 1000, 1),
        "request_id": request_id.get(),
    }
    access.info("%(method)s %(route)s %(status)s %(ms)s ms", shown, extra={"fields": shown})
