"""The worker's half of guardian and slots: starting, feeding, ending them, without ever blocking.

`Guardian` owns the guardian process and a `SlotHandle` per slot. Nothing in here waits for another
process: pipes and the control socket are non-blocking, what a slot does not take stays in its
handle's buffer, and all descriptors can be watched in one `selectors` loop:

    guardian = Guardian(folder=..., silence_ms=9000)
    handle = guardian.start_slot(0)         # its pid comes with the `Started` event
    handle.send(wire.init(...))
    loop:  guardian.stamp()                 # at least every silence_ms / 3
           guardian.read_events()           # when guardian.fileno() is readable
           handle.read_lines()              # when handle.from_fd is readable
           handle.flush()                   # when handle.wants_write and to_fd is writable

If the guardian dies, `read_events` kills what its slots left behind, starts a new guardian, and
reports `GuardianDied` and an `Exited` for every slot it had. The worker starts new slots as after
any other exit. Create the `Guardian` in a thread that lives as long as the worker.
"""

from __future__ import annotations

import array
import json
import mmap
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suimon.core import clock
from suimon.worker import guardian as guardian_process
from suimon.worker import processes, slot_pipes
from suimon.worker.slot_pipes import SlotHandle

# What a slot, and so everything its code starts, may know of the worker's environment.
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH")
RESTARTS = 20  # two runs that kill it each time are poisoned long before
RESTART_WINDOW_SECONDS = 30.0
STRAY_LOOKS = 100
QUIET_LOOKS = 3
# The guardian's program; a test kit names its own.
GUARDIAN = "suimon.worker.guardian"


@dataclass(frozen=True, slots=True)
class Started:
    """Slot `no` runs as process `pid`."""

    no: int
    pid: int


@dataclass(frozen=True, slots=True)
class Exited:
    """Slot `no` and everything below it is gone, and its folder is empty.

    `status` is the wait status, or None when nobody could see it; `reason` one of exited, killed,
    worker_silent, guardian_died, or begins with "processes: " (too many); `left` are processes that
    the kernel would not end.
    """

    no: int
    status: int | None
    reason: str
    left: tuple[int, ...] = ()

    @property
    def cause(self) -> str:
        """For people: `exit code 3`, `signal 9`, `unknown`."""
        if self.status is None:
            return "unknown"
        code = os.waitstatus_to_exitcode(self.status)
        return f"signal {-code}" if code < 0 else f"exit code {code}"


@dataclass(frozen=True, slots=True)
class Silent:
    """The guardian found the worker's stamp `age_ms` old and killed these slots."""

    age_ms: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GuardianDied:
    """The guardian was lost and replaced; an `Exited` for each of its slots follows."""

    status: int | None
    strays: int


__all__ = [
    "Event",
    "Exited",
    "Guardian",
    "GuardianDied",
    "GuardianLostError",
    "Silent",
    "SlotHandle",
    "Started",
]

Event = Started | Exited | Silent | GuardianDied


class GuardianLostError(RuntimeError):
    """The guardian cannot be kept alive; the worker cannot run user code safely and must leave."""


class Guardian:
    """The guardian process and its slots, as the worker sees them."""

    def __init__(
        self,
        *,
        folder: str | os.PathLike[str],
        silence_ms: int,
        pass_environment: Iterable[str] = (),
        spare: Collection[int] = (),
        processes_per_slot: int = guardian_process.PROCESSES_PER_SLOT,
    ) -> None:
        """`folder` holds the slots' temporary files. `pass_environment` names what slots may see
        beside the usual few. `spare` are children of this process that have nothing to do with
        slots; they are left alone when strays of a dead guardian are looked for.
        """
        self.folder = Path(folder)
        self.silence_ms = silence_ms
        self.spare = spare
        self.processes_per_slot = processes_per_slot
        names = {*PASSED_ON, *pass_environment}
        self.environment = {n: os.environ[n] for n in sorted(names) if n in os.environ}
        self.environment.setdefault("PATH", os.defpath)
        self.handles: dict[int, SlotHandle] = {}
        self._restarts: deque[float] = deque(maxlen=RESTARTS)
        self._requests: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._stamp_fd = os.memfd_create("suimon-stamp")
        os.ftruncate(self._stamp_fd, 8)
        self._stamp = mmap.mmap(self._stamp_fd, 8)
        # one aligned store of eight bytes: struct.pack_into writes them one by one, and a reader
        # in between would see a worker that has been silent since the machine started
        self._stamp_cell = memoryview(self._stamp).cast("q")
        processes.become_subreaper()
        self._start()

    @property
    def pid(self) -> int:
        """The guardian's process."""
        return self._process.pid

    def fileno(self) -> int:
        """Readable when `read_events` has something. It changes with a `GuardianDied`."""
        return self._control.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether requests wait; then watch `fileno()` for writing and call `flush`."""
        return bool(self._requests)

    def stamp(self) -> None:
        """Say "I am here". One store of eight bytes; call it as often as you like."""
        self._stamp_cell[0] = clock.boottime_ns()

    # ------------------------------------------------------------------ slots

    def start_slot(self, no: int) -> SlotHandle:
        """Ask for slot `no` and return its handle at once; what is sent early waits in the pipe."""
        if no in self.handles:
            msg = f"slot {no} is running"
            raise ValueError(msg)
        to_read, to_write = slot_pipes.open_pipe()
        from_read, from_write = slot_pipes.open_pipe()
        out_read, out_write = slot_pipes.open_pipe()
        err_read, err_write = slot_pipes.open_pipe()
        handle = SlotHandle(no, to_fd=to_write, from_fd=from_read, out_fd=out_read, err_fd=err_read)
        self.handles[no] = handle
        request = json.dumps({"op": "start", "no": no, "env": {}}).encode()
        self._requests.append((request, (to_read, from_write, out_write, err_write)))
        self.flush()
        return handle

    def kill_slot(self, no: int) -> None:
        """End the slot with all below it. `Exited` follows when nothing of it is left."""
        if no in self.handles:
            self._requests.append((json.dumps({"op": "kill", "no": no}).encode(), ()))
            self.flush()

    def flush(self) -> None:
        """Send the requests that the guardian takes now. Descriptors sent are closed here."""
        while self._requests:
            data, fds = self._requests[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            try:
                self._control.sendmsg([data], rights, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:
                return  # The end of the socket is dealt with by `read_events`.
            self._requests.popleft()
            for fd in fds:
                os.close(fd)

    # ------------------------------------------------------------------ events

    def read_events(self) -> list[Event]:
        """What has happened since the last call, oldest first. Raises GuardianLostError."""
        events: list[Event] = []
        while True:
            try:
                data = self._control.recv(guardian_process.MESSAGE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                events += self._replace()
                break
            events += self._event(json.loads(data))
        return events

    def close(self, *, timeout_seconds: float = 5.0) -> None:
        """End the guardian with all slots and wait until nothing of them is left."""
        self._control.close()
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._kill_strays()
        for handle in self.handles.values():
            handle.close()
        self.handles.clear()
        self._drop_requests()
        self._stamp_cell.release()
        self._stamp.close()
        os.close(self._stamp_fd)

    def _event(self, body: dict[str, Any]) -> list[Event]:
        kind = body["ev"]
        if kind == "started":
            if body["no"] in self.handles:
                self.handles[body["no"]].pid = body["pid"]
            return [Started(body["no"], body["pid"])]
        if kind == "exited":
            self.handles.pop(body["no"], None)
            return [Exited(body["no"], body["status"], body["reason"], tuple(body["left"]))]
        return [Silent(body["age_ms"], tuple(body["slots"]))]

    # ------------------------------------------------------------------ the process

    def _start(self) -> None:
        now = clock.monotonic()
        if len(self._restarts) == RESTARTS and now - self._restarts[0] < RESTART_WINDOW_SECONDS:
            msg = f"the guardian died {RESTARTS} times within {RESTART_WINDOW_SECONDS:.0f} s"
            raise GuardianLostError(msg)
        self._restarts.append(now)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.stamp()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(0)
        command = [sys.executable, "-I", "-m", GUARDIAN]
        command += ["--control", str(theirs.fileno()), "--stamp", str(self._stamp_fd)]
        command += ["--parent", str(os.getpid()), "--silence-ms", str(self.silence_ms)]
        command += ["--folder", str(self.folder), "--processes", str(self.processes_per_slot)]
        self._process = subprocess.Popen(
            command,
            env=self.environment,
            pass_fds=(theirs.fileno(), self._stamp_fd),
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            start_new_session=True,
        )
        theirs.close()
        self._control = ours
        fields = processes.status_fields(self._process.pid)
        self._since_ticks = fields[2] if fields else 0

    def _replace(self) -> list[Event]:
        """The guardian is gone: bury it, end its strays, start another, report the slots."""
        self._control.close()
        self._process.kill()  # It may have lost only its socket; two guardians must not be.
        status = self._process.wait()
        strays = self._kill_strays()
        self._drop_requests()
        lost = sorted(self.handles)
        self.handles.clear()
        for no in lost:
            guardian_process.empty_folder(str(self.folder / f"slot-{no}"))
        self._start()
        return [
            GuardianDied(status, strays),
            *(Exited(no, None, "guardian_died") for no in lost),
        ]

    def _kill_strays(self) -> int:
        """End what a dead guardian left: children of ours in sessions of their own, started since
        that guardian. Orphans arrive over a few milliseconds, so look until three looks in a row
        find nobody; at most half a second in all.
        """
        session = os.getsid(0)
        killed: set[int] = set()
        quiet = 0
        for _ in range(STRAY_LOOKS):
            strays = [
                pid
                for pid in processes.children(os.getpid())
                if pid not in self.spare and self._is_stray(pid, session)
            ]
            for pid in strays:
                processes.kill_tree(pid)
                killed.add(pid)
                processes.reap(pid)
            quiet = 0 if strays else quiet + 1
            if quiet == QUIET_LOOKS:
                break
            time.sleep(processes.ROUND_SECONDS)
        return len(killed)

    def _is_stray(self, pid: int, session: int) -> bool:
        fields = processes.status_fields(pid)
        if fields is None:
            return False
        return fields[1] != session and fields[2] >= self._since_ticks

    def _drop_requests(self) -> None:
        for _, fds in self._requests:
            for fd in fds:
                os.close(fd)
        self._requests.clear()
