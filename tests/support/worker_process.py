"""One worker of a test: a process with guardian, slots and log, and what is done to it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from suimon.worker import processes
from support.slot_harness import alive
from support.wait import wait_until

#: How long a test waits for anything; a bound, never a pause.
PATIENCE_SECONDS = 40.0


class WorkerProcess:
    """One worker: its process, its guardian, its slots, its log."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        stdin: str = "",
        env: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log_file = log
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                env=env,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(stdin.encode())
        self.process.stdin.close()
        self.pid = self.process.pid

    # ------------------------------------------------------------------ what it is

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def guardian(self) -> int:
        """The pid of its guardian."""

        def look() -> int | None:
            found = [p for p in processes.children(self.pid) if "guardian" in command_line(p)]
            return found[0] if found else None

        return int(wait_until(look, PATIENCE_SECONDS, f"a guardian of {self.name}") or 0)

    def slots(self) -> list[int]:
        """The pids of its slots that live now, in order of their start."""
        found: list[int] = []
        for guardian in processes.children(self.pid):
            for pid in processes.children(guardian):
                found += [pid] if "worker.slot" in command_line(pid) and alive(pid) else []
        return sorted(found)

    # ------------------------------------------------------------------ what is done to it

    def kill9(self) -> None:
        self.process.kill()
        self.process.wait()

    def term(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def freeze(self, *, tree: bool) -> list[int]:
        """SIGSTOP for the worker, or for it and all below it; gives back what was stopped."""
        pids = [self.pid, *(processes.descendants(self.pid) if tree else [])]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return pids

    @staticmethod
    def thaw(pids: Sequence[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def wait(self, patience: float = PATIENCE_SECONDS) -> int:
        """Its exit code."""
        wait_until(lambda: not self.running, patience, f"{self.name} ended:\n{self.tail()}")
        return self.process.wait()

    def tail(self) -> str:
        return "\n".join(self.log.splitlines()[-40:])


def command_line(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""


def carrying(text: str) -> Iterator[int]:
    """Living processes, other than this one, with `text` in environment or command line."""
    wanted = text.encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            found = wanted in (entry / "cmdline").read_bytes()
            found = found or wanted in (entry / "environ").read_bytes()
        except OSError:
            continue
        if found and alive(int(entry.name)):
            yield int(entry.name)
