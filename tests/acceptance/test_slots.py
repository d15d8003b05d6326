"""One slot goes wrong: its run is dealt with, the slot is replaced, the others do not notice."""

from __future__ import annotations

import pytest
from support.engine import Engine

pytestmark = pytest.mark.acceptance

CODE = """
@pipeline(concurrency=None, timeout="500ms", retries=1, backoff="10ms")
def sleeps_once(how="sleep"):
    note("tries", os.getpid())
    if once("slept"):
        time.sleep(1000)
    return os.getpid()

@pipeline(concurrency=None, timeout="300ms")
def sleeps_always():
    note("always", os.getpid())
    time.sleep(1000)

@pipeline(concurrency=None)
def plain(n=0):
    return n + 1

@pipeline(concurrency=None)
def crash_once():
    note("crash", os.getpid())
    if once("crashed"):
        ctypes.string_at(0)
    return "well"

@pipeline(concurrency=None)
def leaves_thread():
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return threading.active_count()

@pipeline(concurrency=None)
def exits(code=0):
    sys.exit(code)

@pipeline(concurrency=None)
def eats():
    note("eats", os.getpid())
    held = []
    for _ in range(2000):
        held.append(bytearray(b"x") * 1_000_000)
        time.sleep(0.001)
"""


@pytest.fixture
def deployed(engine: Engine) -> Engine:
    engine.module("m", CODE)
    engine.deploy()
    return engine


def test_a_sync_task_past_its_timeout_loses_its_slot_and_is_tried_again(deployed: Engine) -> None:
    worker = deployed.worker(slots=1)
    run = deployed.wait(deployed.submit("sleeps_once"))
    tries = deployed.project.lines("tries")
    assert len(tries) == 2
    assert tries[0] != tries[1], "the second try was in the slot that hung"
    assert [row[:2] for row in deployed.attempts(run.id)] == [(1, "timed_out")]
    assert run.attempt == 2
    assert worker.slots() == [int(tries[1][0])]


def test_a_timeout_without_retries_ends_the_run_timed_out(deployed: Engine) -> None:
    worker = deployed.worker(slots=1)
    run = deployed.wait(deployed.submit("sleeps_always"), "timed_out")
    assert run.error["message"] == "it ran longer than its timeout of 0.3 s"
    assert run.attempt == 1
    assert deployed.wait(deployed.submit("plain", {"n": 1})).output == 2
    hung = int(deployed.project.lines("always")[0][0])
    assert hung not in worker.slots()


def test_a_slot_that_crashes_in_c_code_is_replaced_and_its_run_repeated(deployed: Engine) -> None:
    worker = deployed.worker(slots=1)
    run = deployed.wait(deployed.submit("crash_once"))
    assert run.output == "well"
    assert run.interruptions == 1
    assert deployed.attempts(run.id) == [(1, "interrupted", "w1", "")]
    assert len(deployed.project.lines("crash")) == 2
    assert worker.running
    assert "signal 11" in worker.log


def test_threads_left_behind_do_not_hold_the_slot(deployed: Engine) -> None:
    deployed.worker(slots=1)
    runs = [deployed.submit("leaves_thread") for _ in range(3)]
    deployed.wait_all(runs)
    assert deployed.wait(deployed.submit("plain")).output == 1


@pytest.mark.parametrize("code", [0, 3])
def test_sys_exit_fails_the_run_not_the_slot(deployed: Engine, code: int) -> None:
    worker = deployed.worker(slots=1)
    before = worker.slots()
    run = deployed.wait(deployed.submit("exits", {"code": code}), "failed")
    assert "exit" in run.error["type"].lower() or "exit" in run.error["message"].lower()
    assert worker.slots() == before


def test_a_slot_above_its_memory_limit_is_ended_and_says_so(deployed: Engine) -> None:
    worker = deployed.worker(slots=1, memory_per_slot_mb=200)
    run = deployed.wait(deployed.submit("eats"), "failed")
    assert run.error["type"] == "MemoryLimit"
    assert "200 MB allowed" in run.error["message"]
    assert deployed.wait(deployed.submit("plain")).output == 1
    assert worker.running
