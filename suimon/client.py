"""The client: start runs and follow them from any Python program.

    from suimon import Client

    with Client() as client:                            # or Client("postgresql://...")
        run = client.submit("import-orders", {"path": "orders.csv"}, key="orders-17")
        done = client.wait(run.id, timeout=60)
        print(done.status, done.output)

It speaks to the database alone and imports nobody's pipelines: an unknown name is told with "did
you mean". Inputs and keys are checked before anything is sent. A connection that broke is opened
again by the next call; the call that met it raises DatabaseUnavailable, since nobody can know
whether its commit happened: with an idempotency key it is safe to ask again.

`AsyncClient` has the same methods with `await`. It is one thin door: each call runs the method of
a `Client` of its own in a thread, one call after the other; use several clients to do more at once.
"""

from __future__ import annotations

import asyncio
import functools
import getpass
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import psycopg

from suimon.core import settings
from suimon.db import connect, migrate
from suimon.db.connect import Connection
from suimon.errors import DatabaseUnavailable
from suimon.outbox import emit as events
from suimon.run import cancel as cancelling
from suimon.run import doors, pages, read
from suimon.run import retry as retrying
from suimon.run.read import Run
from suimon.run.submit import Submitted

P = ParamSpec("P")
T = TypeVar("T")

#: Children fetched at once.
PAGE: Final = 500


class Client:
    """One connection, opened at the first call. Not for several threads at once."""

    def __init__(self, url: str | None = None) -> None:
        """`url`: PostgreSQL; else SUIMON_DATABASE_URL, else a `suimon dev` (SUIMON_HOME)."""
        self._url = url or settings.address_of(settings.load(os.environ))
        self._conn: Connection | None = None
        if not self._url:
            msg = "no database is known"
            hint = (
                'Client("postgresql://user@host/database"), or set SUIMON_DATABASE_URL; a running '
                "`suimon dev` is found from the folder that holds its .suimon, or by SUIMON_HOME."
            )
            raise DatabaseUnavailable(msg, hint=hint)

    def submit(
        self,
        pipeline: str,
        input: Any = None,  # noqa: A002
        *,
        key: str | None = None,
        labels: Sequence[str] = (),
    ) -> Submitted:
        """Start a run. With a key that has its run already, that run is the answer.

        `labels=["tenant:acme"]`: quotas may count by them. Raises QuotaExceeded and QueueFull.
        """
        given = {} if input is None else input
        return self._ask(doors.start, pipeline, given, key=key, labels=labels)

    def submit_many(
        self,
        pipeline: str,
        inputs: Sequence[Any],
        *,
        keys: Sequence[str | None] | None = None,
        labels: Sequence[str] = (),
    ) -> list[Submitted]:
        """Start many runs in order (at most 100,000), all checked before the first is stored.

        `labels` are those of all of them. With a quota that has no room for all, none is stored.
        """
        return self._ask(doors.start_many, pipeline, inputs, keys=keys, labels=labels)

    def emit(self, type: str, payload: Any = None, *, key: str | None = None) -> str:  # noqa: A002
        """Tell every pipeline that listens (`on=Event("order.*")`); returns the event's id.

        One key of one type is one event: told again, the earlier one is the answer.
        """
        return self._ask(events.emit, type, payload, key=key)

    def get(self, run_id: str) -> Run:
        """A run as it stands now. Raises RunNotFound."""
        return self._ask(_get, run_id)

    def wait(self, run_id: str, *, timeout: float | None = None) -> Run:
        """Wait until a run has ended, or `timeout` seconds; look at `.ended` to know which."""
        return self._ask(_wait, run_id, timeout)

    def children(
        self, run_id: str, *, vertex: str | None = None, status: str | Sequence[str] = ()
    ) -> Iterator[dict[str, Any]]:
        """The children of a fan-out in item order, fetched a page at a time."""
        statuses = [status] if isinstance(status, str) else list(status)
        first: int | None = 0
        while first is not None:
            page = self._ask(_children, run_id, vertex, statuses, first)
            yield from page.rows
            first = page.next

    def retry(self, run_id: str, *, failed_children: bool = False, why: str = "") -> int:
        """Run again what ended badly; returns how many runs. Raises Conflict if nothing did."""
        return self._ask(_retry, run_id, failed_children, why)

    def cancel(self, run_id: str, *, why: str = "cancelled by a program") -> bool:
        """Ask a run to stop, with all below it; False: it was over already."""
        return self._ask(_cancel, run_id, why)

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(
        self, act: Callable[Concatenate[Connection, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        try:
            return act(self._connection(), *args, **named)
        except psycopg.OperationalError as error:
            self.close()
            text = str(error).strip().splitlines()
            msg = "the connection to the database was lost"
            hint = "Whether the call was done is unknown; with a key it can be asked again."
            raise DatabaseUnavailable(msg, detail=text[0] if text else None, hint=hint) from None

    def _connection(self) -> Connection:
        if self._conn is None or self._conn.closed:
            assert self._url is not None
            opened = connect.connect(self._url, name="client")
            try:
                migrate.check_version(opened)
            except BaseException:
                opened.close()
                raise
            self._conn = opened
        return self._conn


def _get(conn: Connection, run_id: str) -> Run:
    return read.run(conn, read.resolve(conn, run_id))


def _wait(conn: Connection, run_id: str, timeout: float | None) -> Run:
    full = read.resolve(conn, run_id)
    doors.wait(conn, full, timeout_s=timeout)
    return read.run(conn, full)


def _children(
    conn: Connection, run_id: str, vertex: str | None, statuses: Sequence[str], first: int
) -> pages.Page:
    fanout = pages.fanout_of(conn, read.resolve(conn, run_id), vertex)
    return pages.children(conn, fanout, first=first, statuses=statuses, limit=PAGE, whole=True)


def _retry(conn: Connection, run_id: str, failed_children: bool, why: str) -> int:
    full = read.resolve(conn, run_id)
    plan = retrying.plan(conn, [full], failed_children=failed_children)
    return retrying.apply(conn, plan, actor=_actor(), why=why)


def _cancel(conn: Connection, run_id: str, why: str) -> bool:
    return cancelling.request(conn, [read.resolve(conn, run_id)], why=why).asked > 0


def _actor() -> str:
    try:
        return f"client:{getpass.getuser()}"
    except (KeyError, OSError):  # an account without a name
        return "client"


class AsyncClient:
    """The same for asyncio."""

    def __init__(self, url: str | None = None) -> None:
        self._client = Client(url)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="suimon-client")

    async def submit(
        self,
        pipeline: str,
        input: Any = None,  # noqa: A002
        *,
        key: str | None = None,
        labels: Sequence[str] = (),
    ) -> Submitted:
        return await self._call(self._client.submit, pipeline, input, key=key, labels=labels)

    async def submit_many(
        self,
        pipeline: str,
        inputs: Sequence[Any],
        *,
        keys: Sequence[str | None] | None = None,
        labels: Sequence[str] = (),
    ) -> list[Submitted]:
        return await self._call(
            self._client.submit_many, pipeline, inputs, keys=keys, labels=labels
        )

    async def emit(self, type: str, payload: Any = None, *, key: str | None = None) -> str:  # noqa: A002
        return await self._call(self._client.emit, type, payload, key=key)

    async def get(self, run_id: str) -> Run:
        return await self._call(self._client.get, run_id)

    async def wait(self, run_id: str, *, timeout: float | None = None) -> Run:
        """Wait without holding the thread: other calls of this client go on meanwhile."""
        loop = asyncio.get_running_loop()
        give_up_at = None if timeout is None else loop.time() + timeout
        pause = doors.FIRST_PAUSE_SECONDS
        while True:  # bounded by give_up_at, or by the caller's patience
            run = await self.get(run_id)
            left = pause if give_up_at is None else min(pause, give_up_at - loop.time())
            if run.ended or left <= 0:
                return run
            await asyncio.sleep(left)
            pause = min(pause * 1.3, doors.LAST_PAUSE_SECONDS)

    async def children(
        self, run_id: str, *, vertex: str | None = None, status: str | Sequence[str] = ()
    ) -> AsyncIterator[dict[str, Any]]:
        listed = self._client.children(run_id, vertex=vertex, status=status)
        nothing: dict[str, Any] = {}
        while (one := await self._call(next, listed, nothing)) is not nothing:
            yield one

    async def retry(self, run_id: str, *, failed_children: bool = False, why: str = "") -> int:
        return await self._call(
            self._client.retry, run_id, failed_children=failed_children, why=why
        )

    async def cancel(self, run_id: str, *, why: str = "cancelled by a program") -> bool:
        return await self._call(self._client.cancel, run_id, why=why)

    async def close(self) -> None:
        await self._call(self._client.close)
        self._thread.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _call(self, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        work = functools.partial(act, *args, **named)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
