"""What a run may not leave behind in its slot: processes, a working folder, redirected output.

A slot lives on from run to run, so that a loaded model stays loaded. What belongs to one run goes
with it: every process it started (a slot is a subreaper, so a double fork hides nothing), the
working folder it moved to, and after a failure the temporary files it made. Two system calls a run
tell that nothing is to be done; the rarer kinds of disorder are looked for when a run was long,
when one failed, and every 20 ms.

While `async def` neighbours are running, only the processes that are known to be this run's are
killed: those started through `subprocess` (asyncio's included) and what is below them. Hidden ones
go as soon as the slot is quiet.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from suimon.core import clock
from suimon.worker import processes
from suimon.worker.slot_run import Run

LOOK_SECONDS = 0.02
LONG_SECONDS = 0.001


class Tidy:
    """What the slot looked like before any user code ran, and how to get there again."""

    def __init__(self, on_cancel: Callable[[int, Any], None]) -> None:
        self.pid = os.getpid()
        self.home = os.getcwd()  # noqa: PTH109 - compared once a run; a Path would cost more
        self.streams = (sys.stdout, sys.stderr)
        self.temporary = os.environ.get("TMPDIR") if "SUIMON_INSIDE_SLOT" in os.environ else None
        self._on_cancel = on_cancel
        # Copies far above the usual numbers, out of the way of user code that closes a few.
        self._copies = [os.dup2(fd, 200 + fd, inheritable=False) for fd in (1, 2)]
        self._marks = [_mark(fd) for fd in (1, 2)]
        self._looked = 0.0
        self.restore_signals()

    def after(self, run: Run, started: float, ended: float, *, failed: bool, alone: bool) -> None:
        """Main thread, before the result is written."""
        if processes.has_children():
            self.end_processes(run, alone=alone)
        try:
            if os.getcwd() != self.home:  # noqa: PTH109
                os.chdir(self.home)
        except OSError:
            os.chdir(self.home)
        if sys.stdout is not self.streams[0] or sys.stderr is not self.streams[1]:
            sys.stdout, sys.stderr = self.streams
        if failed or ended - started > LONG_SECONDS or ended - self._looked > LOOK_SECONDS:
            self.look(ended)
        if failed and alone:
            self._remove_temporary(clock.now().timestamp() - (ended - started))

    def look(self, now: float) -> None:
        """The rarer kinds of disorder: descriptors 1 and 2, signal handlers, a waiting alarm."""
        self._looked = now
        for place, fd in enumerate((1, 2)):
            if _mark(fd) != self._marks[place]:
                os.dup2(self._copies[place], fd)
        self.restore_signals()

    def restore_signals(self) -> None:
        """SIGUSR1 is ours; an alarm that a run left would kill the next one."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        if signal.getsignal(signal.SIGUSR1) is not self._on_cancel:
            signal.signal(signal.SIGUSR1, self._on_cancel)
            signal.siginterrupt(signal.SIGUSR1, True)  # noqa: FBT003

    def end_processes(self, run: Run | None, *, alone: bool) -> None:
        """Kill what the run has started; all there is below the slot when it was alone."""
        if alone:
            processes.kill_below(self.pid)
        elif run is not None and run.pids:
            mine = set(processes.children(self.pid)).intersection(run.pids)
            for pid in mine:
                processes.kill_tree(pid)
                processes.reap(pid)

    def _remove_temporary(self, since: float) -> None:
        """A failed run's temporary files, or a full disk would fail every later run, too."""
        if self.temporary is None:
            return
        with contextlib.suppress(OSError), os.scandir(self.temporary) as entries:
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_mtime < since:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)  # noqa: PTH108


def remember_processes(current: Callable[[], Run | None]) -> None:
    """From now on each run knows the processes it starts through `subprocess`."""
    original = getattr(subprocess.Popen, "_execute_child", None)
    if original is None:
        return

    def execute_child(popen: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:
        try:
            original(popen, *args, **kwargs)
        finally:
            run, pid = current(), getattr(popen, "pid", None)
            if run is not None and pid is not None:
                run.pids = [*(run.pids or ()), pid]

    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]  # noqa: SLF001


def _mark(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino
