"""One program, and one run of it: the values the slot's parts share.

A `Program` is a vertex of a graph made ready: its function found, its parameters known. A `Run` is
one try under one token; the reader makes it, the main thread or the loop executes it.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import orjson

from suimon import errors
from suimon.context import (
    Child,
    Context,
    Counts,
    MergeResult,
    Row,
    Rows,
    Which,
    not_granted,
)
from suimon.core import clock, jsonsafe
from suimon.core.events import Told
from suimon.core.redact import Redactor
from suimon.worker import slot_code, wire
from suimon.worker.slot_logs import RunLog

PROGRESS_SECONDS = 0.5
# How often a wait of user code for the worker looks whether the run has been cancelled meanwhile.
WAIT_SECONDS = 0.25

# The run whose code is executing; empty in the main thread's plain runs and in users' threads.
CURRENT: ContextVar[Run | None] = ContextVar("suimon_run", default=None)


class Desk:
    """What a run needs of its slot: a way out, a place for its questions, and the secrets."""

    #: What this process holds, by name, and what takes it out of all that leaves it.
    secrets: dict[str, str]
    hidden: Redactor
    #: Destinations that nobody may call, and until when (monotonic).
    holds: dict[str, float]
    #: What `ctx.http` keeps: connections (`slot_http.Clients`), made when first asked for.
    clients: Any = None

    def write(self, line: bytes) -> None:
        raise NotImplementedError

    def ask(self, run: Run, body: dict[str, Any]) -> queue.SimpleQueue[dict[str, Any]]:
        raise NotImplementedError


class Program:
    """A vertex made ready to run. Made by the reader, prepared by the main thread at first use."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.definition = definition
        self.number: int = definition["n"]
        self.kind: str = definition["kind"]
        self.vertex: str = definition["vertex"]
        self.item: bool = bool(definition.get("item"))
        self.shared: dict[str, Any] = definition.get("shared") or {}
        self.specials: list[tuple[list[Any], str]] = [
            (path, what) for path, what in definition.get("specials") or ()
        ]
        self.timeout: float | None = definition.get("timeout")
        self.source: dict[str, Any] = definition.get("source") or {}
        self.secrets: frozenset[str] = frozenset(definition.get("secrets") or ())
        self.ignorable: frozenset[str] = frozenset(definition.get("ignorable") or ())
        self.destination: str | None = definition.get("destination")
        self.ready = False
        self.is_async = False
        self.wants_context = False
        self.function: Callable[..., Any] | None = None
        self.binding: Any = None

    def prepare(self) -> None:
        """Find the function and its parameters. Raises what the user's module raises."""
        name = self.definition.get("task") or self.source.get("task")
        if self.kind == "http":
            from suimon.worker import slot_vertex

            self.function = slot_vertex.call
        elif self.kind == "sql":
            from suimon.worker import slot_vertex

            self.function = slot_vertex.select
        elif name is not None:
            self.function = slot_code.resolve(name)
            self.binding = slot_code.bind(self.function)
            self.wants_context = slot_code.wants_context(self.function)
            self.is_async = self.kind == "task" and inspect.iscoroutinefunction(self.function)
        self.ready = True


class Run:
    """One try. Also the `Host` of its context and the `Pages` of its merge results."""

    __slots__ = ("acks", "attempt", "begun", "calls", "cancelled", "desk", "given", "holding",
                 "item_key", "journal", "pending_progress", "pids", "pipeline", "program",
                 "progress_at", "run_id", "task", "tasks", "token", "told", "turn")  # fmt: skip

    def __init__(self, desk: Desk, program: Program, token: int, given: Any, meta: list[Any]):
        self.desk = desk
        self.program = program
        self.token = token
        self.given = given
        self.run_id, self.attempt, self.item_key, self.pipeline = meta[:4]
        #: At the destination of its task: (turn, not before, not after, facts), from the worker.
        self.turn: list[Any] | None = meta[4] if len(meta) > 4 else None
        self.holding: dict[str, Any] | None = None  # places it keeps (`slot_turns`)
        self.calls = 0  # calls of `ctx.http` that may change something
        self.cancelled = False
        self.begun = False
        self.journal: RunLog | None = None
        self.task: asyncio.Task[None] | None = None
        self.tasks: set[asyncio.Task[Any]] | None = None
        self.acks: queue.SimpleQueue[tuple[int, str]] | None = None
        self.pids: list[int] | None = None
        self.progress_at = 0.0
        self.pending_progress: tuple[int, int] | None = None
        self.told: Told | None = None

    # ------------------------------------------------------------------ arguments

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call the function with; raises InputRefused with the field's path."""
        program = self.program
        if program.kind in ("http", "sql"):
            return (self, self.given), {}
        if program.item:
            shared = program.shared
            if program.specials:
                shared = self._with_specials(shared)
            args, kwargs = program.binding.call_item(self.given, shared)
        else:
            given = self._with_specials(self.given) if program.specials else self.given
            args, kwargs = program.binding.call_args(given, program.ignorable)
        if program.wants_context:
            kwargs["ctx"] = self.context()
        return args, kwargs

    def context(self) -> Context:
        return Context(
            self,
            run_id=self.run_id,
            vertex=self.program.vertex,
            attempt=self.attempt,
            item_key=self.item_key,
            pipeline=self.pipeline,
        )

    def _with_specials(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs with merges and files as objects, at the paths the program names."""
        inputs = dict(inputs)
        for path, what in self.program.specials:
            *way, last = path
            place: Any = inputs
            for part in way:
                place[part] = place[part].copy()
                place = place[part]
            place[last] = self._special(what, place[last])
        return inputs

    def _special(self, what: str, given: dict[str, Any]) -> MergeResult | Rows:
        if what == "merge":
            first = [
                Child(
                    position=each["position"],
                    key=each.get("key"),
                    state=each["state"],
                    value=None,
                    error=Child.of_row((0, None, "", None, each.get("error"), "")).error,
                    run_id=each.get("run_id", ""),
                )
                for each in given.get("first_failures") or ()
            ]
            pages = FanoutPages(self, given["fanout"])
            return MergeResult(Counts.of(given["counts"]), first, pages)
        path = given["path"]
        return Rows(path, lambda: slot_code.open_source(path, given, self.ask))

    # ------------------------------------------------------------------ Host

    def log(self, text: str) -> None:
        self.printed().write("log", text)

    def printed(self) -> RunLog:
        """The log, made when something is first written to it."""
        if self.journal is None:
            self.journal = RunLog(self.token, self.desk.write, self.desk.hidden)
        return self.journal

    def progress(self, done: int, total: int) -> None:
        now = clock.monotonic()
        if now - self.progress_at < PROGRESS_SECONDS:
            self.pending_progress = (done, total)
            return
        self.progress_at = now
        self.pending_progress = None
        self.desk.write(wire.progress(self.token, done, total))

    def emit(self, kind: str, payload: Any, key: str | None) -> None:
        """Kept until the try has ended well; a thread of the user's may tell too."""
        if self.told is None:
            self.told = Told(f"{self.run_id}:{self.program.vertex}")
        hidden = self.desk.hidden
        if hidden:
            payload = orjson.loads(hidden.json(jsonsafe.dumps(payload, what="payload")))
            key = hidden.text(key) if isinstance(key, str) else key
        self.told.add(kind, payload, key)

    @property
    def is_async(self) -> bool:
        return self.program.is_async

    def secret(self, name: str) -> str:
        granted = self.program.secrets
        if name not in granted:
            raise not_granted(name, granted)
        return self.desk.secrets[name]

    def tell(self, body: dict[str, Any]) -> None:
        """What the worker need not answer."""
        self.desk.write(wire.question(self.token, {"q": 0, **body}))

    def http(self, name: str, key: str) -> Any:
        from suimon.worker import slot_http  # its libraries take a tenth of a second

        if self.desk.clients is None:
            self.desk.clients = slot_http.Clients()
        return self.desk.clients.client(self, name, key)

    def limit(self, name: str) -> Any:
        from suimon.worker import slot_turns

        return slot_turns.LimitBlock(self, name)

    def ask(self, body: dict[str, Any]) -> Any:
        """Ask the worker and wait for its answer; a cancel ends the wait."""
        body = self._without_secrets(body)
        reply = self.desk.ask(self, body)
        while True:
            try:
                return _answer(reply.get(timeout=WAIT_SECONDS))
            except queue.Empty:
                if self.cancelled:
                    msg = "the run was cancelled"
                    raise errors.Cancelled(msg) from None

    async def ask_async(self, body: dict[str, Any]) -> Any:
        body = self._without_secrets(body)
        reply = self.desk.ask(self, body)
        # The answer usually is there within a millisecond; a longer one is not worth a thread.
        pause = 0.001
        while True:
            try:
                return _answer(reply.get_nowait())
            except queue.Empty:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.05)

    def _without_secrets(self, body: dict[str, Any]) -> dict[str, Any]:
        """What is asked may be stored. A checkpoint is read back, so it is refused, not changed."""
        if not self.desk.hidden or body["op"] == "artifact_part":
            return body
        cleaned: dict[str, Any] = self.desk.hidden.value(body)
        if body["op"] == "checkpoint_put" and cleaned != body:
            msg = "a checkpoint may not hold a secret"
            raise errors.Fatal(msg, hint="Read it anew in each try: ctx.secret(name)")
        return cleaned

    def settle(self) -> None:
        """Nothing of this run may come after its result: send what is held back."""
        if self.pending_progress is not None:
            self.desk.write(wire.progress(self.token, *self.pending_progress))
            self.pending_progress = None
        if self.journal is not None:
            self.journal.finish()

    def tick(self) -> None:
        """Called by the reader a few times a second while the run lives."""
        journal, pending = self.journal, self.pending_progress
        if journal is not None:
            journal.flush()
        if pending is not None:
            self.progress(*pending)


class FanoutPages:
    """The `Pages` of one fan-out: each page is a question to the worker."""

    def __init__(self, run: Run, fanout: str) -> None:
        self._run = run
        self._fanout = fanout

    def fetch(self, which: Which, after: int) -> list[Row]:
        rows: list[Row] = self._run.ask(self._body(which, after))
        return rows

    async def fetch_async(self, which: Which, after: int) -> list[Row]:
        rows: list[Row] = await self._run.ask_async(self._body(which, after))
        return rows

    def _body(self, which: Which, after: int) -> dict[str, Any]:
        return {
            "op": "children",
            "fanout": self._fanout,
            "after": after,
            "which": which,
            "limit": wire.PAGE_ROWS,
        }


def _answer(reply: dict[str, Any]) -> Any:
    if "err" in reply:
        problem = reply["err"]
        msg = f"the worker refused: {problem.get('message')}"
        raise RuntimeError(msg)
    return reply["ok"]
