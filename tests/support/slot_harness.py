"""A slot process driven over its pipes, as the worker does it, but one question at a time."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import orjson

from suimon.worker import wire

PATIENCE_SECONDS = 20.0


class SlotHarness:
    """Starts a slot on a folder of user code, and reads its lines."""

    def __init__(self, root: Path, *, async_slots: int = 1, env: dict[str, str] | None = None):
        to_read, self.to_fd = os.pipe()
        self.from_fd, from_write = os.pipe()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-m",
                "suimon.worker.slot",
                "--in",
                str(to_read),
                "--out",
                str(from_write),
            ],
            pass_fds=(to_read, from_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **(env or {})},
        )
        os.close(to_read)
        os.close(from_write)
        self.buffer = wire.LineBuffer()
        self.lines: list[list[bytes]] = []
        self.token = 0
        self.program = 0
        self.send(wire.init(str(root), async_slots=async_slots))
        self.hello = orjson.loads(self.expect(b"H")[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (self.to_fd, self.from_fd):
            with contextlib.suppress(OSError):
                os.close(fd)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()

    def send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.to_fd, data) :]

    def task(self, name: str, **more: Any) -> int:
        """Make a task's program; its number."""
        self.program += 1
        body = {"n": self.program, "kind": "task", "task": name, "vertex": "v", "item": False}
        self.send(wire.program({**body, **more}))
        return self.program

    def spawner(self, source: dict[str, Any], **more: Any) -> int:
        self.program += 1
        body = {"n": self.program, "kind": "spawn", "vertex": "v", "source": source, "key": None}
        self.send(wire.program({**body, **more}))
        return self.program

    def begin(self, program: int, *inputs: Any, key: str | None = None) -> list[int]:
        """Send runs; their tokens."""
        first = self.token + 1
        self.token += len(inputs)
        tokens = list(range(first, self.token + 1))
        entries = [
            (token, given, [f"run-{token}", 1, key, "p"])
            for token, given in zip(tokens, inputs, strict=True)
        ]
        self.send(wire.runs(program, entries))
        return tokens

    def next_line(self, patience: float = PATIENCE_SECONDS) -> list[bytes]:
        """The fields of the next line that has not been looked at."""
        end = time.monotonic() + patience
        while not self.lines:
            left = end - time.monotonic()
            assert left > 0, "the slot said nothing"
            if select.select([self.from_fd], [], [], left)[0]:
                data = os.read(self.from_fd, 1 << 20)
                if not data:
                    raise EOFError(self.stderr())
                self.lines += map(wire.split, self.buffer.feed(data))
        return self.lines.pop(0)

    def expect(self, letter: bytes) -> list[bytes]:
        line = self.next_line()
        assert line[0] == letter, line
        return line

    def result(self, token: int) -> tuple[str, Any, list[list[bytes]]]:
        """(letter, decoded value, the lines before it) of a run."""
        before: list[list[bytes]] = []
        while True:
            line = self.next_line()
            if line[0] in (b"S", b"F", b"E") and int(line[1]) == token:
                return line[0].decode(), orjson.loads(line[-1]), before
            before.append(line)

    def run(self, program: int, given: Any, **more: Any) -> Any:
        """One run to its success; its value."""
        (token,) = self.begin(program, given, **more)
        letter, value, _ = self.result(token)
        assert letter == "S", value
        return value

    def fail(self, program: int, given: Any) -> dict[str, Any]:
        """One run to its failure; the error."""
        (token,) = self.begin(program, given)
        letter, value, _ = self.result(token)
        assert letter == "F", value
        error: dict[str, Any] = value
        return error

    def finish(self) -> int:
        """Ask it to leave; its exit code."""
        self.send(wire.FINISH)
        return self.process.wait(PATIENCE_SECONDS)

    def stderr(self) -> str:
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        return (self.process.stderr.read() or b"").decode(errors="replace")


def log_text(lines: list[list[bytes]], stream: str) -> str:
    """What a run's `L` lines of one stream say together."""
    return "".join(
        orjson.loads(line[3]) for line in lines if line[0] == b"L" and line[2] == stream.encode()
    )


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


def wait_for(path: Path | str) -> None:
    end = time.monotonic() + 10
    while not Path(path).exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.005)


def gone(pid: int) -> bool:
    end = time.monotonic() + 5
    while alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
