"""Clients that wait: for the end of a run, or for its log text. None of them holds a thread.

Whoever waits for ends is asked for in one statement for all, four times a second while anybody
waits, and never otherwise. Bounds of one process: ``WAITERS`` clients that wait for an end and
``FOLLOWERS`` that follow a log; the next one is told to ask again. When the server is told to stop,
all of them get their answer at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import anyio.to_thread

from suimon.api.pool import Pool
from suimon.api.refusals import Busy
from suimon.core import clock
from suimon.db.connect import Connection
from suimon.run import read

T = TypeVar("T")

WAITERS: Final = 500
FOLLOWERS: Final = 100
LOOK_SECONDS: Final = 0.25
#: The longest that one request waits, for an end and for log text.
WAIT_SECONDS: Final = 60.0
FOLLOW_SECONDS: Final = 300.0


async def ask(pool: Pool, act: Callable[[Connection], T]) -> T:
    """Call ``act`` with a connection, in a thread of the server's."""

    def work() -> T:
        with pool.connection() as conn:
            return act(conn)

    return await anyio.to_thread.run_sync(work)


class Waiting:
    """What waits in this process; all of it in the event loop's thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._for_end: dict[str, set[asyncio.Future[None]]] = {}
        self._count = 0
        self._followers = 0
        self._looking: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Everybody is answered now with what is."""
        self._stopping.set()
        for waiting in self._for_end.values():
            _release(waiting)

    async def until_ended(self, run_id: str, seconds: float) -> None:
        """Until the run has ended, or so long. Raises Busy, DatabaseUnavailable."""
        if seconds <= 0 or self._stopping.is_set():
            return
        if self._count >= WAITERS:
            msg = f"{WAITERS} clients wait for ends of runs already"
            raise Busy(msg, hint="Ask again; or start more servers.")
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._for_end.setdefault(run_id, set())
        waiting.add(ended)
        self._count += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended, min(seconds, WAIT_SECONDS))
        finally:
            self._count -= 1
            waiting.discard(ended)
            if not waiting:
                self._for_end.pop(run_id, None)

    async def _look(self) -> None:
        """While anybody waits: who has ended? One error is everybody's."""
        while self._for_end:
            ids = list(self._for_end)
            try:
                ended = await ask(self._pool, partial(_ended, ids))
            except Exception as error:  # noqa: BLE001 - each waiter raises it
                for waiting in self._for_end.values():
                    _release(waiting, error)
            else:
                for run_id in ended:
                    _release(self._for_end.get(run_id, set()))
            await asyncio.sleep(LOOK_SECONDS)

    @asynccontextmanager
    async def follower(self) -> AsyncIterator[None]:
        """A place among those that follow a log."""
        if self._followers >= FOLLOWERS:
            msg = f"{FOLLOWERS} clients follow logs already"
            raise Busy(msg, hint="Ask again; or start more servers.")
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1

    async def pause(self, seconds: float) -> bool:
        """Wait so long; False: the server stops."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return not self._stopping.is_set()


def _ended(ids: list[str], conn: Connection) -> set[str]:
    return read.ended(conn, ids)


def _release(waiting: set[asyncio.Future[None]], error: Exception | None = None) -> None:
    for one in waiting:
        if not one.done():
            if error is None:
                one.set_result(None)
            else:
                one.set_exception(error)


def until(seconds: float) -> Callable[[], float]:
    """How many of these seconds are left."""
    end = clock.monotonic() + seconds
    return lambda: max(0.0, end - clock.monotonic())
