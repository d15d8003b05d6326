"""Triggers meet a quota that is used up as a full pipeline: each in its own way, nothing lost."""

from __future__ import annotations

import pytest
from support.lab import Lab
from support.schedules import Clock

from suimon.errors import QuotaExceeded
from suimon.run import quotas
from suimon.triggers import deliver, fire

from .conftest import Doors, arrivals
from .test_webhook import call, listen, post, refused, told

EVENT = {"type": "EVENT", "event": "order.*"}


def limit(lab: Lab, name: str = "all", **limits: int) -> None:
    quotas.change(lab.conn, name, limits, actor="test")


@pytest.fixture
def clock(lab: Lab) -> Clock:
    return Clock(lab, "2026-03-02T09:30:00")


def test_a_webhook_is_429_and_a_repetition_is_found(doors: Doors) -> None:
    to = listen(doors)
    limit(doors, per_day=1)
    first = told(post(doors.conn, to, call(key="1")))
    full = refused(doors.conn, to, call(key="2"))
    assert (full.status, full.code) == (429, "quota")
    assert full.retry_after_s is not None
    assert 1 <= full.retry_after_s <= 300
    assert 'quota "all"' in full.told
    assert told(post(doors.conn, to, call(key="1")))["run_id"] == first["run_id"]
    assert doors.one("select count(*) from suimon.deliveries") == 1
    limit(doors, per_day=2)
    assert post(doors.conn, to, call(key="2")).status == 202


def test_deliveries_wait_in_order_and_go_on_when_there_is_room(doors: Doors) -> None:
    to = doors.door("p", EVENT)
    limit(doors, "pipeline:p", per_day=2)
    fire.arrive(doors.conn, to, arrivals("a", "b", "c", "d"))
    wait_s = deliver.deliver(doors.conn, to.id)
    assert wait_s
    assert doors.queued("p") == [{"name": "a"}, {"name": "b"}]
    states = doors.deliveries(to, "state", "tries", "code")
    assert states[2:] == [("waiting", 1, "SUI-3008"), ("waiting", 0, None)]
    with pytest.raises(QuotaExceeded):  # a call behind them is refused, or it would wait for days
        fire.start_now(doors.conn, to, arrivals("e")[0])
    limit(doors, "pipeline:p", per_day=3)
    doors.sql("update suimon.triggers set retry_at = null")
    deliver.deliver(doors.conn, to.id)
    assert [one["name"] for one in doors.queued("p")] == ["a", "b", "c"]


def test_the_labels_of_a_pipeline_count_what_its_triggers_start(doors: Doors) -> None:
    to = doors.door("p", EVENT, labels=["tenant:acme"])
    limit(doors, "label:tenant:acme", per_day=1)
    fire.arrive(doors.conn, to, arrivals("a", "b"))
    deliver.deliver(doors.conn, to.id)
    assert doors.queued("p") == [{"name": "a"}]
    assert doors.deliveries(to, "code")[1] == ("SUI-3008",)


def test_instants_fold_while_there_is_no_room(clock: Clock) -> None:
    trigger = clock.deploy("p", {"type": "CRON", "cron": "* * * * *"})
    limit(clock.lab, per_day=0)
    clock.run_to("2026-03-02T09:35:30")
    assert clock.runs("p") == []
    assert clock.records(trigger) == []
    assert 'quota "all"' in clock.lab.one("select note from suimon.triggers")
    limit(clock.lab, per_day=1)
    clock.move(seconds=60)
    clock.look()
    assert [one["folded"] for one in clock.runs("p")] == [5]


def test_instants_that_each_have_a_run_come_later_and_in_order(clock: Clock) -> None:
    clock.deploy("p", {"type": "CRON", "cron": "0 * * * *", "catchUp": "all"})
    clock.run_to("2026-03-02T10:00:30", each=clock.finish_all)
    limit(clock.lab, per_day=3)
    clock.move(hours=5)
    clock.look()
    assert [text[11:13] for text in clock.planned("p")] == ["10", "11", "12"]
    limit(clock.lab, per_day=100)
    clock.finish_all()
    clock.move(seconds=61)
    clock.look()
    assert [text[11:13] for text in clock.planned("p")] == ["10", "11", "12", "13", "14", "15"]
