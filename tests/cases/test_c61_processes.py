"""C61, C62, C65: grandchildren, an output flood, all CPUs busy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.engine import Engine
from support.slot_harness import alive

from suimon.core.clock import monotonic
from suimon.worker import processes

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

STAY = '''
def start(*command, **more):
    return subprocess.Popen(command, stdout=subprocess.PIPE, **more)

def start_all():
    """In the background, in a session of its own, deaf to signals, double-forked."""
    background = start("sh", "-c", "sleep 10000 & echo $!; wait")
    sleep = int(background.stdout.readline())
    session = start("sleep", "10000", start_new_session=True)
    deaf = start("sh", "-c", "trap '' TERM INT HUP; echo on; while :; do sleep 1; done")
    deaf.stdout.readline()
    double = start("sh", "-c", "setsid sh -c 'sleep 10000 >/dev/null & echo $!'")
    hidden = int(double.communicate()[0])
    note("pids", background.pid, sleep, session.pid, deaf.pid, hidden)

@pipeline(concurrency=None, timeout="500ms")
def times_out():
    start_all()
    time.sleep(1000)

@pipeline(concurrency=None)
def stays():
    start_all()
    while True:
        try:
            time.sleep(1000)
        except Cancelled:
            pass

@pipeline(concurrency=None)
def ends():
    start_all()
    return "ended"
'''


@pytest.mark.parametrize("how", ["timeout", "cancel", "SIGTERM", "SIGKILL", "normal end"])
def test_c61_grandchildren_after_timeout_or_cancel(engine: Engine, how: str) -> None:
    """**Set up** a step that starts a background process, one with a session of its own, one deaf
    to SIGTERM, a double-forked daemon. **Do** let it time out; cancel it; SIGTERM and SIGKILL the
    worker; let it end normally. **Must** leave none of them, nor any zombie under the worker.
    """
    engine.module("m", STAY)
    engine.deploy()
    worker = engine.worker(slots=1, cancel_grace_s=0.3, drain_timeout_s=0.3)
    guardian = worker.guardian()
    name = {"timeout": "times_out", "normal end": "ends"}.get(how, "stays")
    run = engine.submit(name)
    pids = [int(pid) for pid in engine.noted("pids")[0]]
    if how == "timeout":
        engine.wait(run, "timed_out")
    elif how == "normal end":
        engine.wait(run)
    elif how == "cancel":
        engine.cancel(run)
        engine.wait(run, "cancelled")
    elif how == "SIGTERM":
        worker.term()
        assert worker.wait() == 0
    else:
        worker.kill9()
    engine.until(lambda: not any(map(alive, pids)), "nothing of the step is left", 15)
    if how in ("SIGTERM", "SIGKILL"):
        engine.none_left()
        return
    assert worker.running
    for parent in (worker.pid, guardian, *worker.slots()):
        engine.until(
            lambda parent=parent: all(map(alive, processes.children(parent))), "no zombies", 10
        )


FLOOD = """
SIZE = 60_000_000

@pipeline(concurrency=None)
def prints(kind):
    note("prints", kind)
    if kind == "lines":
        line = "x" * 79 + chr(10)
        print("the beginning")
        for _ in range(SIZE // 80):
            sys.stdout.write(line)
        print("the end")
    elif kind == "no newline":
        print("the beginning")
        for _ in range(SIZE // 65536):
            sys.stdout.write("y" * 65536)
        sys.stdout.write("the end")
    elif kind == "binary":
        code = (
            "import os; os.write(1, b'the beginning');"
            "[os.write(1, bytes(range(128, 256)) * 512) for _ in range(%d)];"
            "os.write(1, b'the end')" % (SIZE // 65536)
        )
        subprocess.run([sys.executable, "-c", code], check=True)
    else:
        sys.stderr.write("the beginning" + "z" * 65536)
        print("the end")
    return kind

@pipeline(concurrency=None)
def beside(n=0):
    print("line of", n)
    return n
"""


@pytest.mark.parametrize("kind", ["lines", "no newline", "binary", "stderr first"])
def test_c62_step_that_prints_very_much(engine: Engine, kind: str) -> None:
    """**Do** print 60 MB (in short lines, without newline, as bytes that are no text, 64 KB on
    stderr first) beside five ordinary runs. **Must** not block; the stored log is cut at 1 MB with
    a note, beginning and end kept; the worker grows by less than 50 MB; the others keep pace and
    logs; bytes that are not UTF-8 are escaped.
    """
    engine.module("m", FLOOD)
    engine.deploy()
    worker = engine.worker(slots=2)
    before = memory_mb(worker.pid)
    run_id = engine.submit("prints", {"kind": kind})
    engine.noted("prints")
    others = engine.submit_many("beside", [{"n": n} for n in range(5)])
    engine.wait_all(others)
    assert engine.wait(run_id).output == kind
    assert memory_mb(worker.pid) - before < 50
    for number, run in enumerate(others):
        engine.until(lambda run=run: engine.log_of(run), "its log is stored")
        assert engine.log_of(run) == f"line of {number}\n"
    engine.until(lambda: "the end" in engine.log_of(run_id), "the end of the log is stored")
    text = engine.log_of(run_id)
    assert text.startswith("the beginning")
    if kind != "stderr first":
        assert len(text) < 5 * 1024 * 1024, "an escaped byte takes four characters"
        assert "dropped" in engine.log_of(run_id, "note")
    if kind == "binary":
        assert "\\x80\\x81" in text


def memory_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1000
    raise AssertionError(pid)


BUSY = """
@pipeline(concurrency=None)
def busy(seconds):
    note("busy")
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        count += 1
    return count
"""


def test_c65_step_that_uses_all_cpus(engine: Engine) -> None:
    """**Set up** twice as many slots as CPUs, a pure Python loop in each for several times the
    heartbeat timeout; another worker watches. **Must** beat no later than half the timeout after
    it was due; no recovery takes place.
    """
    engine.module("m", BUSY)
    engine.deploy()
    heartbeat = 0.5
    busy = engine.worker(slots=2 * (os.cpu_count() or 1), heartbeat_s=heartbeat)
    worker = engine.worker_id(busy)
    runs = engine.submit_many("busy", [{"seconds": 8 * heartbeat}] * len(busy.slots()))
    engine.noted("busy", len(runs))
    engine.worker(slots=1, heartbeat_s=heartbeat, ready=False)
    beat, seen, gaps = -1, monotonic(), []

    def watch() -> bool:
        nonlocal beat, seen
        now, latest = (
            monotonic(),
            engine.one("select beat from suimon.workers where id = %s", worker),
        )
        if latest != beat:
            gaps.append(now - seen)
            beat, seen = latest, now
        return all(engine.run(run).over for run in runs)

    engine.until(watch, "all loops have ended")
    assert max(gaps) < heartbeat + 3 * heartbeat / 2, gaps
    assert len(gaps) > 4
    assert engine.one("select count(*) from suimon.workers where dead") == 0
    assert {engine.run(run).attempt for run in runs} == {1}
