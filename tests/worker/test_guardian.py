"""Guardian and slots as real processes: who dies, who is told, and that nothing is left."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.slot_harness import alive

from suimon.worker import processes, wire
from suimon.worker.slots import Event, Exited, Guardian, GuardianDied, Silent, SlotHandle, Started

# Starts one process of each stubborn kind, writes their pids to the mark, and stays.
STAY = """
from __future__ import annotations
import os, subprocess, time
from suimon.task import task

def start(*command, **more):
    return subprocess.Popen(command, stdout=subprocess.PIPE, **more)

@task
def stay(mark):
    background = start("sh", "-c", "sleep 1000 & echo $!; wait")
    sleep = int(background.stdout.readline())
    session = start("sleep", "1000", start_new_session=True)
    deaf = start("sh", "-c", "trap '' TERM INT HUP; echo on; while :; do sleep 1; done")
    deaf.stdout.readline()
    double = start("sh", "-c", "setsid sh -c 'sleep 1000 >/dev/null & echo $!'")
    hidden = int(double.communicate()[0])
    pids = [background.pid, sleep, session.pid, deaf.pid, hidden]
    open(os.path.join(os.environ["TMPDIR"], "leftover"), "w").close()
    open(mark + ".part", "w").write(" ".join(map(str, pids)))
    os.rename(mark + ".part", mark)
    time.sleep(1000)

def text(path):
    return open(path, "rb").read().replace(b"\\0", b" ").decode("utf-8", "backslashreplace")

def links(folder):
    paths = [f"{folder}/{name}" for name in os.listdir(folder)]
    return {p.split("/")[-1]: os.readlink(p) for p in paths if os.path.lexists(p)}

@task
def show(what):
    me, parent = "/proc/self", f"/proc/{os.getppid()}"
    return {
        "environ": dict(os.environ),
        "own": [text(me + "/environ"), text(me + "/cmdline")],
        "parent": [text(parent + "/environ"), text(parent + "/cmdline")],
        "fds": links(me + "/fd"),
        "parent_fds": links(parent + "/fd"),
    }
"""
PATIENCE_SECONDS = 15.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "stay.py").write_text(STAY)
    return folder


@pytest.fixture
def guardian(tmp_path: Path) -> Iterator[Guardian]:
    spare = set(processes.children(os.getpid()))
    made = Guardian(folder=tmp_path / "slots", silence_ms=60_000, spare=spare)
    yield made
    made.close()


def eventually(promise: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not promise():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def wait_events(
    guardian: Guardian, wanted: Callable[[list[Event]], bool], *, silent: bool = False
) -> list[Event]:
    found: list[Event] = []
    end = time.monotonic() + PATIENCE_SECONDS
    while not wanted(found):
        assert time.monotonic() < end, found
        if not silent:
            guardian.stamp()
        if select.select([guardian.fileno()], [], [], 0.05)[0]:
            found += guardian.read_events()
    return found


def has(kind: type) -> Callable[[list[Event]], bool]:
    return lambda events: any(isinstance(event, kind) for event in events)


def next_lines(handle: SlotHandle, letter: bytes) -> list[bytes]:
    """The fields of the next line with this letter; lines before and beside it are dropped."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        select.select([handle.from_fd], [], [], 0.05)
        lines = handle.read_lines()
        assert lines is not None, handle.read_raw(handle.err_fd)
        found = [line for line in lines if line[:1] == letter]
        if found:
            return wire.split(found[0])
    raise AssertionError(letter)


def begin(handle: SlotHandle, root: Path, name: str, given: object) -> None:
    handle.send(wire.init(str(root)))
    program = {"n": 1, "kind": "task", "task": f"stay:{name}", "vertex": "v", "item": True}
    handle.send(wire.program(program))
    handle.send(wire.runs(1, [(1, given, ["r", 1, None, "p"])]))


def stubborn(mark: Path) -> list[int]:
    """The processes the slot's run has started."""
    eventually(mark.exists, "the run never began")
    pids = [int(text) for text in mark.read_text().split()]
    assert len(pids) == 5
    assert all(map(alive, pids))
    return pids


def none_left(pids: list[int]) -> None:
    eventually(lambda: not any(map(alive, pids)), f"still there: {[p for p in pids if alive(p)]}")


# --------------------------------------------------------------------------- ends of slots


def test_a_slot_starts_works_and_its_exit_is_told(guardian: Guardian, root: Path) -> None:
    handle = guardian.start_slot(3)
    begin(handle, root, "show", "all")
    (started,) = wait_events(guardian, has(Started))
    assert isinstance(started, Started)
    assert started.no == 3
    assert handle.pid == started.pid
    assert next_lines(handle, b"S")[1] == b"1"
    handle.send(wire.FINISH)
    (exited,) = wait_events(guardian, has(Exited))
    assert exited == Exited(3, 0, "exited")
    handle.close()


@pytest.mark.parametrize("how", ["kill_slot", "SIGKILL", "SIGTERM"])
def test_c61_no_process_outlives_its_slot(
    guardian: Guardian, root: Path, tmp_path: Path, how: str
) -> None:
    """Background, own session, deaf to signals, double fork: gone when the exit is told, with no
    zombie left and the slot's folder empty.
    """
    mark = tmp_path / "mark"
    handle = guardian.start_slot(0)
    begin(handle, root, "stay", str(mark))
    pids = stubborn(mark)
    wait_events(guardian, has(Started))
    assert handle.pid is not None
    if how == "kill_slot":
        guardian.kill_slot(0)
    else:
        os.kill(handle.pid, signal.Signals[how])
    (exited,) = wait_events(guardian, has(Exited))
    assert isinstance(exited, Exited)
    assert exited.reason == ("killed" if how == "kill_slot" else "exited")
    assert exited.cause == ("signal 15" if how == "SIGTERM" else "signal 9")
    assert exited.left == ()
    assert not any(map(alive, pids))
    assert processes.children(guardian.pid) == []
    assert not (tmp_path / "slots" / "slot-0").exists()
    handle.close()
    again = guardian.start_slot(0)
    again.send(wire.init(str(root)))
    assert next_lines(again, b"H")
    again.close()


def test_a_neighbour_slot_lives_on(guardian: Guardian, root: Path, tmp_path: Path) -> None:
    """Ending one slot with its strays touches no other slot's processes."""
    marks = [tmp_path / "m0", tmp_path / "m1"]
    handles = [guardian.start_slot(no) for no in (0, 1)]
    for handle, mark in zip(handles, marks, strict=True):
        begin(handle, root, "stay", str(mark))
    first, second = map(stubborn, marks)
    guardian.kill_slot(0)
    wait_events(guardian, has(Exited))
    assert not any(map(alive, first))
    assert all(map(alive, second))
    for handle in handles:
        handle.close()


def test_closing_ends_everything(root: Path, tmp_path: Path) -> None:
    guardian = Guardian(folder=tmp_path / "slots", silence_ms=60_000)
    begin(guardian.start_slot(0), root, "stay", str(tmp_path / "mark"))
    pids = stubborn(tmp_path / "mark")
    guardian.close()
    assert not any(map(alive, pids))


# --------------------------------------------------------------------------- guardian and worker


def test_c61_a_killed_guardian_takes_all_along_and_is_replaced(
    guardian: Guardian, root: Path, tmp_path: Path
) -> None:
    """kill -9 of the guardian: slots die with it, strays are ended by the worker, work goes on."""
    mark = tmp_path / "mark"
    handle = guardian.start_slot(0)
    begin(handle, root, "stay", str(mark))
    pids = stubborn(mark)
    wait_events(guardian, has(Started))
    bystander = subprocess.Popen(["sleep", "60"])  # not a slot's: left alone
    old = guardian.pid
    os.kill(old, signal.SIGKILL)
    died, exited = wait_events(guardian, has(Exited))
    assert isinstance(died, GuardianDied)
    assert exited == Exited(0, None, "guardian_died")
    none_left([*pids, handle.pid or 0])
    assert guardian.pid != old
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    handle.close()
    again = guardian.start_slot(0)
    again.send(wire.init(str(root)))
    assert next_lines(again, b"H")
    again.close()
    ours = set(processes.children(os.getpid())) - set(guardian.spare)
    assert ours == {guardian.pid}


class Worker:
    """The stand-in worker as a process, and what it says."""

    def __init__(self, root: Path, tmp_path: Path, silence_ms: int) -> None:
        self.mark = tmp_path / "mark"
        script = Path(__file__).parent.parent / "support" / "guardian_worker.py"
        self.process = subprocess.Popen(
            [
                *(sys.executable, str(script), str(root), str(tmp_path / "slots")),
                *(str(silence_ms), str(self.mark)),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ready = self.hear("ready")

    def hear(self, kind: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said, body = json.loads(line)
            if said == kind:
                found: dict[str, Any] = body
                return found
        raise AssertionError(kind)

    def end(self) -> None:
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_c61_a_dead_worker_leaves_nothing(
    root: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """kill -9 of the worker: slots, strays and the guardian are gone soon after."""
    worker = Worker(root, tmp_path, 60_000)
    pids = [*stubborn(worker.mark), worker.ready["guardian"], worker.ready["slot"]]
    worker.process.send_signal(number)
    worker.process.wait()
    none_left(pids)
    worker.end()


def test_c03_a_frozen_workers_slots_are_ended_and_it_is_told(root: Path, tmp_path: Path) -> None:
    """SIGSTOP: after the silence the slots are gone; after SIGCONT the worker hears of it."""
    worker = Worker(root, tmp_path, 1500)
    pids = [*stubborn(worker.mark), worker.ready["slot"]]
    time.sleep(1.8)  # a worker that stamps is left alone for longer than the silence
    assert all(map(alive, pids))
    worker.process.send_signal(signal.SIGSTOP)
    none_left(pids)
    assert alive(worker.ready["guardian"])
    worker.process.send_signal(signal.SIGCONT)
    silent = worker.hear("Silent")
    assert silent["slots"] == [0]
    assert silent["age_ms"] >= 1500
    exited = worker.hear("Exited")
    assert (exited["no"], exited["reason"]) == (0, "worker_silent")
    guardian = worker.ready["guardian"]
    worker.end()
    none_left([guardian])


def test_after_a_silence_slots_can_be_started_again(root: Path, tmp_path: Path) -> None:
    guardian = Guardian(folder=tmp_path / "slots", silence_ms=200)
    handle = guardian.start_slot(0)
    begin(handle, root, "stay", str(tmp_path / "mark"))
    events = wait_events(guardian, has(Exited), silent=True)  # however late a busy guardian looks
    assert [type(one) for one in events if not isinstance(one, Started)] == [Silent, Exited]
    handle.close()
    again = guardian.start_slot(0)
    again.send(wire.init(str(root)))
    eventually(lambda: has(Started)(wait_events(guardian, has(Started))), "no start")
    again.close()
    guardian.close()


# --------------------------------------------------------------------------- what slots can see


def test_c63_a_slot_sees_nothing_of_the_engine(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environment, descriptors and command lines of slot and parent show no secret, no marker."""
    monkeypatch.setenv("SUIMON_DATABASE_URL", "postgresql://user:hunter2@db/x")
    monkeypatch.setenv("MARKER_VARIABLE", "marker-value")
    monkeypatch.setenv("ALLOWED", "allowed-value")
    secret = tmp_path / "engine.key"
    secret.write_text("k")
    with secret.open() as held:
        os.set_inheritable(held.fileno(), True)  # noqa: FBT003
        guardian = Guardian(
            folder=tmp_path / "slots", silence_ms=60_000, pass_environment=["ALLOWED"]
        )
        handle = guardian.start_slot(0)
        begin(handle, root, "show", "all")
        seen = orjson.loads(next_lines(handle, b"S")[3])
        handle.close()
        guardian.close()
    whole = json.dumps(seen)
    for marker in ("hunter2", "marker-value", "MARKER_VARIABLE", "DATABASE", "engine.key"):
        assert marker not in whole
    environ = seen["environ"]
    assert environ.pop("ALLOWED") == "allowed-value"
    assert environ.pop("TMPDIR") == str(tmp_path / "slots" / "slot-0")
    assert environ.pop("SUIMON_INSIDE_SLOT") == "0"
    allowed = {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH"}
    assert set(environ) <= allowed
    assert seen["fds"]["0"] == "/dev/null"
    targets = {fd: target for fd, target in seen["fds"].items() if not target.startswith("/proc/")}
    assert {target.split(":")[0] for fd, target in targets.items() if fd != "0"} == {"pipe"}


def test_guardian_loads_neither_database_nor_validation() -> None:
    """It must be small and up at once, whatever the package imports elsewhere."""
    code = (
        "import sys, suimon.worker.guardian;"
        "print([m for m in sys.modules if m.split('.')[0] in ('psycopg', 'pydantic', 'asyncio')])"
    )
    out = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout == "[]\n"


# --------------------------------------------------------------------------- pipes


def test_a_slot_that_does_not_read_blocks_nobody(guardian: Guardian, root: Path) -> None:
    """A stopped slot's pipe fills; the worker keeps the rest and the slot gets it all later."""
    handle = guardian.start_slot(0)
    handle.send(wire.init(str(root)))
    next_lines(handle, b"H")
    wait_events(guardian, has(Started))
    assert handle.pid is not None
    os.kill(handle.pid, signal.SIGSTOP)
    program = {"n": 1, "kind": "task", "task": "builtins:len", "vertex": "v", "item": False}
    handle.send(wire.program({**program, "task": "stay:show", "item": True}))
    sent = 0
    begun = time.monotonic()
    while not handle.wants_write:
        handle.send(wire.cancel(10**12))
        sent += 1
        assert sent < 1_000_000
    assert time.monotonic() - begun < 10
    assert handle.backlog > 0
    handle.send(wire.runs(1, [(1, 0, ["r", 1, None, "p"])]))
    assert not handle.flush()
    os.kill(handle.pid, signal.SIGCONT)
    eventually(handle.flush, "the slot did not read on")
    assert next_lines(handle, b"S")[1] == b"1"
    handle.close()
