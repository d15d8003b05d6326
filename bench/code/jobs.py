"""What the benchmark runs: tasks that do next to nothing, so that the engine is what is measured.

Each result follows from the input, so that a stored result can be compared with what it must be.
"""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Iterator
from typing import Any

from suimon import Destination, Pipeline, task

#: Limits that never bind: what is measured is what keeping them costs.
wide = Destination("wide", rate="100000/s", burst=100_000, concurrency=2_000)


@task
def nothing(n: int) -> int:
    """The job: one multiplication, so that its result cannot be right by chance."""
    return 2 * n + 1


@task(destination=wide)
def nothing_wide(n: int) -> int:
    """The same, after its turn at a destination."""
    return 2 * n + 1


@task
def numbers(count: int) -> Iterator[int]:
    """The list of a fan-out, streamed: it is never in memory as a whole."""
    yield from range(count)


@task
def look_at_the_clock(n: int) -> dict[str, Any]:
    """Its first line reads the clock that the submitter has read before its call."""
    return {"began_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME), "n": n}


def rows_of(n: int) -> list[dict[str, Any]]:
    """About 32 KB of JSON as tables have it."""
    dice = random.Random(n)
    return [
        {"id": n * 1000 + i, "name": f"station {i}", "reading": dice.random(), "state": "open"}
        for i in range(410)
    ]


def noise_of(n: int) -> str:
    """32 KB of base64, which has nothing to be made smaller but its alphabet."""
    return base64.b64encode(random.Random(n).randbytes(24 * 1024)).decode()


@task
def rows(n: int) -> list[dict[str, Any]]:
    return rows_of(n)


@task
def noise(n: int) -> str:
    return noise_of(n)


single = Pipeline("single", concurrency=None, max_queued=None)
single.run("job", nothing, single.input.n)

clock = Pipeline("clock", concurrency=None, max_queued=None)
clock.run("job", look_at_the_clock, clock.input.n)


def fan(name: str, limit: int | None, job: Any = nothing) -> Pipeline:
    """A fan-out over `count` numbers with a strict merge."""
    made = Pipeline(name, concurrency=None)
    rows = made.run("rows", numbers, made.input.count)
    made.merge("outcome", made.spawn("jobs", job, rows, concurrency=limit))
    return made


unlimited = fan("fan", None)
limit_200 = fan("fan-200", 200)
limit_1000 = fan("fan-1000", 1000)
with_destination = fan("fan-wide", None, nothing_wide)
single_wide = Pipeline("single-wide", concurrency=None, max_queued=None)
single_wide.run("job", nothing_wide, single_wide.input.n)
with_rows = fan("fan-rows", None, rows)
with_noise = fan("fan-noise", None, noise)
