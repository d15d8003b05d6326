"""Submitting: many at once, one after the other, and eight processes at once. No worker runs."""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING

from bench.meter import Figure, spread
from bench.place import Place, rate
from suimon.client import Client

if TYPE_CHECKING:
    from bench.scenarios import Size

CLIENTS = 8
_START_SECONDS = 4.0  # until the last of the clients has been imported and connected


def measure(place: Place, size: Size) -> list[Figure]:
    began = time.monotonic()
    count = len(place.submit_many("single", size.children))
    figures = [rate("bulk, 10,000 a call", count, time.monotonic() - began)]
    began = time.monotonic()
    taken = one_client(place.url, began, began + size.submit_s)
    figures.append(rate("single, 1 client", len(taken), time.monotonic() - began))
    figures += spread("single, 1 client", taken)
    begin = time.monotonic() + _START_SECONDS
    with multiprocessing.get_context("spawn").Pool(CLIENTS) as pool:
        asked = [(place.url, begin, begin + size.submit_s)] * CLIENTS
        answers = pool.starmap(one_client, asked, chunksize=1)
    together = [one for answer in answers for one in answer]
    figures.append(rate(f"single, {CLIENTS} clients", len(together), size.submit_s))
    figures += spread(f"single, {CLIENTS} clients", together)
    return figures


def one_client(url: str, begin: float, end: float) -> list[float]:
    """Submit one run after the other between two instants; milliseconds of each call."""
    taken: list[float] = []
    with Client(url) as client:
        client.submit("single", {"n": 0})
        time.sleep(max(0.0, begin - time.monotonic()))
        while (before := time.monotonic()) < end:
            client.submit("single", {"n": len(taken)})
            taken.append((time.monotonic() - before) * 1000)
    return taken
