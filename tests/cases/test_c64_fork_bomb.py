"""C64: user code that starts processes without end."""

from __future__ import annotations

import subprocess
import time

import pytest
from support.engine import Engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.long]

#: Should nobody stop them, these bombs stop by themselves: below 2,000 processes, after 60 s.
CODE = r"""
@pipeline(concurrency=None)
def loop():
    for _ in range(2000):
        if os.fork() == 0:
            try:
                time.sleep(60)
            finally:
                os._exit(0)
    time.sleep(60)

@pipeline(concurrency=None)
def doubling():
    mine = os.getpid()
    try:
        for _ in range(10):
            os.fork()
        time.sleep(60)
    finally:
        if os.getpid() != mine:
            os._exit(0)

@pipeline(concurrency=None)
def shell():
    bomb = 'f(){ [ "$1" -gt 9 ] && exec sleep 60; f $(($1+1)) | f $(($1+1)) & wait; }; f 0'
    subprocess.run(["sh", "-c", bomb], start_new_session=True)
    time.sleep(60)

@pipeline(concurrency=None)
def sessions():
    bomb = 'setsid sh -c "$0" "$0" & ' * 3 + "exec sleep 60"
    depth = 'n=${N:-0}; export N=$((n+1)); [ $n -gt 5 ] && exec sleep 60; ' + bomb
    subprocess.run(["sh", "-c", depth, depth])
    time.sleep(60)

@pipeline(concurrency=None)
def zombies():
    for _ in range(2000):
        if os.fork() == 0:
            os._exit(0)
    time.sleep(60)

@pipeline(concurrency=None)
def ordinary(n=0):
    note("begun", n)
    subprocess.run(["sleep", "1"])
    return n
"""


@pytest.mark.parametrize("bomb", ["loop", "doubling", "shell", "sessions", "zombies"])
def test_c64_fork_bomb(engine: Engine, bomb: str) -> None:
    """**Set up** the limit as documented (256); the worker serves five ordinary runs beside it.
    **Must** be stopped by the limit, fail with a message that says so; the host answers, the five
    finish, all is gone within 30 s.
    """
    engine.module("m", CODE)
    engine.deploy()
    engine.worker(slots=2, heartbeat_s=3.0)
    runs = engine.submit_many("ordinary", [{"n": n} for n in range(2)])
    engine.noted("begun", 1)
    bad = engine.submit(bomb)
    runs += engine.submit_many("ordinary", [{"n": n} for n in range(2, 5)])
    answers = []

    def over() -> bool:
        began = time.monotonic()
        subprocess.run(["true"], check=True)
        answers.append(time.monotonic() - began)
        return engine.run(bad).over

    engine.until(over, "the bomb was stopped", 30)
    ended = engine.run(bad)
    assert ended.status == "failed"
    assert ended.error["type"] == "ProcessLimit"
    assert ended.error["message"].startswith("processes: ")
    assert "256 allowed" in ended.error["message"]
    assert max(answers) < 5, "the host did not answer"
    engine.wait_all(runs)
    assert not engine.attempts(bad), "it was no interruption"
    for worker in engine.workers:
        worker.term()
        assert worker.wait() == 0
    engine.none_left()


def test_c64_the_limit_is_an_option(engine: Engine) -> None:
    """`--processes-per-slot`; what stays below it is left alone."""
    code = """
@pipeline(concurrency=None)
def many(n: int):
    note("begun", n)
    some = [subprocess.Popen(["sleep", "60"]) for _ in range(n)]
    await_mark(f"go{n}")
    for one in some:
        one.kill()
        one.wait()
    return n
"""
    engine.module("m", code)
    engine.deploy()
    engine.command_worker("--processes-per-slot", "20", slots=1)
    below = engine.submit("many", {"n": 15})
    engine.noted("begun")
    engine.project.mark("go15")
    assert engine.wait(below).output == 15
    ended = engine.wait(engine.submit("many", {"n": 25}), "failed")
    assert "20 allowed" in ended.error["message"]
