"""Log text of real slots: kept by try, bounded in every way of writing, harmless in any amount."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.engine import Engine

from suimon.run import logs

pytestmark = [pytest.mark.acceptance, pytest.mark.long]

MEGABYTE = 1024 * 1024
CODE = """
SIZE = 200 * 1024 * 1024

@pipeline(concurrency=None)
def flood(how):
    note("flood")
    os.write(2, b"raw beginning\\n")
    print("the beginning", flush=True)
    if how == "lines":
        line = "x" * 799 + chr(10)
        for _ in range(SIZE // 800):
            sys.stdout.write(line)
    elif how == "no newline":
        for _ in range(SIZE // 65536):
            sys.stdout.write("y" * 65536)
    elif how == "raw bytes":
        block = bytes(range(256)) * 4096
        for _ in range(SIZE // len(block)):
            os.write(1, block)
    else:
        for _ in range(SIZE // 65536):
            sys.stderr.buffer.write(b"\\xe3\\x81" * 32768)
    print("the end")
    os.write(2, b"raw end")
    return how

@pipeline(concurrency=None)
def beside(n):
    print("line of", n)
    return n

@pipeline(concurrency=None, retries=2, backoff="10ms")
def three_tries(ctx):
    print("printed", ctx.attempt)
    ctx.log("logged", attempt=ctx.attempt)
    print("to stderr", ctx.attempt, file=sys.stderr)
    subprocess.run([sys.executable, "-c", "print('below', %d)" % ctx.attempt], check=True)
    if ctx.attempt < 3:
        raise ValueError("not yet")

@pipeline(concurrency=None)
def odd_bytes():
    os.write(1, b"a\\x00b")
    sys.stdout.write("c" + chr(0) + "d" + chr(0xd800) + chr(10))
    text = ("\\u65e5" * 50_000).encode()
    for at in range(0, len(text), 1000):
        os.write(2, text[at:at + 1000])
    return "well"
"""


@pytest.fixture
def deployed(engine: Engine) -> Engine:
    engine.module("m", CODE)
    engine.deploy()
    return engine


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


@contextmanager
def highest(*pids: int) -> Iterator[dict[int, float]]:
    """The most that each of these processes held above what it held at first, in MB."""
    first = {pid: resident_mb(pid) for pid in pids}
    most = dict.fromkeys(pids, 0.0)
    ending = threading.Event()

    def watch() -> None:
        while not ending.wait(0.02):
            for pid in pids:
                try:
                    most[pid] = max(most[pid], resident_mb(pid) - first[pid])
                except OSError:
                    return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        ending.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["lines", "no newline", "raw bytes", "half characters"])
def test_two_hundred_megabytes_harm_nobody(deployed: Engine, how: str) -> None:
    """Neither worker nor slot grows by 50 MB; others go on beside it; beginning, end and a note of
    what is missing are kept, at most 1 MB of each way of writing (an escaped byte takes four).
    """
    worker = deployed.worker(slots=2)
    with highest(worker.pid, *worker.slots()) as most:
        run = deployed.submit("flood", {"how": how})
        deployed.noted("flood")
        others = deployed.submit_many("beside", [{"n": n} for n in range(5)])
        deployed.wait_all(others)
        deployed.wait(run, patience=200)
    assert max(most.values()) < 50, most
    wanted = ("the beginning", "the end", "raw beginning", "raw end")
    deployed.until(lambda: all(word in deployed.log_of(run) for word in wanted), "all that is kept")
    size = deployed.one("select sum(octet_length(body)) from suimon.logs where run_id = %s", run)
    assert size < 5 * MEGABYTE
    assert "dropped" in deployed.log_of(run, "note")
    for number, other in enumerate(others):
        deployed.until(lambda other=other: deployed.log_of(other), "its log is stored")
        assert deployed.log_of(other) == f"line of {number}\n"


def test_each_try_has_its_text(deployed: Engine) -> None:
    """`ctx.log`, print, standard error and what a subprocess writes, three times over."""
    deployed.worker(slots=1)
    run = deployed.submit("three_tries")
    deployed.wait(run)
    deployed.until(lambda: "below 3" in deployed.log_of(run), "the last text")
    tries = logs.tries(deployed.conn, run)
    assert [(one["attempt"], one["how"]) for one in tries] == [
        (1, "failed"), (2, "failed"), (3, "succeeded"),
    ]  # fmt: skip
    for one in tries:
        number = one["attempt"]
        text = "".join(
            piece["text"] for piece in logs.pieces(deployed.conn, run, claims=[one["claim_no"]])
        )
        for word in (f"printed {number}", "logged", f"to stderr {number}", f"below {number}"):
            assert word in text, (number, text)
        others = {1, 2, 3} - {number}
        assert not any(f"printed {other}" in text or f"below {other}" in text for other in others)
    streams = {piece["stream"] for piece in logs.pieces(deployed.conn, run)}
    assert streams == {"log", "stdout", "stderr"}


def test_bytes_that_no_text_can_hold(deployed: Engine) -> None:
    """NUL and lone surrogates are shown escaped; a character is not torn where a read ends."""
    deployed.worker(slots=1)
    run = deployed.submit("odd_bytes")
    assert deployed.wait(run).output == "well"
    deployed.until(lambda: deployed.log_of(run, "stderr").count("\u65e5") > 49_000, "the text")
    assert "a\\x00b" in deployed.log_of(run, "stdout")
    assert "c\\x00d\\ud800" in deployed.log_of(run, "stdout")
    assert "\\x" not in deployed.log_of(run, "stderr")
