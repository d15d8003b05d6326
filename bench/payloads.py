"""What large results cost: fan-outs whose children each return 32 KB, which is a content.

Once rows of a table, as JSON, which gets much smaller; once random bytes in base64, which can only
lose what base64 has added. What is told beside the rate: the bytes that the store takes, exactly.
"""

from __future__ import annotations

import random
from typing import Any

from bench.code import jobs
from bench.meter import Figure
from bench.place import SQL, Place, WrongResultError, rate
from suimon.run import pages

KINDS = {"rows": jobs.rows_of, "noise": jobs.noise_of}
CHECKED = 100


def payloads(place: Place, size: Any) -> list[Figure]:
    """The same number of children each time; the second begins where the first has ended."""
    worker = place.start_worker()
    figures: list[Figure] = []
    for kind, result in KINDS.items():
        before = place.one(SQL.store_bytes)[0]
        run = place.submit(f"fan-{kind}", {"count": size.small})
        seconds = place.follow(run, size.small)
        _check(place, run, size.small, result)
        stored = place.one(SQL.store_bytes)[0] - before
        raw = place.one(SQL.raw_bytes, run=run)[0]
        figures += [
            rate(f"{kind}: whole fan-out", size.small, seconds),
            Figure(f"{kind}: results", raw / 1e6, "MB"),
            Figure(f"{kind}: they take", stored / 1e6, "MB"),
            Figure(f"{kind}: times smaller", raw / stored, "x"),
        ]
    worker.stop()
    return figures


def _check(place: Place, run: str, total: int, result: Any) -> None:
    """Results read back at random, whole."""
    fanout = pages.fanout_of(place.conn, run, None)
    for position in random.sample(range(total), min(CHECKED, total)):
        page = pages.children(place.conn, fanout, first=position, limit=1, whole=True)
        if page.rows[0]["output"] != result(position):
            msg = f"the result of the child at position {position} is not what its task returned"
            raise WrongResultError(msg)
