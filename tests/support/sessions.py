"""Two or three connections, each held at a named point.

    a, b = sessions("a", "b")
    with a.transaction(): ...                    held open by the test, until it leaves the block
    job = b.start(lambda conn: lane.admit(conn, ["lane"]))
    b.until_blocked()                            its backend really waits for a lock of PostgreSQL
    a.hold(after=SQL.lock); ... ; a.release()    stops before or after one statement of the engine

Nothing sleeps: `until_blocked` looks at `pg_stat_activity`, `until_held` waits for the thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from suimon.db.connect import Connection, connect
from support.wait import wait_until

PATIENCE_SECONDS = 20.0
T = TypeVar("T")

_WAITS = """
select wait_event_type = 'Lock' and cardinality(pg_blocking_pids(pid)) > 0
from pg_stat_activity where pid = %s"""


class Job(Future[T]):
    """What a session's thread is doing; `done_in` waits for its result."""

    def done_in(self, seconds: float = PATIENCE_SECONDS) -> T:
        return self.result(timeout=seconds)


class Session:
    """One connection, driven from the test's thread or from one of its own."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self.conn = connect(url, name=name)
        self.pid = self.conn.info.backend_pid
        self._watcher = connect(url, name=f"{name}-watcher")
        self._execute = self.conn.execute
        self._before: str | None = None
        self._after: str | None = None
        self._reached = threading.Event()
        self._go = threading.Event()
        self._thread: threading.Thread | None = None
        self.conn.execute = self._held_execute  # type: ignore[method-assign,assignment]

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """An outer transaction: what the engine does inside is not committed before its end."""
        with self.conn.transaction():
            yield self.conn

    def start(self, act: Callable[[Connection], T]) -> Job[T]:
        """Run `act` on this connection in a thread; at most one at a time."""
        job: Job[T] = Job()

        def body() -> None:
            try:
                job.set_result(act(self.conn))
            except BaseException as error:  # noqa: BLE001  (raised again by the job)
                job.set_exception(error)

        self._thread = threading.Thread(target=body, name=self.name, daemon=True)
        self._thread.start()
        return job

    def until_blocked(self) -> None:
        """Until this backend waits for a lock that another one holds."""
        wait_until(
            lambda: self._watcher.execute(_WAITS, (self.pid,)).fetchone() == (True,),
            PATIENCE_SECONDS,
            f"waiting for a lock: session {self.name}",
        )

    # ------------------------------------------------------------------ held at a statement

    def hold(self, *, before: str | None = None, after: str | None = None) -> None:
        """Stop the thread at this statement's next execution, until `release`."""
        self._before, self._after = before, after
        self._reached.clear()
        self._go.clear()

    def until_held(self) -> None:
        """Until the thread stands at the statement."""
        assert self._reached.wait(PATIENCE_SECONDS), f"{self.name} never came to its statement"

    def release(self) -> None:
        self._before = self._after = None
        self._go.set()

    def _held_execute(self, query: Any, *args: Any, **options: Any) -> Any:
        if self._before is not None and query == self._before:
            self._stand()
        answer = self._execute(query, *args, **options)
        if self._after is not None and query == self._after:
            self._stand()
        return answer

    def _stand(self) -> None:
        self._before = self._after = None
        self._reached.set()
        assert self._go.wait(PATIENCE_SECONDS), f"{self.name} was never released"

    def close(self) -> None:
        self._go.set()
        if self._thread is not None and self._thread.is_alive():
            self._watcher.execute("select pg_cancel_backend(%s)", (self.pid,))
            self._thread.join(5)
        self.conn.close()
        self._watcher.close()


class Sessions:
    """Makes the sessions of one test and closes them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._made: list[Session] = []

    def __call__(self, *names: str) -> tuple[Session, ...]:
        made = tuple(Session(self._url, name) for name in names)
        self._made += made
        return made

    def close(self) -> None:
        for one in self._made:
            one.close()
