"""The test kit for those who use Suimon: tasks as plain functions, and whole runs on a real engine.

    from suimon.testing import Context, MergeResult, engine

    assert price(order, ctx=Context()) == {...}             # no engine, no database

    with engine("pipelines/") as e:                         # PostgreSQL, a worker, your code
        done = e.run("import-orders", {"path": "orders.csv"})
        assert done.status == "succeeded", done.error

`suimon_engine` is the same as a pytest fixture; pytest is imported only if you ask for it. See
docs/testing.md. Nothing of the engine imports this module.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from suimon import context
from suimon.context import Child, ChildError, MergeResult
from suimon.core.events import Told

if TYPE_CHECKING:
    from suimon.testing_engine import Engine, Result

__all__ = [
    "Child",
    "ChildError",
    "Context",
    "Engine",
    "MergeResult",
    "Result",
    "engine",
    "suimon_engine",  # noqa: F822  (made by __getattr__ when it is asked for)
]


class Context(context.Context):
    """For plain calls: keeps what is logged and published, and is `cancelled` when you say so.

    `is_async=True` is for `async def` tasks, whose checkpoints are awaited. `secrets` are what
    `ctx.secret` gives, `destinations` the addresses (or clients) of `ctx.http`, by name.
    """

    __slots__ = ("_plain",)

    def __init__(
        self,
        *,
        run_id: str = "plain",
        vertex: str = "task",
        attempt: int = 1,
        item_key: str | None = None,
        pipeline: str = "",
        is_async: bool = False,
        secrets: Mapping[str, str] | None = None,
        destinations: Mapping[str, Any] | None = None,
    ) -> None:
        self._plain = _Host(
            is_async=is_async, secrets=secrets or {}, destinations=destinations or {}
        )
        super().__init__(
            self._plain,
            run_id=run_id,
            vertex=vertex,
            attempt=attempt,
            item_key=item_key,
            pipeline=pipeline,
        )

    @property
    def log_lines(self) -> list[str]:
        """What was logged, line by line, as it would be stored."""
        return "".join(self._plain.texts).splitlines()

    @property
    def progress_calls(self) -> list[tuple[int, int]]:
        """Every (done, total) that was told."""
        return self._plain.told

    @property
    def checkpoints(self) -> dict[str, Any]:
        """What `ctx.checkpoint` has stored. Fill it to test a later try."""
        return self._plain.checkpoints

    @property
    def emitted(self) -> list[tuple[str, Any]]:
        """(type, payload) of every event that was told, as its listeners would get it."""
        return [(kind, orjson.loads(text)) for kind, text, _ in self._plain.events.events]

    @property
    def cancelled(self) -> bool:
        """Set it to see whether a loop leaves."""
        return self._plain.cancelled

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        self._plain.cancelled = value

    def artifact_bytes(self, name: str) -> bytes:
        """What was written to `ctx.artifact(name)`; KeyError if nothing was."""
        return self._plain.artifacts[name]


class _Host:
    """Where the context's words go: into lists."""

    def __init__(
        self, *, is_async: bool, secrets: Mapping[str, str], destinations: Mapping[str, Any]
    ) -> None:
        self.destinations = destinations
        self.is_async = is_async
        self.secrets = dict(secrets)
        self.cancelled = False
        self.texts: list[str] = []
        self.told: list[tuple[int, int]] = []
        self.checkpoints: dict[str, Any] = {}
        self.artifacts: dict[str, bytes] = {}
        self.events = Told("plain:task")

    def log(self, text: str) -> None:
        self.texts.append(text)

    def progress(self, done: int, total: int) -> None:
        self.told.append((done, total))

    def emit(self, kind: str, payload: Any, key: str | None) -> None:
        self.events.add(kind, payload, key)

    def secret(self, name: str) -> str:
        if name not in self.secrets:
            raise context.not_granted(name, self.secrets)
        return self.secrets[name]

    def http(self, name: str, key: str) -> Any:  # noqa: ARG002 - nobody tells plain calls apart
        return context.plain_client(self.destinations, name, is_async=self.is_async)

    def limit(self, name: str) -> Any:  # noqa: ARG002 - nothing is limited here
        return contextlib.nullcontext()

    def ask(self, body: dict[str, Any]) -> Any:
        name = body["name"]
        if body["op"] == "artifact_part":
            import base64

            before = self.artifacts.get(name, b"") if body["part"] else b""
            self.artifacts[name] = before + base64.b64decode(body["data"])
            return None
        if body["op"] == "checkpoint_put":
            self.checkpoints[name] = body["value"]
        return {"found": name in self.checkpoints, "value": self.checkpoints.get(name)}

    async def ask_async(self, body: dict[str, Any]) -> Any:
        return self.ask(body)


def engine(path: str | os.PathLike[str], **options: Any) -> Engine:
    """An engine on the code below PATH, for a `with` block; options as `Engine` has them."""
    from suimon.testing_engine import Engine

    return Engine(path, **options)


def _fixture() -> Any:
    import pytest

    @pytest.fixture
    def suimon_engine() -> Iterator[Callable[..., Engine]]:
        """A function: `suimon_engine(PATH)` gives an engine that ends with the test."""
        with contextlib.ExitStack() as life:
            yield lambda path, **options: life.enter_context(engine(path, **options))

    return suimon_engine


def __getattr__(name: str) -> Any:
    if name == "suimon_engine":
        found = globals()[name] = _fixture()
        return found
    if name in ("Engine", "Result"):
        from suimon import testing_engine

        return getattr(testing_engine, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
