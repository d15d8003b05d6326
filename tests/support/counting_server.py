"""An HTTP server that counts: who calls when, how many at once, from which process.

    with CountingServer(takes=0.02) as far:
        ... far.url ...
        far.most_at_once, far.calls

Each call that carries `X-Pid` is known by it. A call ends when its answer is about to be sent or
its connection has gone. It runs in a process of its own, so that a busy test does not slow it; what
it saw is read from its report: one tuple per call, in order of arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

_PID = re.compile(rb"x-pid: *(\d+)", re.IGNORECASE)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Call:
    """One call as the server saw it; instants are of the machine's monotonic clock."""

    began: float
    ended: float
    pid: int
    status: int
    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""


@dataclass(slots=True)
class Plan:
    """How it answers. ``refuses``: every n-th call gets 429 with Retry-After, and so do all others
    until that time has passed; ``ban_after`` calls are allowed, then everybody is banned once, and
    each call during the ban makes it ``ban_grows`` seconds longer.
    """

    takes: float = 0.0
    refuses: int = 0
    retry_after: float = 3.0
    ban_after: int = 0
    ban_grows: float = 0.0
    answer: str = '{"ok": true}'
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: What the n-th call of a path is answered with; the last one again and again.
    script: dict[str, list[str]] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    kind: str = "application/json"
    #: Bodies with this text in them are answered with that status.
    bodies: dict[str, int] = field(default_factory=dict)
    keep_headers: bool = False


class _Server:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.calls: list[Call] = []
        self.banned_until = 0.0
        self.banned = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1])) if length else b""
                if not await self._answer(reader, writer, head, body):
                    break
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, body: bytes
    ) -> bool:
        now = time.monotonic()
        pid = _PID.search(head)
        method, path, _ = head.split(b" ", 2)
        call = Call(now, 0.0, int(pid[1]) if pid else 0, 200, method.decode(), path.decode())
        if self.plan.keep_headers:
            lines = head.decode("latin-1").split("\r\n")[1:]
            call.headers = {
                name.lower(): value.strip()
                for name, _, value in (li.partition(":") for li in lines)
            }
            call.body = body.decode("utf-8", "replace")
        self.calls.append(call)
        more = self._refused(call, now)
        if call.status == 200 and self.plan.takes:
            gone = asyncio.ensure_future(_gone(reader))
            done, _ = await asyncio.wait([gone], timeout=self.plan.takes)
            gone.cancel()
            if done:
                call.ended = time.monotonic()
                return False
        status, text = self.plan.answers.get(call.path, (call.status, self.plan.answer))
        if call.path in self.plan.script:
            told = self.plan.script[call.path]
            before = sum(1 for one in self.calls if one.path == call.path)
            text = told[min(before, len(told)) - 1]
        if call.path in self.plan.statuses and call.status == 200:
            codes = self.plan.statuses[call.path]
            before = sum(1 for one in self.calls if one.path == call.path)
            status = codes[min(before, len(codes)) - 1]
        for piece, bad in self.plan.bodies.items():
            status = bad if piece.encode() in body else status
        call.status = status if call.status == 200 else call.status
        call.ended = time.monotonic()
        raw = text.encode()
        writer.write(
            b"HTTP/1.1 %d X\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n%b"
            % (call.status, self.plan.kind.encode(), len(raw), more, raw)
        )
        await writer.drain()
        return True

    def _refused(self, call: Call, now: float) -> bytes:
        plan, count = self.plan, len(self.calls)
        if now < self.banned_until:
            self.banned_until += plan.ban_grows
            call.status = 429
            return b"Retry-After: %d\r\n" % max(1, round(self.banned_until - now + 0.499))
        due = (plan.refuses and count % plan.refuses == 0) or (
            plan.ban_after and count > plan.ban_after and not self.banned
        )
        if due:
            self.banned = True
            call.status = 429
            self.banned_until = now + (plan.retry_after if plan.ban_after else 0.0)
            return b"Retry-After: %d\r\n" % plan.retry_after
        return b""


async def _gone(reader: asyncio.StreamReader) -> None:
    """Until the other side has closed; it sends nothing before it has its answer."""
    while not reader.at_eof():
        await asyncio.sleep(0.002)


def _run(plan: Plan, pipe: Any) -> None:
    async def main() -> None:
        server = _Server(plan)
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=1000)
        pipe.send(listening.sockets[0].getsockname()[1])
        loop = asyncio.get_running_loop()
        while True:
            await loop.run_in_executor(None, pipe.poll, None)
            asked = pipe.recv()
            if asked == "calls":
                pipe.send([
                    (c.began, c.ended, c.pid, c.status, c.method, c.path, c.headers, c.body)
                    for c in server.calls
                ])  # fmt: skip
            elif asked == "count":
                pipe.send(len(server.calls))
            else:
                break

    with contextlib.suppress(KeyboardInterrupt, EOFError):
        asyncio.run(main())


class CountingServer:
    """See the module."""

    def __init__(self, **plan: Any) -> None:
        self.plan = Plan(**plan)

    def __enter__(self) -> Self:
        self._pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_run, args=(self.plan, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.port = int(self._pipe.recv())
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send("end")
        self._process.join(2)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def count(self) -> int:
        self._pipe.send("count")
        return int(self._pipe.recv())

    def calls(self) -> list[Call]:
        self._pipe.send("calls")
        return [Call(*one) for one in self._pipe.recv()]


# --------------------------------------------------------------------------- what was seen


def most_at_once(
    calls: list[Call], counts: Callable[[Call], bool] = lambda _: True
) -> tuple[int, float]:
    """(how many calls at once at most, when); an answer leaves before the next call comes."""
    edges = [(c.began, 1) for c in calls if counts(c)]
    edges += [(c.ended or c.began + 1e9, -1) for c in calls if counts(c)]
    now = most = 0
    at = 0.0
    for when, step in sorted(edges):
        now += step
        if now > most:
            most, at = now, when
    return most, at


def worst_window(calls: list[Call], rate: float, least: float = 1.0) -> float:
    """The largest of `calls - rate * t` over all windows of `least` seconds and more."""
    starts = sorted(c.began for c in calls)
    worst, best_start = 0.0, float("-inf")
    place = 0
    for i, end in enumerate(starts):
        while place < len(starts) and starts[place] <= end - least:
            # a window that begins with call `place` holds i - place + 1 calls
            best_start = max(best_start, rate * starts[place] - place)
            place += 1
        worst = max(worst, i + 1 - rate * end + best_start)
    short = 0
    for i, end in enumerate(starts):  # windows of exactly `least`
        while starts[short] < end - least:
            short += 1
        worst = max(worst, (i - short + 1) - rate * least)
    return worst


def dump(calls: list[Call]) -> str:
    return json.dumps([(round(c.began, 4), round(c.ended, 4), c.pid, c.status) for c in calls])
