"""How long a run waits before it begins: from before the call that submits it to its first line.

Both ends read CLOCK_BOOTTIME of the same machine, the task's end in its own first line. The result
brings it back, so nothing is asked while the measurement goes on.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

from bench.meter import Figure, spread
from bench.place import SQL, Place, WrongResultError, held_snapshot
from suimon.client import Client

if TYPE_CHECKING:
    from bench.scenarios import Size

GAP_SECONDS = 0.1
MIXED_GAP_SECONDS = 0.03
MIXED_MOST = 2_000
SNAPSHOT_WORKERS = 4
SNAPSHOT_RATE = 100


def wakeup(place: Place, size: Size) -> list[Figure]:
    """One idle worker, one run at a time, with a gap in which it becomes idle again."""
    place.start_worker()
    sent: dict[str, int] = {}
    calls: list[float] = []
    for n in range(size.wakeups + 5):
        before = _now()
        run = place.submit("clock", {"n": n})
        if n >= 5:  # the first ones pay for plans and imports, once in a worker's life
            sent[run] = before
            calls.append((_now() - before) / 1e6)
        time.sleep(GAP_SECONDS * random.uniform(0.5, 1.5))
    waits, queued = _waits(place, sent)
    return [
        *spread("wake-up", waits),
        *spread("of that, the submitting call", calls),
        *spread("from its row to its claim", queued),
    ]


def mixture(place: Place, size: Size) -> list[Figure]:
    """Single runs every 30 ms from another connection while a fan-out is drained."""
    place.start_worker()
    ending = threading.Event()
    sent: dict[str, int] = {}
    thread = threading.Thread(target=_trickle, args=(place.url, sent, ending))
    began = time.monotonic()
    run = place.submit("fan", {"count": size.children})
    thread.start()
    try:
        place.follow(run, size.children)
    finally:
        ending.set()
        thread.join()
    seconds = time.monotonic() - began
    place.check_children(run, size.children)
    waits, queued = _waits(place, sent)
    return [
        Figure("children", size.children / seconds, "/s"),
        Figure("single runs started meanwhile", len(sent), ""),
        *spread("start of a single run", waits),
        *spread("from its row to its claim", queued),
    ]


def beside_snapshot(place: Place, size: Size) -> list[Figure]:
    """100 short runs a second for so many minutes while a snapshot is held open; then a tenth as
    long without it. What is compared are the first and the last window under it (a sixth each).
    """
    for n in range(SNAPSHOT_WORKERS):
        place.start_worker(slots=1, name=f"bench-{n}")
    held_s = size.minutes * 60
    with held_snapshot(place.url):
        sent = _paced(place, held_s)
    after = _paced(place, held_s / 10)
    waits, _ = _waits(place, {**sent, **after})
    under, later = waits[: len(sent)], waits[len(sent) :]  # in the order of their ids: of time
    window = max(1, len(under) // 6)
    first, last = under[:window], under[-window:]
    figures = [
        *spread("start in the first window", first),
        *spread("start in the last window", last),
        *spread("start after it was closed", later),
    ]
    p95 = [_p95(part) for part in (first, last, later)]
    return [
        *figures,
        Figure("last / first, 95 %", p95[1] / p95[0], "x"),
        Figure("after / first, 95 %", p95[2] / p95[0], "x"),
    ]


def _p95(waits: list[float]) -> float:
    return sorted(waits)[int(len(waits) * 0.95)]


def _paced(place: Place, seconds: float) -> dict[str, int]:
    """100 a second, one by one, each with the instant before its call."""
    sent: dict[str, int] = {}
    began = time.monotonic()
    while (gone := time.monotonic() - began) < seconds:
        if len(sent) >= gone * SNAPSHOT_RATE:
            time.sleep(0.002)
            continue
        before = _now()
        sent[place.submit("clock", {"n": len(sent)})] = before
    return sent


def _trickle(url: str, sent: dict[str, int], ending: threading.Event) -> None:
    with Client(url) as client:
        while not ending.is_set() and len(sent) < MIXED_MOST:
            before = _now()
            sent[client.submit("clock", {"n": len(sent)}).id] = before
            ending.wait(MIXED_GAP_SECONDS)


def _waits(place: Place, sent: dict[str, int]) -> tuple[list[float], list[float]]:
    """Milliseconds between each submit and its run's first line; those it stood in the queue."""
    place.until(
        lambda: place.one(SQL.drained, pipeline="clock")[0] >= len(sent), "the last single runs"
    )
    rows = place.conn.execute(SQL.starts, {"ids": list(sent)}).fetchall()
    if len(rows) != len(sent):
        msg = f"{len(rows)} of {len(sent)} single runs have a result"
        raise WrongResultError(msg)
    waits = [(int(began) - sent[run]) / 1e6 for run, began, _ in rows]
    return waits, [float(queued) for _, _, queued in rows]


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
