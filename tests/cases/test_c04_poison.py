"""C04: a step that always kills what it runs in."""

from __future__ import annotations

import pytest
from support.engine import Engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

CODE = """
def parent_of(pid):
    with open("/proc/%d/stat" % pid) as file:
        return int(file.read().rsplit(") ", 1)[1].split()[1])

@pipeline(max_interruptions=2)
def bad(victim="slot"):
    note("bad", os.getpid())
    pid = {"slot": os.getpid(), "guardian": os.getppid(), "worker": parent_of(os.getppid())}[victim]
    os.kill(pid, signal.SIGKILL)
    time.sleep(1000)

@pipeline(concurrency=None)
def good(n=0):
    note("good", n)
    time.sleep(0.05)
    return n
"""


@pytest.mark.parametrize("victim", ["slot", "guardian", "worker"])
def test_c04_a_step_that_always_kills_its_worker(engine: Engine, victim: str) -> None:
    """**Set up** three workers that are started again when they die, at most 3 attempts, ten
    ordinary runs. **Do** start a run that kills its slot, its guardian, its worker.
    **Must** make at most 3 attempts, fail with the reason and the workers' names; the ten finish;
    the count rises with the claim.
    """
    engine.module("m", CODE)
    engine.deploy()
    for _ in range(3):
        engine.worker(slots=2)
    bad = engine.submit("bad", {"victim": victim})
    good = engine.submit_many("good", [{"n": n} for n in range(10)])

    def supervise() -> bool:
        for worker in engine.workers:
            if not worker.running and worker.process.returncode != 0:
                worker.process.returncode = 0  # buried once
                engine.worker(slots=2, ready=False)
        return engine.run(bad).over

    engine.until(supervise, "the bad run has ended")
    engine.wait_all(good)
    run = engine.run(bad)
    assert run.status == "failed"
    assert len(engine.project.lines("bad")) == 3
    assert run.attempt == 3
    assert run.error["type"] == "Poisoned"
    what = "a worker" if victim == "worker" else "a slot"
    assert f"{what} died 3 times" in run.error["message"]
    names = {worker.name for worker in engine.workers}
    assert len(run.error["workers"]) == 3
    assert set(run.error["workers"]) <= names
    if victim == "worker":
        assert len(set(run.error["workers"])) == 3
    assert [row[:2] for row in engine.attempts(bad)] == [(1, "interrupted"), (2, "interrupted")]
    assert sorted({n for (n,) in engine.project.lines("good")}) == sorted(map(str, range(10)))
