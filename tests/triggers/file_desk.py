"""One FILE trigger watched without threads, on a clock that the test moves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from suimon.core import clock
from suimon.db.connect import Connection
from suimon.triggers import deliver
from suimon.triggers.fire import Trigger
from suimon.triggers.folder_watch import FolderWatch, Tools

from .conftest import Doors


class Desk:
    """A pipeline `p` with one FILE trigger on an inbox, and looks at it."""

    def __init__(self, doors: Doors, inbox: Path, pattern: str = "*.csv", **spec: Any) -> None:
        self.doors = doors
        self.inbox = inbox
        inbox.mkdir(exist_ok=True)
        keys = spec.pop("keys", {"concurrency": "unlimited"})
        name = spec.pop("name", "p")
        given = {"type": "FILE", "path": f"{inbox}/{pattern}", "mode": "poll", **spec}
        self.trigger: Trigger = doors.door(name, given, **keys)
        self.statements = 0
        self._clocks = contextlib.ExitStack()
        self.watch = self.another()

    def another(self, host: str = "here") -> FolderWatch:
        """One more process that watches the same trigger, from its start on."""
        return FolderWatch(self.trigger, Tools(self._use, lambda: None, host))

    @contextlib.contextmanager
    def _use(self) -> Iterator[Connection]:
        self.statements += 1
        yield self.doors.conn

    def later(self, seconds: float) -> None:
        self._clocks.enter_context(clock.moved(seconds))

    def look(self, after: float = 0.0, *, by: FolderWatch | None = None) -> float:
        self.later(after)
        return (by or self.watch).round(hinted=True)

    def settle(self, *, by: FolderWatch | None = None) -> None:
        """Two looks, far enough apart."""
        self.look(by=by)
        self.look(3.0, by=by)

    def deliver(self) -> None:
        deliver.deliver(self.doors.conn, self.trigger.id)

    def arrived(self) -> list[str]:
        """What arrived, in order, relative to the inbox."""
        rows = self.doors.deliveries(self.trigger, "source")
        return [row[0].removeprefix(f"{self.inbox}/") for row in rows]

    def inputs(self) -> list[Any]:
        return [row[0] for row in self.doors.deliveries(self.trigger, "input")]

    @property
    def note(self) -> Any:
        return self.doors.one("select note from suimon.triggers where id = %s", self.trigger.id)

    def end_run(self, status: str = "succeeded") -> None:
        """Deliver what waits, and end the oldest queued run."""
        self.deliver()
        worker = self.doors.worker()
        self.doors.end(worker, self.doors.claim(worker, 1)[0], status)

    def close(self) -> None:
        self.watch.close()
        self._clocks.close()
