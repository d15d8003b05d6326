"""Reads what processes cost from /proc: peak memory, and the time of each thread and backend.

Everything is read from outside, so that measuring costs the measured nothing. On a machine without
/proc, or with the server elsewhere, the tables are just empty.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suimon.worker import processes

_TICK = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number; `unit` decides how it is written."""

    label: str
    value: float
    unit: str


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000 * len(ordered)) // 1000) - 1))]


def spread(label: str, milliseconds: Sequence[float]) -> list[Figure]:
    """p50, p99 and the longest."""
    return [
        Figure(f"{label} p50", percentile(milliseconds, 0.5), "ms"),
        Figure(f"{label} p99", percentile(milliseconds, 0.99), "ms"),
        Figure(f"{label} max", max(milliseconds), "ms"),
    ]


# --------------------------------------------------------------------------------- memory


class Memory(threading.Thread):
    """The peak resident memory of a worker and of everything below it, by role."""

    def __init__(self, worker: int) -> None:
        super().__init__(daemon=True)
        self._worker = worker
        self._ending = threading.Event()
        self._peaks: dict[int, tuple[str, float]] = {}

    def run(self) -> None:
        while not self._ending.wait(SAMPLE_SECONDS):
            self.look()

    def look(self) -> None:
        for pid in (self._worker, *processes.descendants(self._worker)):
            with contextlib.suppress(OSError, ValueError, IndexError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
                peak = int(text.split("VmHWM:")[1].split()[0]) / 1000
                role = "slot" if b"worker.slot" in words else "guardian"
                self._peaks[pid] = ("worker" if pid == self._worker else role, peak)

    def peaks(self) -> dict[str, float]:
        """Role → the largest peak of a process of it, in MB."""
        self.look()
        self._ending.set()
        found: dict[str, float] = {}
        for role, peak in self._peaks.values():
            found[role] = max(found.get(role, 0.0), peak)
        return found


# --------------------------------------------------------------------------------- processor time


def _seconds(stat: Path) -> float:
    fields = stat.read_text(encoding="utf-8", errors="replace").rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _machine() -> tuple[float, float]:
    """(busy, all) seconds of all processors since the start; waiting for the disk is not busy."""
    fields = [int(f) for f in Path("/proc/stat").read_text("utf-8").split("\n")[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICK, sum(fields) / _TICK


class Cost:
    """Processor seconds between its making and `figures`: worker's threads, slots, PostgreSQL."""

    def __init__(self, worker: int, backends: dict[int, str]) -> None:
        self._worker = worker
        self._before = self._look(backends)
        self._machine = _machine()

    def _look(self, backends: dict[int, str]) -> dict[tuple[int, str], float]:
        found: dict[tuple[int, str], float] = {}
        threads = sorted(int(t.name) for t in Path(f"/proc/{self._worker}/task").iterdir())
        # the worker starts the ledger first and the desk second
        names = ["worker: main thread", "worker: ledger", "worker: desk"]
        for place, thread in enumerate(threads):
            name = names[place] if place < len(names) else "worker: other threads"
            with contextlib.suppress(OSError):
                found[thread, name] = _seconds(Path(f"/proc/{self._worker}/task/{thread}/stat"))
        for pid in processes.descendants(self._worker):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                role = "slots" if b"worker.slot" in words else "guardian"
                found[pid, role] = _seconds(Path(f"/proc/{pid}/stat"))
        for pid, name in backends.items():
            with contextlib.suppress(OSError):
                found[pid, f"PostgreSQL: {name}"] = _seconds(Path(f"/proc/{pid}/stat"))
        return found

    def figures(self, backends: dict[int, str]) -> list[Figure]:
        """Seconds by who spent them, those above 2 % of the whole, and what others spent."""
        total: Counter[str] = Counter()
        for (number, name), seconds in self._look(backends).items():
            total[name] += seconds - self._before.get((number, name), 0.0)
        busy, every = (b - a for a, b in zip(self._machine, _machine(), strict=True))
        spent = sum(total.values())
        shown = [Figure(f"cpu, {n}", s, "s") for n, s in total.most_common() if s > 0.02 * spent]
        return [
            *shown,
            Figure("cpu, all of it", spent, "s"),
            Figure("cpu, other programs on this machine", max(0.0, busy - spent), "s"),
            Figure("cpu, idle or waiting for the disk", every - busy, "s"),
        ]
