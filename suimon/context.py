"""What a task gets from the engine: `ctx`, for its log, progress, events, checkpoints and files.

In tests of your own, call a task as the plain function it is, with `Context.plain()` and
`MergeResult.of(...)` (merges and files are in `suimon/merge_result.py`).
"""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import orjson

from suimon.artifact import Artifact
from suimon.core import jsonsafe
from suimon.core.durations import seconds
from suimon.core.events import Told
from suimon.core.suggest import did_you_mean
from suimon.destination import Destination, name_of
from suimon.errors import SecretNotGranted
from suimon.merge_result import Child, ChildError, Counts, MergeResult, Row, Rows, Which

__all__ = [
    "Child",
    "ChildError",
    "Context",
    "Counts",
    "Host",
    "Later",
    "Log",
    "MergeResult",
    "Row",
    "Rows",
    "Which",
]

LONGEST_DELAY_SECONDS = 366 * 86_400
#: A task that asks for less would circle: claimed, called and parked again, as fast as it can.
SHORTEST_DELAY_SECONDS = 1.0


class Later(Exception):  # noqa: N818  (it is no error)
    """Raise it in a task to be called again after `delay`: no slot, no try and no failure is spent.

    `delay` is a duration such as "2m", or seconds: at most 366 days, and less than 1 s is taken as
    1 s. Polling an outside job for hours is this; a task's `deadline` bounds it. `progress` is
    shown with the run.
    """

    #: Whether the engine raised it, since a destination's turn is too far away.
    waits_for_turn = False

    def __init__(self, delay: str | float, *, progress: object = None) -> None:
        self.delay_seconds = seconds(delay) if isinstance(delay, str) else float(delay)
        if not 0 <= self.delay_seconds <= LONGEST_DELAY_SECONDS:
            msg = f"Later({delay!r}): a delay is from 0 s to 366 days"
            raise ValueError(msg)
        if not self.waits_for_turn:
            self.delay_seconds = max(self.delay_seconds, SHORTEST_DELAY_SECONDS)
        self.progress = progress
        super().__init__(f"again in {self.delay_seconds:g} s")


class Host(Protocol):
    """Where a context's words go: a run in a slot, or `_PlainHost` outside the engine."""

    @property
    def cancelled(self) -> bool: ...

    def log(self, text: str) -> None: ...

    def progress(self, done: int, total: int) -> None: ...

    def emit(self, kind: str, payload: Any, key: str | None) -> None: ...

    def secret(self, name: str) -> str: ...

    def http(self, name: str, key: str) -> Any: ...

    def limit(self, name: str) -> Any: ...

    @property
    def is_async(self) -> bool: ...

    def ask(self, body: dict[str, Any]) -> Any: ...

    async def ask_async(self, body: dict[str, Any]) -> Any: ...


class Log:
    """`ctx.log("text", order=17)`, or by level: `ctx.log.warning(...)`. Fields are kept as JSON."""

    __slots__ = ("_host",)

    def __init__(self, host: Host) -> None:
        self._host = host

    def __call__(self, message: object, /, **fields: object) -> None:
        self._write("", message, fields)

    def debug(self, message: object, /, **fields: object) -> None:
        self._write("DEBUG ", message, fields)

    def info(self, message: object, /, **fields: object) -> None:
        self._write("", message, fields)

    def warning(self, message: object, /, **fields: object) -> None:
        self._write("WARNING ", message, fields)

    def error(self, message: object, /, **fields: object) -> None:
        self._write("ERROR ", message, fields)

    def _write(self, level: str, message: object, fields: dict[str, object]) -> None:
        extra = f" {json.dumps(fields, default=str, ensure_ascii=False)}" if fields else ""
        self._host.log(f"{level}{message}{extra}\n")


class Context:
    """One try of one vertex of one run, as its task sees it.

    A task may be executed again after a crash between its effect and its record. Pass
    `idempotency_key` to the destination: it is the same in every try of this vertex of this run,
    and differs between vertices, runs and items.
    """

    __slots__ = ("_host", "attempt", "item_key", "pipeline", "run_id", "vertex")

    def __init__(
        self,
        host: Host,
        *,
        run_id: str,
        vertex: str,
        attempt: int = 1,
        item_key: str | None = None,
        pipeline: str = "",
    ) -> None:
        self._host = host
        self.run_id = run_id
        self.vertex = vertex
        self.attempt = attempt
        self.item_key = item_key
        self.pipeline = pipeline

    @classmethod
    def plain(
        cls,
        *,
        run_id: str = "plain",
        vertex: str = "task",
        item_key: str | None = None,
        destinations: Mapping[str, str] | None = None,
    ) -> Context:
        """A context for calling a task without the engine: the log goes to standard error.

        `destinations` are addresses for `ctx.http`, by name; nothing is limited there.
        """
        host = _PlainHost(destinations or {})
        return cls(host, run_id=run_id, vertex=vertex, item_key=item_key)

    @property
    def log(self) -> Log:
        """Lines for this run, at most 1 MB a try: beginning and end are kept."""
        return Log(self._host)

    @property
    def idempotency_key(self) -> str:
        """Names this piece of work, whatever try it is."""
        return f"{self.run_id}:{self.vertex}"

    @property
    def cancelled(self) -> bool:
        """Whether somebody has asked this run to stop. Long loops look here and leave."""
        return self._host.cancelled

    def progress(self, done: int, total: int) -> None:
        """Say how far it is. Call it as often as you like; it is passed on twice a second."""
        self._host.progress(int(done), int(total))

    def emit(self, type: str, payload: Any = None, key: str | None = None) -> None:  # noqa: A002
        """Tell every pipeline that listens (`on=Event("order.*")`), when this step has ended well.

        Of a try that fails nothing is told. A key of one type is told once; without one the event
        is known by run, vertex and its number, so a repeated try tells it once too. At most 1,000
        events and 1 MiB a step.
        """
        self._host.emit(type, payload, key)

    def secret(self, name: str) -> str:
        """The value of a secret that `@task(secrets=[name])` grants, as it was when the try began.

        It is taken out of what this run logs, raises and returns. Do not put it into a file, or
        into what other systems log.
        """
        return self._host.secret(name)

    def http(self, destination: str | Destination) -> Any:
        """An httpx client for a destination: `Client`, in an `async def` task `AsyncClient`.

        Each call takes its turn there; address, secret and time limit are the destination's. A
        call that may change something carries `Idempotency-Key`: `ctx.idempotency_key`, and with a
        number behind it from the second one of a try on. 429 (and 503 with `Retry-After`) holds the
        destination for everybody and is called again; a wait of more than about a second takes
        the task out of its slot, and it begins anew when its turn comes, as with `Later`: what must
        not be repeated stands in a `ctx.checkpoint`.
        """
        return self._host.http(name_of(destination), self.idempotency_key)

    def limit(self, destination: str | Destination) -> Any:
        """`with ctx.limit("crm"):` (in an `async def` task `async with`) takes a turn there and
        keeps its place for the block. A long wait is one as that of `ctx.http`.
        """
        return self._host.limit(name_of(destination))

    def checkpoint(self, name: str, function: Callable[[], Any]) -> Any:
        """Do a part of a long task once: a later try of this vertex gets what it returned before.

        Returns only after the result is stored, as JSON sees it. In an `async def` task it is
        awaited, and `function` may be async too. Not prevented: a crash between the part's effect
        and its record; pass `idempotency_key` on there as well.
        """
        if self._host.is_async:
            return self._checkpoint_async(name, function)
        found = self._host.ask({"op": "checkpoint_get", "name": name})
        if found["found"]:
            return found["value"]
        text = jsonsafe.dumps(function(), what=f'checkpoint "{name}"')
        value = orjson.loads(text)
        self._host.ask({"op": "checkpoint_put", "name": name, "value": value})
        return value

    async def _checkpoint_async(self, name: str, function: Callable[[], Any]) -> Any:
        found = await self._host.ask_async({"op": "checkpoint_get", "name": name})
        if found["found"]:
            return found["value"]
        made = function()
        if inspect.isawaitable(made):
            made = await made
        value = orjson.loads(jsonsafe.dumps(made, what=f'checkpoint "{name}"'))
        await self._host.ask_async({"op": "checkpoint_put", "name": name, "value": value})
        return value

    def artifact(self, name: str, *, binary: bool = False) -> Artifact:
        """A file of this run: `with ctx.artifact("report.csv") as f: f.write(...)`, then `f.ref`.

        It is published when this vertex ends well; of a try that fails nothing is seen. At most
        256 MiB.
        """
        return Artifact(self._host, name, run_id=self.run_id, vertex=self.vertex, binary=binary)


class _PlainHost:
    cancelled = False
    is_async = False

    def __init__(self, destinations: Mapping[str, str]) -> None:
        self._destinations = destinations
        self._checkpoints: dict[str, Any] = {}
        self._told = Told("plain")

    def ask(self, body: dict[str, Any]) -> Any:
        if body["op"] == "checkpoint_put":
            self._checkpoints[body["name"]] = body["value"]
        known = body["name"] in self._checkpoints
        return {"found": known, "value": self._checkpoints.get(body["name"])}

    async def ask_async(self, body: dict[str, Any]) -> Any:
        return self.ask(body)

    def log(self, text: str) -> None:
        sys.stderr.write(text)

    def progress(self, done: int, total: int) -> None:
        pass

    def emit(self, kind: str, payload: Any, key: str | None) -> None:
        self._told.add(kind, payload, key)

    def secret(self, name: str) -> str:
        raise not_granted(name, ())

    def http(self, name: str, key: str) -> Any:  # noqa: ARG002 - nobody tells plain calls apart
        return plain_client(self._destinations, name, is_async=False)

    def limit(self, name: str) -> Any:  # noqa: ARG002 - outside the engine nothing is limited
        return contextlib.nullcontext()


def plain_client(destinations: Mapping[str, Any], name: str, *, is_async: bool) -> Any:
    """What `ctx.http` gives outside the engine: a client for an address, or the one given."""
    if name not in destinations:
        msg = f'this context has no address of the destination "{name}"'
        raise LookupError(msg)
    found = destinations[name]
    if not isinstance(found, str):
        return found
    import httpx2  # not loaded by those who never call

    return (httpx2.AsyncClient if is_async else httpx2.Client)(base_url=found)


def not_granted(name: str, granted: Collection[str]) -> SecretNotGranted:
    """What `ctx.secret` raises for a name that the task's decorator does not hold."""
    near = did_you_mean(name, granted)
    hint = f"{near} " if near else ""
    return SecretNotGranted(
        f'this task was not granted the secret "{name}"',
        detail=f"It was granted {', '.join(sorted(granted)) or 'none'}.",
        hint=f'{hint}Grant it at its function: @task(secrets=["{name}"])',
    )
