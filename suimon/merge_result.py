"""The two inputs of a task that are too large to be values: a merge's result, and a file's rows.

    MergeResult  counts, the first failures, and all children as streams
    Rows         a file's rows as a stream

The streams can be iterated again and again, in `for` and in `async for`; they fetch page after page
and never hold more than one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

PAGE_ROWS = 500
FIRST_FAILURES = 20

Which = Literal["succeeded", "failed"]
Row = Sequence[Any]


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
