"""The guardian: parent of the slots, child of the worker, and the one that ends them.

A worker cannot end its slots when it is frozen, and nobody can when it is dead. This small process
can. It holds no secret, no connection and no user code, only:

    control   a socket to the worker: "start slot 2" with its pipes, "kill slot 2"; tells who ended
    stamp     shared memory where the worker writes the time (CLOCK_BOOTTIME, which counts suspend)

It kills every slot with everything below it when the stamp has grown older than `--silence-ms`
(frozen worker; it goes on and serves the worker again when that continues), and when the control
socket ends (dead worker; it leaves after that). It is a subreaper, so a process that a slot's code
hid by double fork or a new session comes here when its slot dies, and is killed: any child that is
not a slot is a stray. When the guardian itself dies, the slots get SIGKILL from the kernel and the
strays go to the worker.

It also counts what runs below each slot, every 100 ms while there is one, and ends a slot with more
than `--processes` below it (zombies count: they use up numbers). `RLIMIT_NPROC` is not used: it
counts the account's processes anywhere, and it does not hold for root.

One thread, no imports beyond the standard library: it must be up in milliseconds and stay small.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import json
import mmap
import os
import select
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any

from suimon.core import clock
from suimon.worker import processes

# A message holds one request or event; the longest is a start with its environment.
MESSAGE_BYTES = 256 * 1024
START_DESCRIPTORS = 4
# Events wait here while a frozen worker does not read. One slot makes at most one start and one
# exit before the worker must ask again, so this is never reached by an honest worker.
WAITING_EVENTS = 10_000
LOOK_SECONDS = (0.02, 1.0)
# The program of a slot; a test kit names its own.
SLOT = "suimon.worker.slot"
PROCESSES_PER_SLOT = 256
# How the reason of an exit begins when the slot had too many processes below it.
TOO_MANY = "processes: "


@dataclass(slots=True)
class Slot:
    """A slot that lives: its number, its process, its folder, and why it is being killed."""

    number: int
    pid: int
    folder: str
    reason: str = "exited"


class Guardian:
    """State and loop. Everything happens in `run`, one thing after the other."""

    def __init__(
        self,
        control: socket.socket,
        stamp: mmap.mmap,
        *,
        silence_ms: int,
        folder: str,
        limit: int = PROCESSES_PER_SLOT,
    ) -> None:
        self.control = control
        self.stamp = stamp
        self.stamp_cell = memoryview(stamp).cast("q")
        self.silence_ns = silence_ms * 1_000_000
        self.look_seconds = min(max(silence_ms / 4000, LOOK_SECONDS[0]), LOOK_SECONDS[1])
        self.folder = folder
        self.limit = limit
        self.counted_at = 0.0
        self.slots: dict[int, Slot] = {}
        self.events: list[bytes] = []
        self.silent = False
        self.unkillable: list[int] = []
        self.bell, bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(bell, warn_on_full_buffer=False)

    def run(self, worker: int) -> None:
        """Until the worker is gone: wait, listen, bury, judge the stamp."""
        poll = select.poll()
        poll.register(self.bell, select.POLLIN)
        while os.getppid() == worker:
            wanted = select.POLLIN | (select.POLLOUT if self.events else 0)
            poll.register(self.control, wanted)
            count = processes.COUNT_SECONDS if self.slots else self.look_seconds
            ready = dict(poll.poll(min(count, self.look_seconds) * 1000))
            if self.bell in ready:
                os.read(self.bell, 4096)
            if self.control.fileno() in ready and not self.listen():
                break
            self.count()
            self.bury()
            self.judge()
            self.tell()
        self.kill_all("worker_died")
        processes.kill_below(os.getpid())
        for slot in self.slots.values():
            empty_folder(slot.folder)

    # ------------------------------------------------------------------ requests

    def listen(self) -> bool:
        """Take what the worker has sent, at most 64 requests at a time; False: it is gone."""
        for _ in range(64):
            try:
                data, ancillary, _, _ = self.control.recvmsg(
                    MESSAGE_BYTES, socket.CMSG_SPACE(START_DESCRIPTORS * 4), socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            descriptors = array.array("i")
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    descriptors.frombytes(content[: len(content) - len(content) % 4])
            try:
                self.obey(json.loads(data), list(descriptors))
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
        return True

    def obey(self, request: dict[str, Any], descriptors: list[int]) -> None:
        number = request["no"]
        if request["op"] == "start":
            self.start(number, request["env"], descriptors)
        elif request["op"] == "kill" and number in self.slots:
            slot = self.slots[number]
            slot.reason = "killed"
            processes.kill_tree(slot.pid)

    def start(self, number: int, env: dict[str, str], descriptors: list[int]) -> None:
        """Fork the slot. Between fork and exec only system calls happen."""
        folder = os.path.join(self.folder, f"slot-{number}")  # noqa: PTH118
        empty_folder(folder)
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        guardian = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                become_slot(guardian, descriptors, slot_environment(number, folder, env))
            except BaseException as error:  # noqa: BLE001 - whatever it is, this must not go on
                os.write(2, f"slot {number} could not start: {error!r}\n".encode())
            finally:
                os._exit(127)
        self.slots[number] = Slot(number, pid, folder)
        self.event({"ev": "started", "no": number, "pid": pid})

    # ------------------------------------------------------------------ deaths

    def bury(self) -> None:
        """Wait for the dead. After a slot's death kill its strays, empty its folder, then tell."""
        by_pid = {slot.pid: slot for slot in self.slots.values()}
        ended: list[tuple[Slot, int]] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in by_pid:
                ended.append((by_pid[pid], status))
                del self.slots[by_pid[pid].number]
        if ended or self.unkillable:
            alive = {slot.pid for slot in self.slots.values()}
            rounds = processes.ROUNDS if ended else 1
            self.unkillable = processes.kill_below(os.getpid(), spare=alive, rounds=rounds)
        for slot, status in ended:
            empty_folder(slot.folder)
            self.event(
                {
                    "ev": "exited",
                    "no": slot.number,
                    "pid": slot.pid,
                    "status": status,
                    "reason": slot.reason,
                    "left": self.unkillable,
                }
            )

    def count(self) -> None:
        """Kill a slot with too many processes below it: a fork bomb, or a program without bound."""
        now = clock.monotonic()
        if now - self.counted_at < processes.COUNT_SECONDS / 2:
            return
        self.counted_at = now
        for slot in self.slots.values():
            found = processes.more_than(slot.pid, self.limit)
            if found > self.limit:
                if not slot.reason.startswith(TOO_MANY):
                    slot.reason = f"{TOO_MANY}{found} or more at once, {self.limit} allowed"
                processes.kill_groups(slot.pid)

    def judge(self) -> None:
        """Kill all slots when the worker has been silent for too long, and say so once."""
        age = clock.boottime_ns() - self.stamp_cell[0]  # one load, as the worker's is one store
        if age <= self.silence_ns:
            self.silent = False
            return
        killed = sorted(self.slots)
        self.kill_all("worker_silent")
        if killed and not self.silent:
            self.silent = True
            self.event({"ev": "silent", "age_ms": age // 1_000_000, "slots": killed})
        self.bury()

    def kill_all(self, reason: str) -> None:
        for slot in self.slots.values():
            slot.reason = reason
            processes.kill_tree(slot.pid)

    # ------------------------------------------------------------------ events

    def event(self, body: dict[str, Any]) -> None:
        if len(self.events) < WAITING_EVENTS:
            self.events.append(json.dumps(body).encode())

    def tell(self) -> None:
        """Send what the socket takes; the rest waits for the worker to read."""
        while self.events:
            try:
                self.control.send(self.events[0], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.events.clear()
                return
            del self.events[0]


def slot_environment(number: int, folder: str, extra: dict[str, str]) -> dict[str, str]:
    """The guardian's own clean environment, a folder for temporary files, and the slot's number."""
    return {**os.environ, **extra, "TMPDIR": folder, "SUIMON_INSIDE_SLOT": str(number)}


def become_slot(guardian: int, descriptors: list[int], env: dict[str, str]) -> None:
    """In the forked child: own session, bound to the guardian, four pipes and nothing else open."""
    os.setsid()
    processes.die_with_parent(guardian)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # Received descriptors may have any number, 3 to 6 among them: lift all, then lay them down.
    high = [os.dup2(each, 100 + place) for place, each in enumerate(descriptors)]
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(high[2], 1)
    os.dup2(high[3], 2)
    os.dup2(high[0], 3)
    os.dup2(high[1], 4)
    os.closerange(5, max(high[-1] + 1, _open_limit()))
    argv = [sys.executable, "-I", "-m", SLOT, "--in", "3", "--out", "4"]
    os.execve(sys.executable, argv, env)  # noqa: S606 - no shell is wanted


def empty_folder(folder: str) -> None:
    """Remove a slot's temporary files. What cannot be removed is tried again at its next start."""
    with contextlib.suppress(OSError):
        shutil.rmtree(folder, ignore_errors=True)


def _open_limit() -> int:
    """One past the highest descriptor open now."""
    return max(int(name) for name in os.listdir("/proc/self/fd")) + 1  # noqa: PTH208


def main() -> None:
    """Entry of `python -I -m suimon.worker.guardian`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--stamp", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--silence-ms", type=int, required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--processes", type=int, default=PROCESSES_PER_SLOT)
    options = parser.parse_args()
    # Not SIGKILL: after the worker's death somebody must still be here to end the strays.
    signal.signal(signal.SIGUSR1, lambda *_: None)
    processes.hear_of_parents_death(signal.SIGUSR1)
    processes.become_subreaper()
    # Ctrl-C and a service manager's TERM are the worker's to interpret; its end is ours.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    control = socket.socket(fileno=options.control)
    control.settimeout(0)
    os.set_inheritable(control.fileno(), False)  # noqa: FBT003
    stamp = mmap.mmap(options.stamp, 8, access=mmap.ACCESS_READ)
    os.close(options.stamp)
    guardian = Guardian(
        control,
        stamp,
        silence_ms=options.silence_ms,
        folder=options.folder,
        limit=options.processes,
    )
    guardian.run(options.parent)


if __name__ == "__main__":
    main()
