"""`async def` tasks: up to `async_slots` of them share the slot, in a loop with its own thread.

The main thread goes on with plain functions meanwhile. A task that passes its timeout is cancelled
alone: its neighbours do not notice. What a task leaves running in the loop is cancelled at its end.
A task that swallows its cancellation goes on; the worker replaces the slot when it has had enough.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from suimon.core import clock
from suimon.worker import slot_turns, wire
from suimon.worker.slot_end import encode, failure, microseconds
from suimon.worker.slot_run import CURRENT, Run


class AsyncLane:
    """The loop, its thread and its room."""

    def __init__(self, limit: int, finish: Callable[[Run, bytes], None]) -> None:
        """`finish` writes a run's last line and forgets the run; the loop's thread calls it."""
        self.room = threading.Semaphore(limit)
        self.active: set[Run] = set()
        self.used = False
        self._finish = finish
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, run: Run) -> None:
        """Begin a run; the caller has acquired `room`, which the run's end releases."""
        self.active.add(run)
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_task_factory(_make_task)
            threading.Thread(target=self._work, name="suimon-async", daemon=True).start()
        self._loop.call_soon_threadsafe(self._begin, run)

    def cancel(self, run: Run) -> None:
        """Cancel a begun run's task, from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, run)

    def _work(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        while True:
            try:
                self._loop.run_forever()
            except BaseException:  # noqa: BLE001, S112 - sys.exit in a sub-task ends only that
                continue

    def _begin(self, run: Run) -> None:
        assert self._loop is not None
        context = contextvars.Context()
        context.run(CURRENT.set, run)
        run.tasks = set()
        run.task = self._loop.create_task(self._execute(run), context=context)

    def _cancel(self, run: Run) -> None:
        # Before its first step the task looks at `cancelled` itself; a cancel would only hide it.
        if run.task is not None and run.begun:
            run.task.cancel()

    async def _execute(self, run: Run) -> None:
        run.begun = True
        started = clock.monotonic()
        limit: asyncio.Timeout | None = None
        binding = True
        try:
            if run.cancelled:
                raise asyncio.CancelledError
            args, kwargs = run.arguments()
            binding = False
            if run.turn is not None:
                await slot_turns.wait_async(run, slot_turns.begin(run))
                started = clock.monotonic()
            assert run.program.function is not None
            async with asyncio.timeout(run.program.timeout) as limit:
                value = await run.program.function(*args, **kwargs)
            line = wire.success(
                run.token, microseconds(started, clock.monotonic()), encode(value, run.desk.hidden)
            )
        except BaseException as error:  # noqa: BLE001 - user code; every end must be told
            if isinstance(error, TimeoutError) and limit is not None and limit.expired():
                line = wire.failure(
                    run.token, microseconds(started, clock.monotonic()), _timeout(run)
                )
            else:
                line = failure(
                    run, error, microseconds(started, clock.monotonic()), binding=binding
                )
        for other in list(run.tasks or ()):
            if other is not run.task:
                other.cancel()
        self.active.discard(run)
        self._finish(run, line)
        self.room.release()


def _timeout(run: Run) -> dict[str, Any]:
    return {
        "type": "TimeoutError",
        "message": f"the task did not end within its timeout of {run.program.timeout:g} s",
        "kind": "timeout",
    }


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Any,
    context: contextvars.Context | None = None,
) -> asyncio.Task[Any]:
    """A task that its run remembers, so that none outlives it."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
    run = CURRENT.get()
    if run is not None and run.tasks is not None:
        run.tasks.add(task)
        task.add_done_callback(run.tasks.discard)
    return task
