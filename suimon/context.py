"""What a task gets from the engine: `ctx`, and the two inputs that are too large to be values.

    Context      a parameter named `ctx`: log, progress, idempotency key, whether to stop
    MergeResult  what a merge hands on: counts, the first failures, and all children as streams
    Rows         a file's rows as a stream

The streams can be iterated again and again, in `for` and in `async for`; they fetch page after page
and never hold more than one. In tests of your own, call a task as the plain function it is, with
`Context.plain()` and `MergeResult.of(...)`.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import orjson

from suimon.artifact import Artifact
from suimon.core import jsonsafe
from suimon.core.durations import seconds

PAGE_ROWS = 500
FIRST_FAILURES = 20
LONGEST_DELAY_SECONDS = 366 * 86_400

Which = Literal["succeeded", "failed"]
Row = Sequence[Any]


class Later(Exception):  # noqa: N818  (it is no error)
    """Raise it in a task to be called again after `delay`: no slot, no try and no failure is spent.

    `delay` is a duration such as "2m", or seconds. Polling an outside job for hours is this; a
    task's `deadline` bounds it. `progress` is shown with the run.
    """

    def __init__(self, delay: str | float, *, progress: object = None) -> None:
        self.delay_seconds = seconds(delay) if isinstance(delay, str) else float(delay)
        if not 0 <= self.delay_seconds <= LONGEST_DELAY_SECONDS:
            msg = f"Later({delay!r}): a delay is from 0 s to 366 days"
            raise ValueError(msg)
        self.progress = progress
        super().__init__(f"again in {self.delay_seconds:g} s")


class Host(Protocol):
    """Where a context's words go: a run in a slot, or `_PlainHost` outside the engine."""

    @property
    def cancelled(self) -> bool: ...

    def log(self, text: str) -> None: ...

    def progress(self, done: int, total: int) -> None: ...

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
        cls, *, run_id: str = "plain", vertex: str = "task", item_key: str | None = None
    ) -> Context:
        """A context for calling a task without the engine: the log goes to standard error."""
        return cls(_PlainHost(), run_id=run_id, vertex=vertex, item_key=item_key)

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

    def __init__(self) -> None:
        self._checkpoints: dict[str, Any] = {}

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


# --------------------------------------------------------------------------- merge results


@dataclass(frozen=True, slots=True)
class Counts:
    """How the children ended. Also a mapping: `{**outcome.counts}`."""

    total: int = 0
    succeeded: int = 0
    failed: int = 0
    timed_out: int = 0
    cancelled: int = 0

    def keys(self) -> tuple[str, ...]:
        return ("total", "succeeded", "failed", "timed_out", "cancelled")

    def __getitem__(self, name: str) -> int:
        if name not in self.keys():
            raise KeyError(name)
        number: int = getattr(self, name)
        return number

    @classmethod
    def of(cls, given: dict[str, int]) -> Counts:
        """From JSON; names that this version does not know are left out."""
        return cls(**{name: given.get(name, 0) for name in cls().keys()})  # noqa: SIM118


@dataclass(frozen=True, slots=True)
class ChildError:
    """Why a child did not succeed."""

    type: str
    message: str
    step: str | None = None


@dataclass(frozen=True, slots=True)
class Child:
    """One child of a fan-out: what came out of which item."""

    position: int
    key: str | None
    state: str
    value: Any
    error: ChildError | None
    run_id: str

    @classmethod
    def of_row(cls, row: Row) -> Child:
        """From (position, key, state, value, error, run_id)."""
        position, key, state, value, error, run_id = row
        return cls(position, key, state, value, _child_error(error), run_id)

    def to_json(self) -> dict[str, Any]:
        error = self.error
        return {
            "position": self.position,
            "key": self.key,
            "state": self.state,
            "error": None
            if error is None
            else {"type": error.type, "message": error.message, "step": error.step},
            "run_id": self.run_id,
        }


class Pages(Protocol):
    """At most `PAGE_ROWS` rows after a position (-1: from the first), by waiting or awaiting."""

    def fetch(self, which: Which, after: int) -> list[Row]: ...

    def fetch_async(self, which: Which, after: int) -> Awaitable[list[Row]]: ...


class Children:
    """The children of one kind in item order; each iteration reads anew, a page at a time."""

    __slots__ = ("_count", "_pages", "_which")

    def __init__(self, pages: Pages, which: Which, count: int) -> None:
        self._pages = pages
        self._which: Which = which
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Child]:
        after = -1
        while page := self._pages.fetch(self._which, after):
            for row in page:
                yield Child.of_row(row)
            after = self._advance(after, page)

    async def __aiter__(self) -> AsyncIterator[Child]:
        after = -1
        while page := await self._pages.fetch_async(self._which, after):
            for row in page:
                yield Child.of_row(row)
            after = self._advance(after, page)

    @staticmethod
    def _advance(after: int, page: list[Row]) -> int:
        last = int(page[-1][0])
        if last <= after:
            msg = f"the page after position {after} ends at {last}"
            raise RuntimeError(msg)
        return last


class MergeResult:
    """What a fan-out came to. `failed` holds all that did not succeed, in whatever way."""

    __slots__ = ("counts", "failed", "first_failures", "succeeded")

    def __init__(self, counts: Counts, first_failures: Sequence[Child], pages: Pages) -> None:
        self.counts = counts
        self.first_failures = tuple(first_failures[:FIRST_FAILURES])
        self.succeeded = Children(pages, "succeeded", counts.succeeded)
        self.failed = Children(pages, "failed", counts.total - counts.succeeded)

    @classmethod
    def of(cls, children: Iterable[Child]) -> MergeResult:
        """From a list held in memory, for tests of tasks that take a merge."""
        listed = sorted(children, key=lambda child: child.position)
        states = [child.state for child in listed]
        counts = {name: states.count(name) for name in Counts().keys()}  # noqa: SIM118
        bad = [child for child in listed if child.state != "succeeded"]
        return cls(Counts.of({**counts, "total": len(listed)}), bad, _ListedPages(listed))

    def to_json(self) -> dict[str, Any]:
        """What is stored when a task returns it: counts and first failures, not the streams."""
        return {
            "counts": dict(self.counts),
            "first_failures": [child.to_json() for child in self.first_failures],
        }

    def model_dump(self, **_: object) -> dict[str, Any]:
        """The same; the name under which JSON encoders look for it."""
        return self.to_json()

    def __repr__(self) -> str:
        return f"MergeResult({self.counts.succeeded} of {self.counts.total} succeeded)"


class _ListedPages:
    def __init__(self, listed: list[Child]) -> None:
        self._listed = listed

    def fetch(self, which: Which, after: int) -> list[Row]:
        wanted = [
            (c.position, c.key, c.state, c.value, c.error, c.run_id)
            for c in self._listed
            if c.position > after and (c.state == "succeeded") == (which == "succeeded")
        ]
        return wanted[:PAGE_ROWS]  # type: ignore[return-value]

    async def fetch_async(self, which: Which, after: int) -> list[Row]:
        return self.fetch(which, after)


class Rows:
    """The rows of a file that a READ names, read anew by each iteration, a row at a time."""

    __slots__ = ("_open", "path")

    def __init__(self, path: str, opener: Callable[[], Iterator[Any]]) -> None:
        self.path = path
        self._open = opener

    def __iter__(self) -> Iterator[Any]:
        return self._open()

    async def __aiter__(self) -> AsyncIterator[Any]:
        for row in self._open():
            yield row

    def __repr__(self) -> str:
        return f"Rows({self.path!r})"


def _child_error(given: Any) -> ChildError | None:
    if given is None or isinstance(given, ChildError):
        return given
    return ChildError(
        type=str(given.get("type", "")),
        message=str(given.get("message", "")),
        step=given.get("step"),
    )
