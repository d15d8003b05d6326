"""A spawner's list, read as a stream and sent in chunks.

Memory is flat for any number of items: one chunk is being filled (at most 1,000 items or 1 MiB),
at most two are sent and not yet acknowledged. Each item goes as canonical JSON with its hash, which
is what lets a re-read list be compared with the first one. When the source fails, what came before
is sent first, so that the children up to the position reached exist.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from suimon import errors
from suimon.core import jsonsafe
from suimon.worker import slot_code, wire
from suimon.worker.slot_end import describe
from suimon.worker.slot_run import WAIT_SECONDS, Run

KEY_CHARS = 1000

Next = Callable[[Iterator[Any]], Any]


class ItemRefusedError(Exception):
    """An item of the list cannot become a child."""


class Chunks:
    """The chunk being filled, and what the worker has acknowledged of those sent."""

    def __init__(self, run: Run) -> None:
        definition = run.program.definition
        self.run = run
        key = definition.get("key")
        self.path: list[str] | None = key.split(".") if key else None
        self.objects = definition.get("item_shape") == "object"
        self.max_items: int | None = definition.get("max_items")
        #: How many items the whole list has, where a quota wants to know and it can be known.
        self.length: int | None = None
        self.chunk_items = min(definition.get("chunk") or wire.CHUNK_ITEMS, wire.CHUNK_ITEMS)
        self.total = 0
        self.stopped = False
        #: Bytes of a list's large items are asked for with its first chunk, where marks are set.
        self.whole = _size_of(run) if definition.get("watched") else None
        self._seq = 0
        self._unacknowledged = 0
        self._clear()

    def add(self, item: Any) -> None:
        """Take one item; sends when the chunk is full, and waits while two are on their way."""
        text = jsonsafe.dumps(item, what=f"item {self.total}", limit=wire.RESULT_LIMIT_BYTES)
        if self.run.desk.hidden:
            text = self.run.desk.hidden.json(text)
            item = None  # its key is read from the text
        if self.max_items is not None and self.total >= self.max_items:
            msg = f"the list has more than max_items={self.max_items} items"
            raise ItemRefusedError(msg)
        if self.objects and text[:1] != b"{":
            msg = f"item {self.total} is {type(item).__name__}; a pipeline's item must be an object"
            raise ItemRefusedError(msg)
        if self.path is not None:
            self._keys.append(self._key(item, text))
        self._items.append(text)
        self._hashes.append(jsonsafe.content_hash(text))
        self._bytes += len(text)
        self.total += 1
        if len(self._items) >= self.chunk_items or self._bytes >= wire.CHUNK_BYTES:
            self.send()

    def send(self, *, ended: bool = False) -> None:
        """Send what has been gathered, if anything, when fewer than two chunks are on their way."""
        if not self._items or self.stopped:
            return
        while self._unacknowledged >= wire.CHUNKS_UNACKNOWLEDGED:
            if self._listen(WAIT_SECONDS):
                return
        first = self.total - len(self._items)
        self.run.desk.write(
            wire.chunk_line(
                self.run.token,
                seq=self._seq,
                first=first,
                keys=self._keys if self.path is not None else None,
                hashes=self._hashes,
                items=self._items,
                total=self.length if self._seq == 0 else None,
                ahead=self._ahead(ended=ended) if first == 0 else None,
            )
        )
        self._seq += 1
        self._unacknowledged += 1
        self._clear()
        self._listen(0)

    def settle(self) -> None:
        """Send the rest and wait until all is acknowledged: the end of a list comes after it."""
        self.send(ended=True)
        while self._unacknowledged:
            self._listen(WAIT_SECONDS)

    def _listen(self, seconds: float) -> bool:
        """Take acknowledgements; True for "stop". A cancelled run is told here, too."""
        if self.run.cancelled:
            msg = "the run was cancelled"
            raise errors.Cancelled(msg)
        acks = self.run.acks
        assert acks is not None
        try:
            while True:
                _, state = acks.get(timeout=seconds) if seconds else acks.get_nowait()
                seconds = 0
                self._unacknowledged -= 1
                self.stopped = self.stopped or state == "stop"
        except queue.Empty:
            return self.stopped

    def _ahead(self, *, ended: bool) -> int | None:
        """What all large items of the list take: exact for a list and for one chunk that is all;
        for a file, its size times their share of the first chunk; None: nobody knows.
        """
        if self.whole is None:
            return None
        large = sum(len(text) for text in self._items if len(text) > wire.LARGE_BYTES)
        if ended:
            return large
        is_list, size = self.whole
        return size if is_list else max(large, size * large // max(self._bytes, 1))

    def _key(self, item: Any, text: bytes) -> str:
        value = item if isinstance(item, dict) else orjson.loads(text)
        assert self.path is not None
        for part in self.path:
            if not isinstance(value, dict) or part not in value:
                msg = f'item {self.total} has no field "{".".join(self.path)}", which is its key'
                raise ItemRefusedError(msg)
            value = value[part]
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            kind = "empty" if value == "" else f"a {type(value).__name__}"
            msg = f"the key of item {self.total} is {kind}; it must be text or a whole number"
            raise ItemRefusedError(msg)
        key = str(value)
        if len(key) > KEY_CHARS:
            msg = f"the key of item {self.total} is longer than {KEY_CHARS} characters"
            raise ItemRefusedError(msg)
        return key

    def _clear(self) -> None:
        self._items: list[bytes] = []
        self._hashes: list[int] = []
        self._keys: list[str] = []
        self._bytes = 0


def spawn(run: Run, call: Callable[..., Any], step: Next) -> bytes:
    """Read the list to its end or to a "stop"; the `E` or `F` line. `call` and `step` enter user
    code on the slot's behalf, so that a cancel can reach it there.
    """
    chunks = Chunks(run)
    iterator: Iterator[Any] | None = None
    binding = False
    try:
        binding = True
        if run.program.definition.get("counted"):
            chunks.length = length(run, call, chunks.max_items)
        opened = source(run, call)
        binding = False
        iterator = opened
        while not chunks.stopped:
            try:
                item = step(iterator)
            except StopIteration:
                break
            chunks.add(item)
        chunks.settle()
        return wire.ended(run.token, chunks.total, stopped=chunks.stopped)
    except BaseException as error:  # noqa: BLE001 - user code; every end must be told
        return _failed(run, chunks, error, binding=binding)
    finally:
        _close(iterator)


def length(run: Run, call: Callable[..., Any], most: int | None) -> int | None:
    """How many children the list will have, by reading a file once before it is spawned from; None
    for a generator, which cannot be read twice.
    """
    kind = run.program.source.get("kind")
    if kind == "list":
        found = len(run.given["items"])
    elif kind == "read":
        opened = source(run, call)
        try:
            found = sum(1 for _ in itertools.islice(opened, most))
        finally:
            _close(opened)
    else:
        return None
    return found if most is None else min(found, most)


def _size_of(run: Run) -> tuple[bool, int] | None:
    """(True, bytes of a list's large items), (False, bytes of a file), or None."""
    kind = run.program.source.get("kind")
    try:
        if kind == "list":
            sizes = (len(orjson.dumps(item)) for item in run.given["items"])
            return True, sum(size for size in sizes if size > wire.LARGE_BYTES)
        path = _path_of(run)
        if kind == "read" and isinstance(path, str):
            return False, Path(path).stat().st_size
    except (OSError, TypeError, ValueError):
        return None  # what is wrong with it is told when it is read
    return None


def _path_of(run: Run) -> Any:
    given = run.given if isinstance(run.given, dict) else {}
    return (given.get("inputs") or {}).get("path") or run.program.source.get("path")


def source(run: Run, call: Callable[..., Any]) -> Iterator[Any]:
    """The program's list as an iterator."""
    program = run.program
    kind = program.source.get("kind")
    if kind == "list":
        return iter(run.given["items"])
    if kind == "read":
        path = _path_of(run)
        if not isinstance(path, str):
            msg = f"the path of the file to read is {path!r}; it must be text"
            raise errors.InputRefused(msg, path="path")
        return slot_code.open_source(path, program.source, run.ask)
    run.given = run.given.get("inputs", {})
    args, kwargs = run.arguments()
    assert program.function is not None
    made = call(program.function, args, kwargs)
    if hasattr(made, "__aiter__"):
        return _drive(aiter(made))
    return iter(made)


def _drive(items: AsyncIterator[Any]) -> Iterator[Any]:
    """An async generator, driven from the main thread by a loop of its own."""
    with asyncio.Runner() as runner:
        try:
            while True:
                try:
                    yield runner.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                runner.run(_await(close))


async def _next(items: AsyncIterator[Any]) -> Any:
    return await anext(items)


async def _await(close: Callable[[], Any]) -> None:
    await close()


def _failed(run: Run, chunks: Chunks, error: BaseException, *, binding: bool) -> bytes:
    position = chunks.total
    try:
        chunks.settle()
    except errors.Cancelled as cancelled:
        error = cancelled
    body = describe(run, error, binding=binding) | {"position": position}
    if isinstance(
        error, ItemRefusedError | errors.InvalidJson | errors.FileRefused | errors.FileChanged
    ):
        body["kind"] = "items"
        body.pop("traceback", None)
    return wire.failure(run.token, 0, body)


def _close(iterator: Any) -> None:
    """Let a generator run its `finally` blocks now; what they raise changes nothing any more."""
    close = getattr(iterator, "close", None)
    if close is not None:
        try:
            close()
        except BaseException:  # noqa: BLE001 - the run's end has been decided
            return
