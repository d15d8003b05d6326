"""The scenarios by name. Each gets a fresh database and gives back its figures.

None of them judges: a slow machine is no error. What is judged is that the work was done: results
are read back, and a wrong or missing one ends the benchmark.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench import calls, history, idle, latency, payloads, submit
from bench.meter import Figure
from bench.place import SQL, Place, held_snapshot, rate, say


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done; `--quick` takes a tenth."""

    children: int = 100_000
    million: int = 1_000_000
    small: int = 10_000
    calls: int = 20_000
    wakeups: int = 400
    submit_s: float = 8.0
    idle_s: float = 30.0
    minutes: float = 5.0


QUICK = Size(10_000, 100_000, 1_000, 2_000, 40, 2.0, 12.0, 0.5)


@dataclass(frozen=True, slots=True)
class Scenario:
    """`repeats` times on a fresh database each, at most `bound_s` seconds a time."""

    about: str
    measure: Callable[[Place, Size], list[Figure]]
    repeats: int
    bound_s: float


def drain(place: Place, size: Size) -> list[Figure]:
    """All runs are there before the worker comes: from its first claim to the last end.

    The processor time includes the start of worker and slots.
    """
    ids = place.submit_many("single", size.children)
    place.start_worker(ready=False)
    cost = place.cost()
    place.until(
        lambda: place.one(SQL.drained, pipeline="single")[0] >= size.children,
        f"{size.children:,} runs",
        pause=0.5,
    )
    seconds, count, well = place.one(SQL.drain_time, pipeline="single")
    spent = cost.figures(place.backends())
    assert well, "a run did not succeed"
    place.check_runs(ids)
    return [rate("drained", count, seconds), *spent]


def fan_out(place: Place, pipeline: str, count: int, *, costs: bool = True) -> list[Figure]:
    """From the birth of the parent to its end, with the worker idle at the start."""
    worker = place.start_worker()
    cost = place.cost()
    run = place.submit(pipeline, {"count": count})
    seconds = place.follow(run, count)
    spent = cost.figures(place.backends())
    place.check_children(run, count)
    first, last, between, ended = place.one(SQL.tenths, run=run)
    assert ended == count
    spawned = place.one(SQL.spawned, run=run)[0]
    for line in worker.complaints()[:5]:
        say(f"    the worker says: {line}")
    return [
        rate("whole fan-out", count, seconds),
        Figure("whole fan-out took", seconds, "s"),
        Figure("its list was stored after", spawned, "s"),
        rate("first tenth ended at", count / 10, first),
        rate("last tenth ended at", count / 10, last),
        Figure("last tenth / first tenth", first / last if last else 0.0, "x"),
        Figure("before the first and after the last end", seconds - between, "s"),
        *(spent if costs else []),
    ]


def fanout(place: Place, size: Size) -> list[Figure]:
    return fan_out(place, "fan", size.children)


def fanout_200(place: Place, size: Size) -> list[Figure]:
    return fan_out(place, "fan-200", size.children)


def fanout_1000(place: Place, size: Size) -> list[Figure]:
    return fan_out(place, "fan-1000", size.children)


def snapshot(place: Place, size: Size) -> list[Figure]:
    """The same while a repeatable-read transaction elsewhere keeps every dead row alive."""
    with held_snapshot(place.url):
        return fan_out(place, "fan", size.children, costs=False)


def snapshot_drain(place: Place, size: Size) -> list[Figure]:
    """Dead rows pile up over ten times the drain's length; nothing is spawned meanwhile."""
    place.submit_many("single", size.children)
    with held_snapshot(place.url):
        place.start_worker(ready=False)
        place.until(
            lambda: place.one(SQL.drained, pipeline="single")[0] >= size.children,
            f"{size.children:,} runs",
            pause=0.5,
        )
        first, last, _, count = place.one(SQL.drain_tenths, pipeline="single")
    return [
        rate("first tenth ended at", count / 10, first),
        rate("last tenth ended at", count / 10, last),
        Figure("last tenth / first tenth", first / last if last else 0.0, "x"),
    ]


def memory(place: Place, size: Size) -> list[Figure]:
    """A fan-out of ten thousand, then, in a new worker, one of a million."""
    peaks: list[dict[str, float]] = []
    figures: list[Figure] = []
    for count in (size.small, size.million):
        worker = place.start_worker()
        began = time.monotonic()
        run = place.submit("fan", {"count": count})
        seconds = place.follow(run, count)
        place.check_children(run, count)
        peaks.append(worker.memory.peaks())
        worker.stop()
        say(f"    {count:,} children in {time.monotonic() - began:.1f} s")
        figures.append(rate(f"whole fan-out of {count:,}", count, seconds))
        first, last, _, _ = place.one(SQL.tenths, run=run)
        if count == size.million:
            figures.append(Figure("last tenth / first tenth", first / last, "x"))
    small, large = peaks
    for role in ("worker", "slot"):
        for count, peak in ((size.small, small), (size.million, large)):
            figures.append(Figure(f"peak memory of {role} at {count:,}", peak[role], "MB"))
        figures.append(Figure(f"{role}: more at the larger one", large[role] - small[role], "MB"))
    return figures


SCENARIOS: dict[str, Scenario] = {
    "submit": Scenario("bulk and single submit, no worker", submit.measure, 3, 180),
    "drain": Scenario("runs that are there already, one worker of 2 slots", drain, 3, 180),
    "fanout": Scenario("a whole fan-out, no limit", fanout, 3, 240),
    "fanout-200": Scenario("the same with concurrency=200", fanout_200, 1, 300),
    "fanout-1000": Scenario("the same with concurrency=1000", fanout_1000, 1, 300),
    "limit": Scenario("a drain with and without destination=", calls.limit, 1, 400),
    "calls": Scenario("three workers call a server that counts", calls.calls, 1, 600),
    "snapshot": Scenario("a whole fan-out under a held snapshot", snapshot, 1, 600),
    "snapshot-drain": Scenario("a drain under a held snapshot", snapshot_drain, 1, 600),
    "snapshot-starts": Scenario(
        "100 short runs a second under a held snapshot, four workers",
        latency.beside_snapshot,
        1,
        7200,
    ),
    "history": Scenario("beside a million finished runs", history.history, 1, 900),
    "memory": Scenario("a million children: rate and peak memory", memory, 1, 900),
    "payloads": Scenario("a fan-out of 32 KB results", payloads.payloads, 1, 300),
    "idle": Scenario("what an idle worker sends", idle.measure, 1, 120),
    "wakeup": Scenario("from submit to the first line, one idle worker", latency.wakeup, 1, 240),
    "mixture": Scenario("single runs while a fan-out is drained", latency.mixture, 1, 240),
}
