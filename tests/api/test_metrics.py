"""The metrics of a real database, and the page that documents them."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from support.lab import Lab

from suimon.api import metrics
from suimon.db.connect import Connection, connect
from suimon.errors import DatabaseUnavailable
from suimon.run import pause, pools, quotas

DOCS = Path(__file__).resolve().parents[2] / "docs"


def parsed(text: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """name without `suimon_` → label values → number."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        assert family.type == "gauge", family.name
        for sample in family.samples:
            name = sample.name.removeprefix("suimon_")
            labels = tuple(sample.labels[label] for label in metrics.METRICS[name][0])
            found.setdefault(name, {})[labels] = sample.value
    return found


def test_an_empty_database_has_all_that_has_no_label(conn: Connection) -> None:
    """A monitor sees a zero, not a gap."""
    found = parsed(metrics.metrics_text(conn))
    assert {n for n, (labels, _) in metrics.METRICS.items() if not labels} <= set(found)
    assert found["database_up"] == {(): 1.0}
    assert found["verdict"][("idle",)] == 1.0
    assert sum(found["verdict"].values()) == 1.0


def test_a_busy_one_says_what_stands_in_it(conn: Connection) -> None:
    lab = Lab(conn)
    lab.pipeline("p", triggers=[{"type": "EVENT", "event": "x"}])
    lab.pipeline("g", pool="gpu")
    worker = lab.worker()
    lab.submit_many("p", 5)
    lab.submit("g")
    lab.claim(worker, 2)
    lab.sql("update suimon.workers set starts = 7, ends = 3")
    pause.pause(conn, "pool:gpu", "me")
    pools.set_cap(conn, "default", 4, actor="me")
    quotas.change(conn, "pipeline:p", {"per_day": 9, "per_month": 90}, actor="me")
    lab.sql(
        "insert into suimon.deliveries (id, trigger_id, state, source, ended_at, code)"
        " select suimon.uuid7(), id, 'dead', 'x', now(), 'c' from suimon.triggers"
    )
    lab.sql(
        "insert into suimon.deliveries (id, trigger_id, state, source, arrived_at)"
        " select suimon.uuid7(), id, 'waiting', 'x', now() - interval '9 s' from suimon.triggers"
    )
    found = parsed(metrics.metrics_text(conn))
    assert set(found) == set(metrics.METRICS), "every metric that is listed is there"
    assert found["pool_ready_runs"] == {("default",): 3.0, ("gpu",): 1.0}
    assert found["pool_running_runs"][("default",)] == 2.0
    assert found["pool_starts_last_minute"][("default",)] == 7.0
    assert found["pool_without_worker"] == {("default",): 0.0, ("gpu",): 0.0}
    assert found["pool_paused"] == {("default",): 0.0, ("gpu",): 1.0}
    assert found["pool_cap"] == {("default",): 4.0}
    assert found["runs_held"] == {("paused", "pool:gpu"): 1.0}
    assert found["quota_used"] == {("pipeline:p", "day"): 5.0, ("pipeline:p", "month"): 5.0}
    assert found["quota_limit"] == {("pipeline:p", "day"): 9.0, ("pipeline:p", "month"): 90.0}
    assert found["paused"] == {("pool", "gpu", "false"): 1.0}
    assert found["dead_letters"] == {(): 1.0}
    assert found["deliveries_waiting"] == {(): 1.0}
    assert 9 <= found["deliveries_oldest_age_seconds"][()] < 60
    assert found["database_connections"][()] >= 1


def test_two_processes_answer_the_same(db_url: str) -> None:
    """Nothing is kept in memory: what one connection reads is what another one reads."""
    with connect(db_url, name="one") as one, connect(db_url, name="two") as two:
        lab = Lab(one)
        lab.pipeline("p")
        lab.submit_many("p", 4)
        first, second = (parsed(metrics.metrics_text(conn)) for conn in (one, two))
    same = [name for name in first if not name.endswith("_seconds") and "database" not in name]
    assert {name: first[name] for name in same} == {name: second[name] for name in same}


def test_a_database_that_is_away_is_a_metric_too() -> None:
    found = parsed(metrics.unreachable_text(DatabaseUnavailable("gone")))
    assert found["database_up"] == {(): 0.0}
    assert found["verdict"][("stopped",)] == 1.0


def test_names_carry_their_unit() -> None:
    for name in metrics.METRICS:
        assert re.fullmatch(r"[a-z_]+", name)
        assert ("age" in name or "interval" in name) <= name.endswith("_seconds"), name


def test_every_metric_is_documented_with_its_labels_and_words() -> None:
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    listed = re.findall(
        r"^\| `suimon_([a-z_]+)(?:\{([a-z_, ]+)\})?` \| (.+) \|$", text, re.MULTILINE
    )
    told = {
        name: (tuple(filter(None, labels.split(", "))), about) for name, labels, about in listed
    }
    assert told == metrics.METRICS
    for name in re.findall(r"suimon_([a-z_]+)", text.partition("## Alerts")[2]):
        assert name in metrics.METRICS, f"an alert names suimon_{name}"
