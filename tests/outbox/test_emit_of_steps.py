"""ctx.emit: what a step tells is told with its end, by the worker that still holds it, once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.lab import Lab

from suimon.core.events import Event
from suimon.db.connect import connect
from suimon.run import step
from suimon.worker import batch as batches

LISTENS = [{"type": "EVENT", "event": "order.*"}]


def paid(*keys: str, payload: str = '{"n": 1}') -> list[Event]:
    return [Event("order.paid", payload, key) for key in keys]


def events(lab: Lab) -> list[tuple[str, str]]:
    return lab.sql("select type, run_id::text from suimon.events order by occurred_at, id")


@pytest.fixture
def ready(lab: Lab) -> Lab:
    lab.pipeline("p")
    lab.pipeline("hears", triggers=LISTENS)
    return lab


def test_events_are_told_with_the_end_of_their_run(ready: Lab) -> None:
    worker, run = ready.worker(), ready.submit("p")
    row = ready.claim(worker)[0]
    ended = replace(ready.ended(row), events=paid("a", "b"))
    assert batches.execute(ready.conn, ready.batch(worker, [ended])).ended == {run}
    assert events(ready) == [("order.paid", run)] * 2
    assert ready.one("select count(*) from suimon.deliveries where state = 'waiting'") == 2


def test_a_batch_that_is_sent_twice_tells_once(ready: Lab) -> None:
    """The answer was lost with its connection: the worker sends the same batch again."""
    worker = ready.worker()
    ready.submit("p")
    ended = replace(ready.ended(ready.claim(worker)[0]), events=paid("a", "b"))
    batches.execute(ready.conn, ready.batch(worker, [ended]))
    assert batches.execute(ready.conn, ready.batch(worker, [ended])).ended == set()
    assert len(events(ready)) == 2


def test_a_worker_that_lost_its_run_tells_nothing(ready: Lab) -> None:
    worker, other = ready.worker(), ready.worker()
    run = ready.submit("p")
    row = ready.claim(worker)[0]
    ready.sql("update suimon.runs set status = 'queued', worker_id = null where id = %s", run)
    late = replace(ready.ended(row), events=paid("late"))
    assert batches.execute(ready.conn, ready.batch(worker, [late])).ended == set()
    again = ready.claim(other)[0]
    assert batches.execute(ready.conn, ready.batch(worker, [late])).ended == set()
    assert events(ready) == []
    good = replace(ready.ended(again), events=paid("good"))
    batches.execute(ready.conn, ready.batch(other, [good]))
    assert len(events(ready)) == 1


def test_one_lost_run_among_many_does_not_tell_and_the_others_do(ready: Lab) -> None:
    worker = ready.worker()
    runs = [ready.submit("p") for _ in range(5)]
    rows = ready.claim(worker, 5)
    ready.sql("update suimon.runs set status = 'queued', worker_id = null where id = %s", runs[2])
    ended = [replace(ready.ended(row), events=paid(row.id)) for row in rows]
    batches.execute(ready.conn, ready.batch(worker, ended))
    assert {run for _, run in events(ready)} == set(runs) - {runs[2]}


def test_events_of_a_step_are_told_with_its_record(ready: Lab) -> None:
    worker, run = ready.worker(), ready.submit("p")
    row = ready.claim(worker)[0]
    made = ready.batch(worker, [])
    made.steps = [step.Step(run, row.claim_no, "t", "succeeded", 1, "1", "", paid("a"))]
    assert batches.execute(ready.conn, made).steps == {(run, "t")}
    assert events(ready) == [("order.paid", run)]
    made.steps = [step.Step(run, row.claim_no - 1, "t", "succeeded", 1, "1", "", paid("old"))]
    assert batches.execute(ready.conn, made).steps == set()
    assert len(events(ready)) == 1


def test_a_rescue_that_comes_in_between_waits_or_wins(ready: Lab, db_url: str) -> None:
    """The run is locked before anything is told: it is not taken away between event and end."""
    worker, run = ready.worker(), ready.submit("p")
    row = ready.claim(worker)[0]
    with connect(db_url, name="rescuer", autocommit=False) as other:
        other.execute(
            "update suimon.runs set status = 'queued', worker_id = null where id = %s", (run,)
        )
        ready.conn.execute("set lock_timeout = '200ms'")
        ended = replace(ready.ended(row), events=paid("a"))
        with pytest.raises(Exception, match="lock timeout"):
            batches.execute(ready.conn, ready.batch(worker, [ended]))
        other.commit()
    ready.conn.execute("reset lock_timeout")
    assert batches.execute(ready.conn, ready.batch(worker, [ended])).ended == set()
    assert events(ready) == []


def test_an_event_that_cannot_be_stored_fails_its_run_and_no_other(ready: Lab) -> None:
    worker = ready.worker()
    runs = [ready.submit("p") for _ in range(4)]
    ended = [
        replace(ready.ended(row), events=paid(row.id, payload="{" if i == 1 else "{}"))
        for i, row in enumerate(ready.claim(worker, 4))
    ]
    batches.execute(ready.conn, ready.batch(worker, ended))
    assert [ready.status(run) for run in runs] == ["succeeded", "failed", "succeeded", "succeeded"]
    assert {run for _, run in events(ready)} == {runs[0], runs[2], runs[3]}


def test_many_events_are_several_transactions(ready: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "EVENTS", 3)
    worker = ready.worker()
    runs = [ready.submit("p") for _ in range(4)]
    rows = ready.claim(worker, 4)
    ended = [replace(ready.ended(row), events=paid(f"{row.id}1", f"{row.id}2")) for row in rows]
    made = ready.batch(worker, ended)
    made.logs = [step.LogText(row.id, row.claim_no, "log", "said\n") for row in rows]
    assert batches.execute(ready.conn, made).ended == set(runs)
    assert len(events(ready)) == 8
    assert ready.one("select count(distinct xmin::text) from suimon.events") > 1
    assert ready.one("select count(*) from suimon.logs") == 4
