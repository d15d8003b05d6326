"""Marks of the payload store: when pressure begins and ends, what doors refuse, what people see."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from support.lab import SPAWN_GRAPH, Lab
from support.storage import MB, empty, fill, marks, park, refused, store

from suimon.duties import sweep
from suimon.errors import Conflict, InputRefused, StoragePressure
from suimon.outbox import emit
from suimon.run import doctor as doctors
from suimon.run import doors, health, pressure, wait, why


@pytest.fixture
def worker(lab: Lab) -> int:
    lab.pipeline("kept", SPAWN_GRAPH, keep={"count": 0})
    lab.pipeline("forever", SPAWN_GRAPH)
    return lab.worker()


# ------------------------------------------------------------------------------- the store


def test_the_stores_bytes_are_the_sum_of_what_is_in_it(lab: Lab, worker: int) -> None:
    """Inserted, changed, deleted, rolled back: exact, in the transaction that does it."""
    run = fill(lab, MB)
    assert store(lab) == MB
    lab.sql("update suimon.payloads set sha256 = suimon.keep_text('abc')"
            " where run_id = %s and name = 'fill:1'", run)  # fmt: skip
    assert store(lab) == MB - MB // 10 + 3
    with lab.conn.transaction(force_rollback=True):
        fill(lab, MB)
        assert store(lab) == 2 * MB - MB // 10 + 3
    lab.sql("insert into suimon.artifacts (run_id, vertex, name, sha256, claim_no)"
            " values (%s, 'v', 'a', suimon.keep_text(repeat('y', 1000)), 1)", run)  # fmt: skip
    assert store(lab) == lab.one("select sum(octet_length(body)) from suimon.contents")
    lab.sql("delete from suimon.payloads")
    lab.sql("delete from suimon.artifacts")
    assert store(lab) == 0


# ------------------------------------------------------------------------------- the marks


def test_pressure_begins_at_the_high_mark_and_ends_below_the_low_one(lab: Lab) -> None:
    found = marks(lab, high_bytes=10 * MB)
    assert (found["low_bytes"], found["pressure"]) == (8 * MB, False)
    first = fill(lab, 9 * MB)
    assert not lab.one("select suimon.see_pressure()")
    second = fill(lab, MB)
    assert lab.one("select suimon.see_pressure()")
    since = pressure.state(lab.conn)["above_since"]
    assert since is not None
    lab.sql("delete from suimon.payloads where run_id = %s", second)
    assert lab.one("select suimon.see_pressure()"), "between the marks it lasts"
    assert pressure.state(lab.conn)["above_since"] == since
    lab.sql("delete from suimon.payloads where run_id = %s", first)
    assert not lab.one("select suimon.see_pressure()")
    assert pressure.state(lab.conn)["above_since"] is None


def test_a_scarce_disk_is_pressure_and_an_old_measure_is_none(lab: Lab) -> None:
    marks(lab, disk_min_bytes=1000)
    run_sweep = lambda free: sweep.run(lab.conn, None, (free, 100_000))  # noqa: E731
    run_sweep(999)
    assert lab.one("select suimon.see_pressure()")
    assert pressure.state(lab.conn)["scarce_since"] is not None
    run_sweep(1500)
    assert lab.one("select suimon.see_pressure()"), "it is over at twice the mark"
    lab.sql("update suimon.store set disk_at = disk_at - interval '3 minutes'")
    assert not lab.one("select suimon.see_pressure()")
    assert pressure.state(lab.conn)["disk_free"] is None
    run_sweep(999)
    assert lab.one("select suimon.see_pressure()")
    run_sweep(2000)
    assert not lab.one("select suimon.see_pressure()")


def test_a_sweep_writes_the_disk_down_when_it_moved_or_is_old(lab: Lab) -> None:
    def at() -> Any:
        return lab.one("select disk_at from suimon.store")

    sweep.run(lab.conn, None, (100_000, 200_000))
    first = at()
    sweep.run(lab.conn, None, (100_500, 200_000))
    assert at() == first
    sweep.run(lab.conn, None, (98_000, 200_000))
    second = at()
    assert second > first
    sweep.run(lab.conn, None, None)
    assert at() == second


def test_marks_are_checked_versioned_and_recorded(lab: Lab) -> None:
    for wrong in ({"low_bytes": 5}, {"high_bytes": 0}, {"high_bytes": 5, "low_bytes": 6},
                  {"disk_min_bytes": None}, {"higher": 1}):  # fmt: skip
        with pytest.raises(InputRefused):
            marks(lab, **wrong)
    found = marks(lab, high_bytes=100, low_bytes=50)
    assert found["version"] == 2
    with pytest.raises(Conflict):
        pressure.change(lab.conn, {"high_bytes": 5}, actor="test", expected=1)
    found = pressure.change(lab.conn, {"high_bytes": None}, actor="test", expected=2)
    assert (found["high_bytes"], found["low_bytes"]) == (None, None)
    assert lab.one("select count(*) from suimon.audit where action = 'storage'") == 2


# ------------------------------------------------------------------------------- doors


def test_doors_refuse_what_is_large_and_take_what_is_small(lab: Lab) -> None:
    lab.pipeline("p")
    marks(lab, high_bytes=10 * MB)
    large = {"text": "x" * 9000}
    known = doors.start(lab.conn, "p", large, key="k")
    fill(lab, 10 * MB)
    before = lab.one("select count(*) from suimon.runs")
    with pytest.raises(StoragePressure) as told:
        doors.start(lab.conn, "p", large)
    assert told.value.code == "SUI-3009"
    assert "% of 10 MB" in told.value.message
    with pytest.raises(StoragePressure):
        doors.start_many(lab.conn, "p", [{}, large])
    with pytest.raises(StoragePressure):
        emit.emit(lab.conn, "order.paid", large)
    for call in ("select suimon.submit('p', %s::jsonb)", "select suimon.emit('a.b', %s::jsonb)"):
        with pytest.raises(Exception, match="the payload store is full") as raised:
            lab.sql(call, '{"text": "' + "x" * 9000 + '"}')
        assert getattr(raised.value, "sqlstate", None) == "SUI39"
    assert lab.one("select count(*) from suimon.runs") == before
    assert lab.one("select count(*) from suimon.events") == 0
    assert doors.start(lab.conn, "p", large, key="k").id == known.id
    doors.start(lab.conn, "p", {"text": "small"})
    emit.emit(lab.conn, "order.paid", {"small": True})
    lab.sql("select suimon.submit('p', '{}')")


def test_what_running_work_tells_is_not_refused(lab: Lab) -> None:
    """`ctx.emit` and signals store what they are given."""
    marks(lab, high_bytes=10 * MB)
    fill(lab, 10 * MB)
    body = f'"{secrets.token_hex(9000)}"'
    assert lab.one("select suimon.tell_event('a.b', %s::jsonb, null, null) is not null", body)
    lab.pipeline("p")
    run = lab.submit("p")
    assert wait.send_signal(lab.conn, run, "go", body.encode(), by="test")


# ------------------------------------------------------------------------------- people


def test_why_and_doctor_say_it_with_numbers(lab: Lab, worker: int) -> None:
    marks(lab, high_bytes=10 * MB)
    parent = lab.parent(worker, "kept")
    fill(lab, 9_200_000)
    later_s = refused(lab, parent, 0, 1, ahead=2 * MB)
    park(lab, parent, later_s)
    answer = why.why(lab.conn, parent.id)
    assert answer["reason"] == "storage"
    assert answer["text"].startswith("storage pressure: 92 % of 10 MB, next try ")
    assert answer["half_stored"] is False

    # however slow this machine is, and however long ago this database was made
    lab.sql("update suimon.workers set beat_at = clock_timestamp()")
    lab.sql("update suimon.duties set last_at = clock_timestamp()")
    judged = health.overall(lab.conn)["verdict"]
    assert judged["level"] == "held"
    assert judged["sentence"] == "on purpose: 1 storage (storage pressure: 92 % of 10 MB)"

    def found() -> doctors.Finding:
        return next(one for one in doctors.examine(lab.conn) if one.check == "storage")

    assert found().level == "warn"
    lab.sql("update suimon.steps set ended_at = ended_at - interval '10 minutes'")
    lab.sql("update suimon.duties set last_at = clock_timestamp() where name = 'prune'")
    assert (found().level, "--high" in (found().hint or "")) == ("bad", True)


def test_people_are_told_once_an_episode(lab: Lab) -> None:
    lab.sql("insert into suimon.channels (name, kind, target, kinds)"
            " values ('c', 'webhook', 'http://x', '{storage.*}')")  # fmt: skip
    marks(lab, high_bytes=10 * MB)
    for _ in range(2):
        fill(lab, 10 * MB)
        for _ in range(3):
            assert lab.one("select suimon.see_pressure()")
        empty(lab)
        assert not lab.one("select suimon.see_pressure()")
    told = lab.sql("select kind, payload ->> 'high_bytes' from suimon.notices")
    assert told == [("storage.pressure", "10000000")] * 2
