"""What one slot costs per run that does nothing: `python bench/slot_overhead.py [RUNS]`.

One real slot process, driven over its pipes in batches of 500 with two batches on their way, as a
worker does. Prints microseconds per run for the slot, and per line for the worker's parsing.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.slot_harness import SlotHarness

from suimon.worker import wire

BATCH = 500
CODE = """
from __future__ import annotations
from suimon.task import task

@task
def nothing(n: int):
    return None

@task
def dictionary(row: dict, ctx):
    return {"id": row["id"], "ok": True}

@task
async def waits(n: int):
    return None
"""


def drive(slot: SlotHarness, program: int, items: list[object], total: int) -> float:
    """Seconds for `total` runs with two batches on their way."""
    entries = [(n, item, ["0198f2c0-0000-7000-8000-000000000000", 1, None, "p"])
               for n, item in enumerate(items)]  # fmt: skip
    batch = wire.runs(program, entries)
    started = time.perf_counter()
    slot.send(batch)
    sent, done = BATCH, 0
    while done < total:
        if sent < total and sent - done <= BATCH:
            slot.send(batch)
            sent += BATCH
        for line in slot.buffer.feed(os.read(slot.from_fd, 1 << 20)):
            assert line[0] == 83, line
            done += 1
    return time.perf_counter() - started


def parse_cost() -> float:
    lines = b"S 123456 17 null\n" * 100_000
    started = time.perf_counter()
    for line in wire.LineBuffer().feed(lines):
        line.split(b" ", 3)
    return (time.perf_counter() - started) * 10


def main() -> None:
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    total -= total % BATCH
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "code_of_user.py").write_text(CODE)
        with SlotHarness(Path(folder), async_slots=16) as slot:
            kinds = {
                "sync, no context": ("nothing", list(range(BATCH))),
                "sync, dict and ctx": (
                    "dictionary",
                    [{"id": n, "name": "x"} for n in range(BATCH)],
                ),
                "async, 16 share": ("waits", list(range(BATCH))),
            }
            for label, (name, items) in kinds.items():
                program = slot.task(f"code_of_user:{name}", item=True)
                drive(slot, program, items, 5_000)
                seconds = drive(slot, program, items, total)
                print(f"{label:20} {seconds / total * 1e6:6.2f} us per run")
    print(f"{'worker: split a line':20} {parse_cost():6.2f} us per line")


if __name__ == "__main__":
    main()
