"""C12, C13: the worker's disk is full; a result is too large to store."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engine import Engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

DISK = """
@pipeline(concurrency=None)
def writes(megabytes, ctx):
    ctx.log.info("writing " + str(megabytes) + " MB")
    note("writes", ctx.attempt)
    with open(os.path.join(os.environ["TMPDIR"], "work"), "wb") as file:
        for _ in range(megabytes):
            file.write(b"x" * 1_000_000)
            file.flush()
    return megabytes

@pipeline(concurrency=None)
def folder():
    with open(os.path.join(os.environ["TMPDIR"], "small"), "wb") as file:
        file.write(b"x" * 1000)
    return os.listdir(os.environ["TMPDIR"])
"""


@pytest.fixture
def small_disk(engine: Engine) -> Iterator[Path]:
    """16 MB of file system where the worker keeps its slots' files."""
    folder = engine.folder / "small-disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(folder)],
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip("only root may mount a tmpfs here; RLIMIT_FSIZE below is tried by anyone")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def check_disk(engine: Engine, worker_files: Path | None) -> None:
    worker = engine.worker(slots=1, folder=str(worker_files) if worker_files else None)
    large = engine.wait(engine.submit("writes", {"megabytes": 50}), "failed")
    assert "disk is full" in large.error["message"] or "File too large" in large.error["message"]
    assert large.attempt == 1
    assert "writing 50 MB" in engine.log_of(large.id)
    assert engine.wait(engine.submit("folder")).output == ["small"], "the large file is gone"
    assert engine.wait(engine.submit("writes", {"megabytes": 2})).output == 2
    assert worker.running
    assert len(engine.project.lines("writes")) == 2


def test_c12_disk_of_the_worker_full(engine: Engine, small_disk: Path) -> None:
    """**Set up** a worker whose files lie on 16 MB. **Do** a run that writes 50 MB, then small
    ones. **Must** fail the large one saying that the disk is full, remove its files, keep its log;
    worker and small runs are well; no retry that nobody asked for.
    """
    engine.module("m", DISK)
    engine.deploy()
    check_disk(engine, small_disk)


def test_c12_file_size_limit_of_the_worker(engine: Engine) -> None:
    """The same where the limit is on a file's size (RLIMIT_FSIZE, inherited by the slots)."""
    engine.module("m", DISK)
    engine.deploy()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    worker = engine.worker(slots=1)
    for pid in [worker.pid, worker.guardian(), *worker.slots()]:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (16_000_000, before[1]))
    large = engine.wait(engine.submit("writes", {"megabytes": 50}), "failed")
    assert "File too large" in large.error["message"]
    assert engine.wait(engine.submit("folder")).output == ["small"]
    assert worker.running


RESULTS = """
@pipeline(concurrency=None, retries=2, backoff="10ms")
def returns(size):
    note("returns", size)
    return "x" * size

@task
def large(size):
    note("large", size)
    return "x" * size

@task
def measure(text):
    return len(text)

p = Pipeline("steps", concurrency=None)
p.run("measured", measure, p.run("made", large, p.input.size))
"""


@pytest.mark.parametrize("size", [100_000, 5_000_000, 17_000_000, 60_000_000])
def test_c13_result_too_large_to_store(engine: Engine, size: int) -> None:
    """**Do** runs whose step returns 100 KB, 5 MB, 17 MB, 60 MB. **Must** store up to the limit of
    16 MiB; above it the step fails once, with size and limit in the message, though retries are
    allowed; the run ends; nothing stays in progress.
    """
    engine.module("m", RESULTS)
    engine.deploy()
    engine.worker(slots=1)
    whole, steps = engine.submit("returns", {"size": size}), engine.submit("steps", {"size": size})
    if size < 16 * 1024 * 1024:
        assert len(engine.wait(whole).output) == size
        assert engine.wait(steps).output == size
    else:
        for run in (engine.wait(whole, "failed"), engine.wait(steps, "failed")):
            assert run.error["type"] == "PayloadTooLarge"
            assert "16" in run.error["message"] + str(run.error)
            assert run.attempt == 1
        assert len(engine.project.lines("returns")) == 1
        assert len(engine.project.lines("large")) == 1
    live = "select count(*) from suimon.runs where status in ('queued', 'running', 'waiting')"
    assert engine.one(live) == 0
