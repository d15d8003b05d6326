"""What an idle worker sends: every statement of half a minute, from the server's own log.

On a server of somebody else the log is out of reach: then only the transactions are counted.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING

from bench.meter import Figure
from bench.place import SQL, Place

if TYPE_CHECKING:
    from bench.scenarios import Size

#: After its last run a worker proves for a moment that it missed nobody.
SETTLE_SECONDS = 4.0
_LINE = re.compile(r"^@suimon:(?P<who>[^@]*)@ LOG:  (?:statement|execute [^:]*): (?P<text>.*)")


def measure(place: Place, size: Size) -> list[Figure]:
    place.start_worker()
    time.sleep(SETTLE_SECONDS)
    if place.server_log is None:
        before = place.one(SQL.transactions)[0]
        time.sleep(size.idle_s)
        sent = place.one(SQL.transactions)[0] - before
        return [Figure(f"transactions in {size.idle_s:g} s, two of them our own", sent, "")]
    for statement in (SQL.log_prefix, SQL.log_all, SQL.reload):
        place.conn.execute(statement)
    time.sleep(0.5)
    offset = place.server_log.stat().st_size
    time.sleep(size.idle_s)
    with place.server_log.open("rb") as log:
        log.seek(offset)
        text = log.read().decode("utf-8", "replace")
    for statement in (SQL.log_none, SQL.reload):
        place.conn.execute(statement)
    counts = Counter(statements(text))
    listed = [Figure(f"  {who}: {what}", n, "") for (who, what), n in counts.most_common(12)]
    return [Figure(f"statements in {size.idle_s:g} s", sum(counts.values()), ""), *listed]


def statements(text: str) -> list[tuple[str, str]]:
    """(connection, beginning of the statement) of each one that is not the benchmark's own."""
    found = []
    for line in text.replace("\n\t", " ").splitlines():
        match = _LINE.match(line)
        if match and not match["who"].startswith("bench"):
            found.append((match["who"], " ".join(match["text"].split())[:60]))
    return found
