"""What `suimon status` counts, as Prometheus text.

A collector that reads PostgreSQL: nothing is kept in memory, so each process answers the same, and
it does not matter which one is asked. ``METRICS`` is the whole list; ``docs/metrics.md`` is tested
against it. All are gauges: what is counted is what stands in the database now. Counts have the
bounds of ``run/health.py``. Labels are names that people gave (pools, pipelines) and words of
closed lists, never ids of runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from suimon.db.connect import Connection
from suimon.errors import DatabaseUnavailable
from suimon.run import health

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
LEVELS: Final = ("stopped", "slow", "held", "idle", "ok")

#: name without `suimon_` -> (labels, what it says)
METRICS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "database_up": ((), "1: PostgreSQL answered; 0: it could not be reached."),
    "verdict": (("level",), "1 for what `suimon status` says, 0 for the others."),
    "pool_ready_runs": (("pool",), "Runs that nothing holds, up to 10,000."),
    "pool_oldest_ready_age_seconds": (("pool",), "Age of the oldest of them; 0: there is none."),
    "pool_running_runs": (("pool",), "Runs held by live workers of the pool."),
    "pool_workers": (("pool",), "Live workers that claim: heard within three intervals."),
    "pool_slots": (("pool",), "Slots of those workers."),
    "pool_starts_last_minute": (
        ("pool",),
        "Runs that those workers took up in the last minute, again after each wait.",
    ),
    "pool_ends_last_minute": (("pool",), "Runs that ended there in the last minute."),
    "pool_paused": (("pool",), "1: somebody paused the pool."),
    "pool_cap": (("pool",), "At most so many of its runs are claimed at once; absent: any number."),
    "pool_without_worker": (("pool",), "1: ready runs, no live worker, and not paused."),
    "runs_running": ((), "Runs in state running, up to 10,000."),
    "runs_lost": ((), "Of those, runs whose worker is dead, gone or silent."),
    "runs_held": (("reason", "name"), "Runs (and paused deliveries) that wait, by their reason."),
    "deliveries_waiting": ((), "Deliveries that are no run yet, up to 1,000 a trigger."),
    "deliveries_oldest_age_seconds": ((), "Age of the oldest of them; 0: there is none."),
    "dead_letters": ((), "Deliveries that were given up and wait for a person, up to 10,000."),
    "notices_waiting": ((), "Notifications that are not sent yet, up to 10,000."),
    "notices_oldest_age_seconds": ((), "Age of the oldest of them; 0: there is none."),
    "duty_last_round_age_seconds": (("duty",), "Time since somebody did this duty."),
    "duty_interval_seconds": (("duty",), "How often it is to be done."),
    "quota_used": (("name", "period"), "Runs of this day or month, created or reserved."),
    "quota_limit": (("name", "period"), "How many there may be; at most 200 series."),
    "paused": (("kind", "name", "automatic"), "1 for each thing that is paused."),
    "store_bytes": ((), "Bytes in payloads and artifacts."),
    "store_high_bytes": ((), "The store's high mark; 0: there is none."),
    "store_pressure": ((), "1: the store or the disk is nearly full, and fan-outs are deferred."),
    "database_connections": ((), "Connections of clients to the server, all databases."),
    "database_max_connections": ((), "How many the server allows."),
    "database_oldest_transaction_seconds": ((), "Age of the oldest open transaction here."),
}


def metrics_text(conn: Connection) -> bytes:
    """All metrics as they stand now, in the text format."""
    return _text(_samples(health.overall(conn)))


def unreachable_text(error: DatabaseUnavailable) -> bytes:
    """The same while there is no database: two metrics, so that an alert can tell."""
    found = health.unreachable(error)
    return _text([("database_up", (), 0.0), *_verdict(found)])


Sample = tuple[str, tuple[str, ...], float]


class _Counted(Collector):
    """The samples as one collection; made for a single scrape."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = list(samples)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, (labels, about) in METRICS.items():
            mine = [one for one in self._samples if one[0] == name]
            if mine:
                family = GaugeMetricFamily(f"suimon_{name}", about, labels=labels)
                for _, values, number in mine:
                    family.add_metric(values, number)
                yield family


def _text(samples: Iterable[Sample]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Counted(samples))
    return generate_latest(registry)


def _verdict(found: dict[str, Any]) -> Iterator[Sample]:
    level = found["verdict"]["level"]
    for one in LEVELS:
        yield "verdict", (one,), float(one == level)


def _samples(found: dict[str, Any]) -> Iterator[Sample]:
    yield "database_up", (), 1.0
    yield from _verdict(found)
    for one in found["pools"]:
        yield from _pool(one)
    counts, deliveries, notices = found["counts"], found["deliveries"], found["notices"]
    yield "runs_running", (), counts["running"]
    yield "runs_lost", (), counts["lost"]
    for one in found["held_by_reason"]:
        yield "runs_held", (one["word"], one["name"]), one["runs"]
    yield "deliveries_waiting", (), deliveries["waiting"]
    yield "deliveries_oldest_age_seconds", (), deliveries["oldest_s"] or 0.0
    yield "dead_letters", (), deliveries["dead"]
    yield "notices_waiting", (), notices["waiting"]
    yield "notices_oldest_age_seconds", (), notices["oldest_s"] or 0.0
    for one in found["duties"]:
        yield "duty_last_round_age_seconds", (one["name"],), one["age_s"]
        yield "duty_interval_seconds", (one["name"],), one["every_ms"] / 1000
    for one in found["quotas"]:
        yield "quota_used", (one["name"], one["period"]), one["used"]
        yield "quota_limit", (one["name"], one["period"]), one["limit"]
    for one in found["paused"]:
        kind = one["what"].partition(":")[0]
        yield "paused", (kind, one["name"], str(one["automatic"]).lower()), 1.0
    stored = found["storage"]
    yield "store_bytes", (), stored["bytes"]
    yield "store_high_bytes", (), stored["high_bytes"] or 0
    yield "store_pressure", (), float(stored["pressure"])
    database = found["database"]
    yield "database_connections", (), database["used"]
    yield "database_max_connections", (), database["most"]
    yield "database_oldest_transaction_seconds", (), database["oldest_transaction_s"] or 0.0


def _pool(one: dict[str, Any]) -> Iterator[Sample]:
    name = (one["pool"],)
    yield "pool_ready_runs", name, one["ready"]
    yield "pool_oldest_ready_age_seconds", name, one["oldest_s"] or 0.0
    yield "pool_running_runs", name, one["running"]
    yield "pool_workers", name, one["beating"]
    yield "pool_slots", name, one["slots"]
    yield "pool_starts_last_minute", name, one["starts"]
    yield "pool_ends_last_minute", name, one["ends"]
    yield "pool_paused", name, float(one["paused"])
    if one["cap"] is not None:
        yield "pool_cap", name, one["cap"]
    without = bool(one["ready"]) and not one["beating"] and not one["paused"]
    yield "pool_without_worker", name, float(without)
