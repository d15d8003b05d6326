"""What arrives becomes a run once, in order, or says why it waits."""

from __future__ import annotations

import threading

import orjson
import pytest
from support.contents import read_payload
from support.lab import Lab

from suimon.db.connect import Connection, connect
from suimon.errors import InputRefused, QueueFull
from suimon.run import limits, pause
from suimon.triggers import deliver, fire
from suimon.triggers.fire import Arrival

from .conftest import Doors, arrivals

pytestmark = pytest.mark.portable
EVENT = {"type": "EVENT", "event": "order.*"}
READS_NAME = {
    "t": {"type": "TASK", "config": {"task": "m:f"}, "inputs": {"name": {"$ref": "input.type"}}}
}


def test_what_arrives_becomes_a_run_with_its_input_and_key(doors: Doors) -> None:
    to = doors.door("p", EVENT)
    assert fire.arrive(doors.conn, to, arrivals("a", "b")) == 2
    assert doors.deliveries(to) == [("waiting",), ("waiting",)]
    assert deliver.deliver(doors.conn, to.id) is None
    assert doors.queued("p") == [{"name": "a"}, {"name": "b"}]
    rows = doors.deliveries(to, "state", "run_id is not null", "duplicate")
    assert rows == [("delivered", True, False)] * 2


def test_a_key_that_is_known_passes_by_at_any_time(doors: Doors) -> None:
    """Waiting, delivered, and with its delivery pruned."""
    to = doors.door("p", EVENT)
    fire.arrive(doors.conn, to, arrivals("a"))
    assert fire.arrive(doors.conn, to, arrivals("a")) == 0
    deliver.deliver(doors.conn, to.id)
    assert fire.arrive(doors.conn, to, arrivals("a")) == 0
    doors.sql("delete from suimon.deliveries")
    assert fire.arrive(doors.conn, to, arrivals("a", "b")) == 1


def test_a_full_pipeline_holds_the_later_ones_behind_the_oldest(doors: Doors) -> None:
    to = doors.door("p", EVENT, maxQueued=2)
    fire.arrive(doors.conn, to, arrivals("a", "b", "c", "d"))
    wait_s = deliver.deliver(doors.conn, to.id)
    assert wait_s is not None
    assert wait_s > 0
    assert doors.queued("p") == [{"name": "a"}, {"name": "b"}]
    states = doors.deliveries(to, "state", "tries", "code")
    assert states[2:] == [("waiting", 1, "SUI-3005"), ("waiting", 0, None)]
    worker = doors.worker()
    doors.end(worker, doors.claim(worker)[0])
    doors.sql("update suimon.triggers set retry_at = null")
    deliver.deliver(doors.conn, to.id)
    assert doors.queued("p") == [{"name": "b"}, {"name": "c"}]


def test_it_waits_longer_and_longer_and_ends_as_a_dead_letter(doors: Doors) -> None:
    to = doors.door("p", EVENT, maxQueued=1)
    fire.arrive(doors.conn, to, arrivals("a", "b"))
    waits = []
    for _ in range(4):
        waits.append(deliver.deliver(doors.conn, to.id) or 0.0)
        doors.sql("update suimon.triggers set retry_at = null")
    assert waits[3] > waits[1] > 0
    doors.sql(
        "update suimon.deliveries set tries = %s where state = 'waiting'", deliver.GIVE_UP_TRIES
    )
    deliver.deliver(doors.conn, to.id)
    assert doors.deliveries(to, "state", "code")[1] == ("dead", "SUI-3005")


def test_an_input_that_the_pipeline_refuses_is_a_dead_letter_and_holds_nobody_up(
    doors: Doors,
) -> None:
    to = doors.door("p", EVENT, vertices=READS_NAME)
    bad, good = Arrival(b'{"x": 1}', "bad"), Arrival(b'{"type": "t"}', "good")
    fire.arrive(doors.conn, to, [bad, good])
    deliver.deliver(doors.conn, to.id)
    assert doors.deliveries(to, "state", "code") == [("dead", "SUI-3003"), ("delivered", None)]
    assert doors.queued("p") == [{"type": "t"}]


@pytest.mark.parametrize("what", ["pipeline:p", "triggers:p", "trigger"])
def test_what_arrives_during_a_pause_waits_for_as_long_as_it_lasts(doors: Doors, what: str) -> None:
    to = doors.door("p", EVENT)
    name = f"trigger:{to.id}" if what == "trigger" else what
    doors.sql("insert into suimon.pauses (what, by) values (%s, 'me')", name)
    fire.arrive(doors.conn, to, arrivals("a", "b"))
    assert deliver.deliver(doors.conn, to.id) == deliver.PAUSED_LOOK_S
    assert doors.deliveries(to, "state", "tries", "code") == [
        ("waiting", 0, "paused"), ("waiting", 0, None),
    ]  # fmt: skip
    (first, _) = doors.deliveries(to, "why")
    assert first[0].startswith("paused:"), "in the words that everything else has"
    doors.sql("delete from suimon.pauses")
    doors.sql("update suimon.triggers set retry_at = null")
    deliver.deliver(doors.conn, to.id)
    assert doors.queued("p") == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize("what", ["pipeline:p", "triggers:p", "trigger"])
def test_a_resume_tries_what_waited_at_once(doors: Doors, what: str) -> None:
    to = doors.door("p", EVENT)
    doors.door("q", EVENT)
    only, name = what == "triggers:p", f"trigger:{to.id}" if what == "trigger" else "pipeline:p"
    pause.pause(doors.conn, name, "me", triggers_only=only)
    fire.arrive(doors.conn, to, arrivals("a", "b"))
    assert deliver.deliver(doors.conn, to.id) == deliver.PAUSED_LOOK_S
    doors.sql("update suimon.triggers set retry_at = 'infinity' where pipeline = 'q'")
    pause.resume(doors.conn, name, "me", triggers_only=only)
    deliver.deliver_all(doors.conn)
    assert doors.queued("p") == [{"name": "a"}, {"name": "b"}]
    assert doors.one("select count(*) from suimon.triggers where retry_at = 'infinity'") == 1


def test_a_clock_that_was_set_back_holds_no_delivery_up(doors: Doors) -> None:
    to = doors.door("p", EVENT)
    fire.arrive(doors.conn, to, arrivals("a"))
    doors.sql("update suimon.triggers set retry_at = clock_timestamp() + interval '1 day'")
    deliver.deliver_all(doors.conn)
    assert doors.queued("p") == [{"name": "a"}]


def test_triggers_that_nothing_holds_up_are_tried_before_those_that_met_a_full_pipeline(
    doors: Doors,
) -> None:
    held, fresh = doors.door("p", EVENT), doors.door("q", EVENT)
    for to in (held, fresh):
        fire.arrive(doors.conn, to, arrivals("a"))
    retried = "update suimon.triggers set retry_at = clock_timestamp() where id = %s"
    doors.sql(retried, held.id)
    due = doors.conn.execute(deliver.SQL.due).fetchall()
    assert due == [(fresh.id,), (held.id,)]


def test_a_large_input_travels_unharmed_and_leaves_no_copy(doors: Doors) -> None:
    to = doors.door("p", EVENT)
    text = orjson.dumps({"name": "x" * 20_000})
    fire.arrive(doors.conn, to, [Arrival(text, "large")])
    deliver.deliver(doors.conn, to.id)
    ((run, name),) = doors.conn.execute("select run_id, name from suimon.payloads").fetchall()
    assert name == "input"
    assert read_payload(doors.conn, run, name) == text
    assert doors.conn.execute("select size, refs from suimon.contents").fetchall() == [
        (len(text), 1)
    ]


def test_two_takers_at_once_make_each_run_once(doors: Doors, db_url: str) -> None:
    to = doors.door("p", EVENT, concurrency=1)
    fire.arrive(doors.conn, to, arrivals(*(f"{i:03}" for i in range(300))))
    start = threading.Barrier(4)

    def take() -> None:
        with connect(db_url, name="taker") as mine:
            start.wait()
            deliver.deliver_all(mine)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [one["name"] for one in doors.queued("p")] == [f"{i:03}" for i in range(300)]


def test_a_call_gets_its_delivery_and_its_run_in_one_transaction(doors: Doors) -> None:
    to = doors.door("p", EVENT)
    (one,) = arrivals("a")
    first = fire.start_now(doors.conn, to, one)
    assert (first.duplicate, first.reason, first.run_id is None) == (False, None, False)
    again = fire.start_now(doors.conn, to, one)
    assert (again.run_id, again.delivery_id, again.duplicate, again.same_input) == (
        first.run_id, first.delivery_id, True, True,
    )  # fmt: skip
    other = fire.start_now(doors.conn, to, Arrival(b'{"name": "b"}', "thing b", key=one.key))
    assert (other.run_id, other.same_input) == (first.run_id, False)


def test_a_call_that_meets_a_full_pipeline_stores_nothing(doors: Doors) -> None:
    to = doors.door("p", EVENT, maxQueued=1)
    fire.start_now(doors.conn, to, arrivals("a")[0])
    with pytest.raises(QueueFull, match="max_queued is 1") as full:
        fire.start_now(doors.conn, to, arrivals("b")[0])
    assert "suimon runs list --pipeline p" in str(full.value.hint)
    assert len(doors.deliveries(to)) == 1
    assert fire.start_now(doors.conn, to, arrivals("a")[0]).duplicate
    assert 1 <= fire.retry_after(doors.conn, "p") <= 300


def test_a_call_during_a_pause_is_kept_and_says_why_there_is_no_run(doors: Doors) -> None:
    to = doors.door("p", EVENT)
    doors.sql("insert into suimon.pauses (what, by) values ('triggers:p', 'me')")
    (one,) = arrivals("a")
    first = fire.start_now(doors.conn, to, one)
    assert (first.run_id, first.reason) == (None, "paused:triggers:p")
    again = fire.start_now(doors.conn, to, one)
    assert (again.delivery_id, again.run_id, again.duplicate) == (first.delivery_id, None, True)
    doors.sql("delete from suimon.pauses")
    later = fire.start_now(doors.conn, to, arrivals("b")[0])
    assert (later.run_id, later.reason) == (None, "older deliveries wait")
    deliver.deliver(doors.conn, to.id)
    assert doors.queued("p") == [{"name": "a"}, {"name": "b"}]


def test_a_call_behind_one_that_waits_for_a_full_pipeline_is_refused_too(doors: Doors) -> None:
    to = doors.door("p", EVENT, maxQueued=1)
    fire.arrive(doors.conn, to, arrivals("a", "b"))
    deliver.deliver(doors.conn, to.id)
    with pytest.raises(QueueFull, match="max_queued is 1"):
        fire.start_now(doors.conn, to, arrivals("c")[0])
    assert fire.start_now(doors.conn, to, arrivals("b")[0]).duplicate
    assert [state for (state,) in doors.deliveries(to)] == ["delivered", "waiting"]


def test_the_same_call_fifty_times_at_once_is_one_run(doors: Doors, db_url: str) -> None:
    to = doors.door("p", EVENT, concurrency=1)
    (one,) = arrivals("a")
    start = threading.Barrier(10)
    answers: list[fire.Answer] = []

    def call() -> None:
        with connect(db_url, name="caller") as mine:
            start.wait()
            answers.extend(fire.start_now(mine, to, one) for _ in range(5))

    threads = [threading.Thread(target=call) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 50
    assert len({answer.run_id for answer in answers}) == 1
    assert len({answer.delivery_id for answer in answers}) == 1
    assert sum(not answer.duplicate for answer in answers) == 1


def test_an_input_without_what_the_pipeline_reads_is_refused_at_once(doors: Doors) -> None:
    to = doors.door("p", EVENT, vertices=READS_NAME)
    with pytest.raises(InputRefused, match='lacks "type"'):
        fire.start_now(doors.conn, to, Arrival(b"{}", "bad"))


def test_a_trigger_that_is_gone_from_the_graph_keeps_its_deliveries(doors: Doors) -> None:
    to = doors.door("p", EVENT)
    fire.arrive(doors.conn, to, arrivals("a"))
    doors.pipeline("p")
    assert fire.live(doors.conn, ["EVENT"]) == []
    deliver.deliver_all(doors.conn)
    assert doors.queued("p") == [{"name": "a"}]


def test_a_bound_counts_waiting_runs_of_this_pipeline_and_no_children(
    lab: Lab, doors: Doors
) -> None:
    lab.pipeline("q", maxQueued=3)
    lab.pipeline("other")
    for _ in range(5):
        lab.submit("other")
    for n in range(3):
        lab.submit("q", key=f"k{n}")
    with pytest.raises(QueueFull):
        lab.submit("q")
    assert lab.submit("q", key="k1")
    worker = lab.worker()
    lab.sql("update suimon.runs set rank = 0 where pipeline = 'q'")
    lab.claim(worker)
    lab.submit("q")


def test_many_at_once_are_all_stored_or_none(doors: Doors) -> None:
    doors.pipeline("q", maxQueued=10)
    with pytest.raises(QueueFull):
        doors.submit_many("q", 11)
    assert doors.queued("q") == []
    assert len(doors.submit_many("q", 10)) == 10


@pytest.mark.parametrize(
    "payload",
    ['{"n": 1e400}', '{"n": ' + "[" * 2000 + "]" * 2000 + "}"],
    ids=["a number without end", "too deep"],
)
def test_what_sql_can_tell_and_nothing_can_read_is_a_dead_letter_and_stops_nobody(
    doors: Doors, payload: str
) -> None:
    to = doors.door("p", EVENT)
    doors.sql("select suimon.emit('order.bad', %s::jsonb)", payload)
    doors.sql("select suimon.emit('order.good')")
    deliver.deliver_all(doors.conn)
    assert doors.deliveries(to, "state", "code") == [("dead", "SUI-4001"), ("delivered", None)]


def test_so_many_calls_and_no_more_are_kept_behind_a_pause(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fire, "WAITING_MOST", 2)
    to = doors.door("p", EVENT)
    doors.sql("insert into suimon.pauses (what, by) values ('pipeline:p', 'me')")
    for name in "ab":
        assert fire.start_now(doors.conn, to, arrivals(name)[0]).run_id is None
    with pytest.raises(QueueFull, match="2 deliveries of"):
        fire.start_now(doors.conn, to, arrivals("c")[0])
    assert len(doors.deliveries(to)) == 2


def test_a_trigger_that_meets_an_unforeseen_error_stops_no_other(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = doors.door("bad", EVENT), doors.door("good", EVENT)
    for to in (bad, good):
        fire.arrive(doors.conn, to, arrivals("a"))
    real = deliver.deliver

    def fails(conn: Connection, trigger: int) -> float | None:
        if trigger == bad.id:
            msg = "nobody foresaw this"
            raise RuntimeError(msg)
        return real(conn, trigger)

    monkeypatch.setattr(deliver, "deliver", fails)
    deliver.deliver_all(doors.conn)
    assert doors.queued("good") == [{"name": "a"}]
    assert doors.deliveries(bad) == [("waiting",)]
    assert deliver.deliver_all(doors.conn)[0] == 0, "it is put off"


def test_a_raised_max_queued_lets_the_waiting_in_at_once(doors: Doors) -> None:
    to = doors.door("p", EVENT, maxQueued=1)
    fire.arrive(doors.conn, to, arrivals("a", "b"))
    deliver.deliver(doors.conn, to.id)
    limits.change(doors.conn, "p", {"max_queued": 5}, actor="me")
    deliver.deliver_all(doors.conn)
    assert doors.queued("p") == [{"name": "a"}, {"name": "b"}]
