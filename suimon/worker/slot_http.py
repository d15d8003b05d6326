"""`ctx.http`: an httpx client whose every call takes its turn at a destination.

    turn from the worker → address, secret and time limit of the destination → the call → turn back

The client is made for each try; connections are kept per slot (`slot_wire`). The
answer 429, or 503 with `Retry-After`, holds the destination for everybody and the call is made
again when its turn comes; a connection that could not be made is tried three times.

A call has ended when its answer has been read or closed, and at the latest after the destination's
time limit: then the connection is cut.
"""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import httpx2

from suimon.core import clock
from suimon.errors import AddressRefused, Fatal
from suimon.worker import slot_run, slot_turns
from suimon.worker.slot_turns import Holding, Turn
from suimon.worker.slot_wire import CALL, AsyncConnections, Connections, OnWire, TooLateError

#: Stands for the destination's address until it is known.
PLACEHOLDER: Final = "destination.invalid"
#: Tries of a connection that cannot be made, and the pauses between them.
PAUSES: Final = (0.1, 0.4)
#: A pause that the far side asks for is never longer.
LONGEST_SECONDS: Final = 86_400.0
SHORTEST_SECONDS: Final = 0.5
#: A call that was sent away so often waits outside of its slot.
REFUSALS: Final = 5
AWAY_SECONDS: Final = 5.0
_UNSAFE: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


# --------------------------------------------------------------------------- one call


class _Calls:
    """What both transports do besides waiting."""

    def __init__(self, run: slot_run.Run, name: str) -> None:
        self.run = run
        self.name = name
        self.refused = 0

    def prepare(self, request: httpx2.Request, url: httpx2.URL, turn: Turn) -> None:
        """Address, secret and time limit of the destination, as they are for this turn."""
        if url.host == PLACEHOLDER:
            if turn.base_url is None:
                msg = f'the destination "{self.name}" has no address'
                raise Fatal(msg, hint="Give it a base_url, or call a whole address.")
            base = httpx2.URL(turn.base_url)
            raw = base.raw_path.rstrip(b"/") + url.raw_path
            request.url = base.copy_with(raw_path=raw)
            request.headers["host"] = request.url.netloc.decode("ascii")
        if turn.auth is not None and self._is_theirs(request.url, turn):
            request.headers.setdefault("authorization", self._authorization(turn.auth))
        given = request.extensions.get("timeout") or {}
        limit = turn.timeout_s
        request.extensions["timeout"] = {
            part: min(given.get(part) or limit, limit)
            for part in ("connect", "read", "write", "pool")
        }

    def _is_theirs(self, url: httpx2.URL, turn: Turn) -> bool:
        """The secret goes to the destination's own address only."""
        if turn.base_url is None:
            return True
        base = httpx2.URL(turn.base_url)
        return (url.scheme, url.host, url.port) == (base.scheme, base.host, base.port)

    def _authorization(self, name: str) -> str:
        value = self.run.desk.secrets[name]
        return value if " " in value.strip() else f"Bearer {value.strip()}"

    def is_held(self, response: httpx2.Response) -> bool:
        """Did the far side ask for a pause? Then everybody keeps it."""
        if response.status_code not in (429, 503):
            return False
        after_s = retry_after(response.headers.get("retry-after"))
        if response.status_code == 503 and after_s is None:
            return False
        if after_s is not None:
            after_s = max(after_s, SHORTEST_SECONDS)
        slot_turns.say_held(self.run, self.name, response.status_code, after_s)
        self.refused += 1
        return True

    def again(self) -> None:
        """It was sent away: once more in this slot, or later in any."""
        if self.refused >= REFUSALS:
            raise slot_turns.NotYet(AWAY_SECONDS)


class Transport(httpx2.BaseTransport):
    """Each request takes its turn; `close` leaves the slot's connections as they are."""

    def __init__(self, run: slot_run.Run, name: str, inner: httpx2.BaseTransport) -> None:
        self._calls = _Calls(run, name)
        self._inner = inner

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        run, failures, url = self._calls.run, 0, request.url
        self._calls.refused = 0
        while True:
            steps = slot_turns.get_call(run, self._calls.name)
            turn, holding = slot_turns.wait(run, steps)
            ended = _Ended(run, turn, holding)
            call = OnWire(run, turn)
            mark = CALL.set(call)
            try:
                self._calls.prepare(request, url, turn)
                response = self._inner.handle_request(request)
                if not self._calls.is_held(response):
                    assert isinstance(response.stream, httpx2.SyncByteStream)
                    response.stream = _Body(response.stream, ended, call)
                    return response
                response.read()
                ended(well=True)
                self._calls.again()
            except TooLateError:
                ended(well=True)
            except AddressRefused as error:
                ended(well=True)
                raise Fatal(error.message, hint=error.hint) from None
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                ended(well=False)
                if failures == len(PAUSES):
                    raise
                time.sleep(PAUSES[failures])
                failures += 1
            except BaseException:
                ended(well=False)
                raise
            finally:
                CALL.reset(mark)


class AsyncTransport(httpx2.AsyncBaseTransport):
    """The same for `async def` tasks."""

    def __init__(self, run: slot_run.Run, name: str, inner: httpx2.AsyncBaseTransport) -> None:
        self._calls = _Calls(run, name)
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        run, failures, url = self._calls.run, 0, request.url
        self._calls.refused = 0
        while True:
            steps = slot_turns.get_call(run, self._calls.name)
            turn, holding = await slot_turns.wait_async(run, steps)
            ended = _Ended(run, turn, holding)
            call = OnWire(run, turn)
            mark = CALL.set(call)
            try:
                self._calls.prepare(request, url, turn)
                response = await self._inner.handle_async_request(request)
                if not self._calls.is_held(response):
                    assert isinstance(response.stream, httpx2.AsyncByteStream)
                    response.stream = _AsyncBody(response.stream, ended, call)
                    return response
                await response.aread()
                ended(well=True)
                self._calls.again()
            except TooLateError:
                ended(well=True)
            except AddressRefused as error:
                ended(well=True)
                raise Fatal(error.message, hint=error.hint) from None
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                ended(well=False)
                if failures == len(PAUSES):
                    raise
                await asyncio.sleep(PAUSES[failures])
                failures += 1
            except BaseException:
                ended(well=False)
                raise
            finally:
                CALL.reset(mark)


class _Ended:
    """Gives the turn back, once."""

    __slots__ = ("_args", "_over")

    def __init__(self, run: slot_run.Run, turn: Turn, holding: Holding | None) -> None:
        self._args = run, turn, holding
        self._over = False

    def __call__(self, *, well: bool) -> None:
        if not self._over:
            self._over = True
            slot_turns.end_call(*self._args, well=well)


class _Body(httpx2.SyncByteStream):
    """An answer on its way: when it has been read or left, the call is over."""

    def __init__(self, inner: httpx2.SyncByteStream, ended: _Ended, call: OnWire) -> None:
        self._inner, self._ended, self._call = inner, ended, call

    def __iter__(self) -> Iterator[bytes]:
        mark = CALL.set(self._call)
        try:
            yield from self._inner
        finally:
            CALL.reset(mark)

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._ended(well=True)


class _AsyncBody(httpx2.AsyncByteStream):
    """The same for `async def` tasks."""

    def __init__(self, inner: httpx2.AsyncByteStream, ended: _Ended, call: OnWire) -> None:
        self._inner, self._ended, self._call = inner, ended, call

    async def __aiter__(self) -> AsyncIterator[bytes]:
        CALL.set(self._call)
        async for part in self._inner:
            yield part

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            self._ended(well=True)


def retry_after(text: str | None) -> float | None:
    """Seconds of a `Retry-After`, which is a number or a date; None: none that can be read."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return min(float(text), LONGEST_SECONDS)
    try:
        when = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        return None
    return min(max((when - clock.now()).total_seconds(), 0.0), LONGEST_SECONDS)


# --------------------------------------------------------------------------- the client


class Clients:
    """What one slot keeps: connections for plain functions, and others for its loop."""

    def __init__(self) -> None:
        self._plain: Connections | None = None
        self._in_loop: AsyncConnections | None = None

    def client(self, run: slot_run.Run, name: str, key: str) -> httpx2.Client | httpx2.AsyncClient:
        """A client for this try; `AsyncClient` in an `async def` task."""
        base = f"http://{PLACEHOLDER}"
        if run.is_async:
            if self._in_loop is None:
                self._in_loop = AsyncConnections()
            made = httpx2.AsyncClient(
                base_url=base, timeout=None, trust_env=False,
                transport=AsyncTransport(run, name, self._in_loop),
            )  # fmt: skip
            made.event_hooks = {"request": [_async_hook(run, key)], "response": []}
            return made
        if self._plain is None:
            self._plain = Connections()
        plain = httpx2.Client(
            base_url=base, timeout=None, trust_env=False,
            transport=Transport(run, name, self._plain),
        )  # fmt: skip
        plain.event_hooks = {"request": [_hook(run, key)], "response": []}
        return plain


def _hook(run: slot_run.Run, key: str) -> Any:
    def add_key(request: httpx2.Request) -> None:
        """The first call that changes something carries the key of this work, the next key:2."""
        if request.method in _UNSAFE and "idempotency-key" not in request.headers:
            run.calls += 1
            number = "" if run.calls == 1 else f":{run.calls}"
            request.headers["Idempotency-Key"] = f"{key}{number}"

    return add_key


def _async_hook(run: slot_run.Run, key: str) -> Any:
    add_key = _hook(run, key)

    async def add(request: httpx2.Request) -> None:
        add_key(request)

    return add
