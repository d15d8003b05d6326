"""``POST /webhooks/SLUG``: the address that senders call. No bearer token; signatures instead.

    whose address → raw bytes, bounded → signature, content, name, COMMIT (triggers/webhook.py)

The answer says ``202`` only after the COMMIT was answered. Everything that needs the database runs
in threads of this door, with connections of its own, so that a flood of calls takes none from the
API. It has ``PATIENCE_S`` for a call; then the sender is told 503 with ``Retry-After``, whatever
the database is doing: away, read-only, slow, or frozen. A call that was stored after all is found
by its delivery id when the sender repeats it.

A body above the trigger's limit is read to its end and dropped, because a sender whose connection
is cut while it sends never sees the 413; ``api/guard.py`` bounds what may be read at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

import orjson
import psycopg
from fastapi import APIRouter, Request, Response

from suimon.api import problems
from suimon.api.pool import Pool
from suimon.core import clock
from suimon.db.connect import Connection
from suimon.errors import DatabaseUnavailable, QuotaExceeded
from suimon.graph_triggers import slug as slug_problem
from suimon.store.secret_key import KeyRing
from suimon.triggers import webhook
from suimon.triggers.call_log import CallLog, Entry
from suimon.triggers.fire import Trigger
from suimon.triggers.webhook import Call, Refused, Reply

log = logging.getLogger("suimon.api")
router = APIRouter()
T = TypeVar("T")

#: Threads and connections of one process.
SIZE: Final = 8
#: What one call may take of the database's time, its wait for a thread included.
PATIENCE_S: Final = 4.0
_STATEMENT_S: Final = 3.0
_FLUSH_S: Final = 1.0
_TITLES: Final = {
    400: "Bad request",
    401: "Not signed",
    403: "Forbidden",
    404: "Not found",
    413: "Too large",
    415: "Unsupported content",
    429: "Queue full",
    503: "Not now",
}


class Door:
    """What a process needs to take calls: threads, connections, keys, and the log of refusals.

    ``app.state.webhooks`` holds it. ``needs_secret``: reached from outside, a webhook without a
    secret is refused.
    """

    def __init__(
        self, url: str, keyring: KeyRing, *, needs_secret: bool = False, size: int = SIZE
    ) -> None:
        self.pool = Pool(url, size=size, statement_s=_STATEMENT_S)
        self.keyring = keyring
        self.needs_secret = needs_secret
        self.log = CallLog()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="suimon-webhook")
        self._flush_planned = False

    async def ask(self, act: Callable[[Connection], T], until: float) -> T:
        """``act`` in a thread, with a connection; raises DatabaseUnavailable when time is over."""
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._threads, self._with_connection, act)
        try:
            return await asyncio.wait_for(future, max(until - clock.monotonic(), 0.0))
        except TimeoutError:
            msg = "the database did not answer in time"
            raise DatabaseUnavailable(msg, hint="Send it again, with the same id.") from None
        finally:
            self._plan_flush(loop)

    def _with_connection(self, act: Callable[[Connection], T]) -> T:
        with self.pool.connection() as conn:
            return act(conn)

    def note(self, conn: Connection, entry: Entry) -> None:
        """A row for the log; a database that does not take it changes no answer."""
        with suppress(psycopg.Error, DatabaseUnavailable):
            self.log.note(conn, entry)

    def _plan_flush(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.log.behind and not self._flush_planned:
            self._flush_planned = True
            loop.call_later(_FLUSH_S, lambda: self._threads.submit(self._flush))

    def _flush(self) -> None:
        self._flush_planned = False
        with suppress(psycopg.Error, DatabaseUnavailable):
            self._with_connection(self.log.flush)

    def close(self) -> None:
        """After the last call was answered."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self.log.behind:
            self._flush()
        self.pool.close()


@router.post("/webhooks/{slug:path}", include_in_schema=False)
async def receive(request: Request, slug: str) -> Response:
    """One call, from its headers to its answer."""
    door: Door = request.app.state.webhooks
    spent_s = 0.0
    headers = [(name.lower(), value) for name, value in request.scope["headers"]]
    remote = request.client.host if request.client is not None else ""
    call = webhook.call_of(headers, b"", remote)
    try:
        began = clock.monotonic()
        trigger = await door.ask(lambda conn: _whose(door, conn, slug, call), began + PATIENCE_S)
        spent_s = clock.monotonic() - began
        body = await _read(request, webhook.max_body(trigger))
        until = clock.monotonic() + PATIENCE_S - spent_s
        if body is None:
            limit = f"{webhook.max_body(trigger):,} bytes"
            refused = Refused(413, "too_large", f"the body has more than {limit}")
            await door.ask(lambda conn: _note(door, conn, trigger, slug, call, refused), until)
            return _problem(refused)
        call = webhook.call_of(headers, body, remote)
        reply = await door.ask(lambda conn: _take(door, conn, trigger, slug, call), until)
    except Refused as refused:
        return _problem(refused)
    except (DatabaseUnavailable, psycopg.Error) as error:
        return _not_now(error)
    return _answer(reply)


# ------------------------------------------------------------------------------------- threads


def _whose(door: Door, conn: Connection, slug: str, call: Call) -> Trigger:
    trigger = webhook.find(conn, slug) if slug_problem(slug) is None else None
    if trigger is None:
        refused = Refused(404, "unknown", "no webhook has this address")
        _note(door, conn, None, slug, call, refused, read=False)
        raise refused
    return trigger


def _take(door: Door, conn: Connection, trigger: Trigger, slug: str, call: Call) -> Reply:
    try:
        reply = webhook.receive(conn, door.keyring, trigger, call, needs_secret=door.needs_secret)
    except Refused as refused:
        _note(door, conn, trigger, slug, call, refused)
        raise
    if reply.answer is not None and reply.answer.duplicate and isinstance(reply.body, dict):
        detail = webhook.told_of(call, trigger, reply.status, read=False)
        source = str(reply.body["delivery_id"])
        door.note(conn, Entry(trigger.id, source, None, None, detail, reply.answer.run_id))
    return reply


def _note(
    door: Door,
    conn: Connection,
    trigger: Trigger | None,
    slug: str,
    call: Call,
    refused: Refused,
    *,
    read: bool = True,
) -> None:
    read = read and refused.code != "too_large"
    detail = webhook.told_of(call, trigger, refused.status, read=read)
    source = refused.source or detail.get("named") or f"/webhooks/{slug[:200]}"
    who = None if trigger is None else trigger.id
    log.info("webhook refused: %s %s: %s", refused.status, refused.code, refused.why)
    door.note(conn, Entry(who, source, refused.code, refused.why, detail))


# ------------------------------------------------------------------------------------- the wire


async def _read(request: Request, limit: int) -> bytes | None:
    """The raw body; None: it is larger than ``limit``, and was dropped."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size <= limit:
            pieces.append(piece)
        else:
            pieces.clear()
    return b"".join(pieces) if size <= limit else None


def _answer(reply: Reply) -> Response:
    headers = {"Cache-Control": "no-store"}
    if isinstance(reply.body, str):
        return Response(reply.body, reply.status, headers, "text/plain")
    return Response(orjson.dumps(reply.body), reply.status, headers, "application/json")


def _problem(refused: Refused) -> Response:
    about: dict[str, Any] = {
        "type": "/docs/doors#webhooks",
        "title": _title(refused),
        "status": refused.status,
        "code": refused.code,
        "detail": refused.told,
    }
    headers = {"Cache-Control": "no-store"}
    if refused.retry_after_s is not None:
        headers["Retry-After"] = str(refused.retry_after_s)
    return Response(orjson.dumps(about), refused.status, headers, problems.MEDIA)


def _title(refused: Refused) -> str:
    """A 429 may be a full queue or a quota; the last one is called as everywhere."""
    if refused.code == "quota":
        return problems.title(QuotaExceeded)
    return _TITLES.get(refused.status, "Refused")


def _not_now(error: DatabaseUnavailable | psycopg.Error) -> Response:
    """Nothing was said to be stored: the sender shall come again."""
    if isinstance(error, DatabaseUnavailable):
        return problems.answer(error)
    log.warning("webhook not stored: %s", type(error).__name__, exc_info=error)
    msg = "the database did not store it"
    return problems.answer(DatabaseUnavailable(msg, hint="Send it again, with the same id."))
