"""Channels and notices: who is told of what, once, and nobody missed."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from support.lab import Lab

from suimon.db.connect import connect
from suimon.errors import AddressRefused, Conflict, InputRefused, NotThere
from suimon.outbox import notify
from suimon.run import audit
from suimon.triggers import deliver, fire
from suimon.worker import batch as batches

HOOK = {"webhook": "https://hooks.example.com/x", "secret": "env:HOOK", "actor": "ann"}
READS = {"t": {"type": "TASK", "config": {"task": "m:f"}, "inputs": {"n": {"$ref": "input.n"}}}}


def told(lab: Lab, kind: str | None = None) -> list[dict[str, Any]]:
    rows = notify.log(lab.conn)[::-1]
    return [row for row in rows if kind in (None, row["kind"])]


def fail(lab: Lab, pipeline: str = "p", n: int = 1) -> list[str]:
    """So many runs of it fail; their ids."""
    runs = [lab.submit(pipeline) for _ in range(n)]
    worker = lab.worker()
    lab.end(worker, lab.claim(worker, n), "failed")
    return runs


# ------------------------------------------------------------------------------------ channels


def test_a_channel_is_added_shown_disabled_and_removed(lab: Lab) -> None:
    notify.add(lab.conn, "ops", kinds=["run.*"], **HOOK)
    notify.add(lab.conn, "mail", email="a@example.com, b@example.com", actor="ann")
    assert [(c["name"], c["kind"], c["kinds"]) for c in notify.listed(lab.conn)] == [
        ("mail", "email", ["*"]), ("ops", "webhook", ["run.*"]),
    ]  # fmt: skip
    assert notify.disable(lab.conn, "ops", actor="ann")
    assert not notify.disable(lab.conn, "ops", actor="ann")
    assert notify.one(lab.conn, "ops")["note"] == "by hand"
    assert notify.enable(lab.conn, "ops", actor="ann")
    notify.remove(lab.conn, "ops", actor="ann")
    with pytest.raises(NotThere):
        notify.one(lab.conn, "ops")
    acts = [one["action"] for one in audit.listed(lab.conn)][::-1]
    assert acts == ["notify.add", "notify.add", "notify.disable", "notify.enable", "notify.remove"]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"webhook": "https://a.example/", "secret": "hunter2"}, InputRefused),
        ({"webhook": "https://a.example/"}, InputRefused),
        ({"webhook": "file:///etc/passwd", "secret": "env:A"}, AddressRefused),
        ({"webhook": "http://u:p@a.example/", "secret": "env:A"}, AddressRefused),
        ({"email": "a@b.c\nBcc: x@y.z"}, InputRefused),
        ({"email": "nobody"}, InputRefused),
        ({"email": ","}, InputRefused),
        ({"email": "a@b.c", "secret": "env:A"}, InputRefused),
        ({}, InputRefused),
        ({"email": "a@b.c", "webhook": "https://a.example/", "secret": "env:A"}, InputRefused),
        ({"email": "a@b.c", "kinds": ["run.lost"]}, InputRefused),
    ],
)
def test_a_channel_that_cannot_be_is_refused(
    lab: Lab, given: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        notify.add(lab.conn, "x", actor="ann", **given)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(InputRefused):
        notify.add(lab.conn, "No Name", email="a@b.c", actor="ann")
    assert notify.listed(lab.conn) == []


def test_a_webhook_without_a_secret_says_what_is_missing(lab: Lab) -> None:
    with pytest.raises(InputRefused, match="--secret is missing"):
        notify.add(lab.conn, "x", actor="ann", webhook="https://a.example/")


def test_a_name_is_taken_once_and_channels_are_bounded(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    notify.add(lab.conn, "a", email="a@b.c", actor="ann")
    with pytest.raises(Conflict, match="already"):
        notify.add(lab.conn, "a", email="a@b.c", actor="ann")
    monkeypatch.setattr(notify, "CHANNELS", 1)
    with pytest.raises(Conflict, match="1 channels"):
        notify.add(lab.conn, "b", email="a@b.c", actor="ann")


# ------------------------------------------------------------------------------------ dead letters


def test_dead_letters_of_one_cause_are_one_notice_an_hour(lab: Lab) -> None:
    lab.pipeline("p", READS, triggers=[{"type": "EVENT", "event": "*"}])
    notify.add(lab.conn, "ops", **HOOK)
    notify.add(lab.conn, "runs", kinds=["run.failed"], email="a@b.c", actor="ann")
    to = fire.live(lab.conn, ["EVENT"])[0]
    fire.arrive(lab.conn, to, [fire.Arrival(b"{}", f"s{i}", f"k{i}") for i in range(5)])
    deliver.deliver(lab.conn, to.id)
    (one,) = told(lab)
    assert (one["channel"], one["kind"]) == ("ops", "delivery.dead")
    assert one["payload"]["pipeline"] == "p"
    assert one["payload"]["code"] == "SUI-3003"
    lab.sql("update suimon.notices set fact = fact || ' an hour ago'")
    fire.arrive(lab.conn, to, [fire.Arrival(b"{}", "later", "later")])
    deliver.deliver(lab.conn, to.id)
    assert len(told(lab)) == 2


# ------------------------------------------------------------------------------------ pauses


def test_a_pause_by_failures_is_told_and_one_by_hand_is_not(lab: Lab) -> None:
    notify.add(lab.conn, "ops", **HOOK)
    insert = "insert into suimon.pauses (what, automatic, by) values (%s, %s = 'yes', 'x')"
    lab.sql(insert, "triggers:p", "yes")
    lab.sql(insert, "triggers:q", "no")
    (one,) = told(lab)
    assert (one["kind"], one["payload"]["pipeline"]) == ("pipeline.paused", "p")


# ------------------------------------------------------------------------------------ failed runs


def test_a_failed_run_is_told_once(lab: Lab) -> None:
    lab.pipeline("p")
    fail(lab)
    notify.add(lab.conn, "ops", **HOOK)
    (run,) = fail(lab)
    for _ in range(3):
        notify.scan(lab.conn)
    (one,) = told(lab)
    assert (one["kind"], one["payload"]["run_id"]) == ("run.failed", run)
    assert one["payload"]["error"] == "no"


def test_a_child_that_failed_is_not_told_but_its_root_is(lab: Lab) -> None:
    lab.pipeline("p")
    notify.add(lab.conn, "ops", **HOOK)
    worker = lab.worker()
    parent = lab.fan_out(worker, "p", 2)
    lab.end(worker, lab.claim(worker, 2), "failed")
    notify.scan(lab.conn)
    assert told(lab) == []
    (row,) = lab.claim(worker)
    assert row.id == parent.id
    lab.end(worker, row, "failed")
    notify.scan(lab.conn)
    assert [one["payload"]["run_id"] for one in told(lab)] == [parent.id]


def test_a_run_that_fails_again_after_a_retry_is_told_again(lab: Lab) -> None:
    lab.pipeline("p")
    notify.add(lab.conn, "ops", **HOOK)
    (run,) = fail(lab)
    notify.scan(lab.conn)
    lab.sql("update suimon.runs set status = 'queued', finished_at = null, error = null")
    worker = lab.worker()
    lab.end(worker, lab.claim(worker), "failed")
    notify.scan(lab.conn)
    assert [one["payload"]["run_id"] for one in told(lab)] == [run, run]


def test_a_failure_that_is_committed_late_is_told(lab: Lab, db_url: str) -> None:
    """It ended before the search and became visible after it, and after others that ended later."""
    lab.pipeline("p")
    notify.add(lab.conn, "ops", **HOOK)
    late, soon = lab.submit("p"), lab.submit("p")
    worker = lab.worker()
    rows = {row.id: row for row in lab.claim(worker, 2)}
    with connect(db_url, name="slow", autocommit=False) as slow:
        slow.execute(
            "update suimon.runs set status = 'failed', worker_id = null,"
            " finished_at = clock_timestamp() where id = %s",
            (late,),
        )
        lab.end(worker, rows[soon], "failed")
        for _ in range(2):
            notify.scan(lab.conn)
            assert [one["payload"]["run_id"] for one in told(lab)] == [soon]
        # far more than the five minutes that are looked at again
        lab.sql("update suimon.notice_marks set at = at - interval '1 hour'")
        lab.sql("update suimon.channels set since = since - interval '2 hours'")
        notify.scan(lab.conn)
        slow.commit()
    notify.scan(lab.conn)
    notify.scan(lab.conn)
    assert sorted(one["payload"]["run_id"] for one in told(lab)) == sorted([late, soon])


def test_the_mark_does_not_pass_an_open_transaction_of_the_engine(lab: Lab, db_url: str) -> None:
    lab.pipeline("p")
    notify.add(lab.conn, "ops", **HOOK)
    run = lab.submit("p")
    with connect(db_url, name="slow", autocommit=False) as slow:
        slow.execute("select pg_current_xact_id()")
        began = lab.one("select clock_timestamp()")
        lab.sql("select pg_sleep(0.01)")
        notify.scan(lab.conn)
        assert lab.one("select at from suimon.notice_marks") <= began
        slow.execute("update suimon.runs set priority = 1 where id = %s", (run,))
        slow.commit()


def test_somebody_elses_open_transaction_does_not_hold_the_mark(lab: Lab, db_url: str) -> None:
    notify.add(lab.conn, "ops", **HOOK)
    with psycopg.connect(db_url, application_name="their shop") as theirs:
        theirs.execute("select pg_current_xact_id()")
        began = lab.one("select xact_start from pg_stat_activity where pid = %s",
                        theirs.info.backend_pid)  # fmt: skip
        row = lab.conn.execute(notify.SQL.horizon).fetchone()
        at = lab.one("select clock_timestamp() - interval '3 seconds'")
    assert row is not None
    assert row[0] > at
    assert began is not None


def test_two_searches_at_once_tell_once(lab: Lab, db_url: str) -> None:
    lab.pipeline("p")
    notify.add(lab.conn, "ops", **HOOK)
    fail(lab, n=3)
    with connect(db_url, name="other") as other, other.transaction():
        notify._failed_runs(other)
        assert notify.scan(lab.conn) == 0
    notify.scan(lab.conn)
    assert len(told(lab)) == 3


def test_many_end_and_commit_in_any_order_while_two_search(
    lab: Lab, db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure is told once, whoever sees it first; here no margin helps the search."""
    for name, margin in (("failed", "5 minutes"), ("horizon", "2 seconds")):
        exact = notify.SQL[name].replace(f"interval '{margin}'", "interval '0'")
        assert exact != notify.SQL[name]
        monkeypatch.setitem(notify.SQL._texts, name, exact)
    lab.pipeline("p")
    notify.add(lab.conn, "ops", **HOOK)
    lab.sql("update suimon.channels set since = since - interval '1 day'")
    runs = [lab.submit("p") for _ in range(60)]
    lab.claim(lab.worker(), 60)
    over = threading.Event()

    def end(some: list[str]) -> None:
        rng = random.Random(some[0])
        with connect(db_url, name="ends") as conn:
            for run in some:
                with conn.transaction():
                    conn.execute("select pg_current_xact_id()")
                    conn.execute(
                        "update suimon.runs set status = 'failed', worker_id = null,"
                        " finished_at = clock_timestamp() where id = %s",
                        (run,),
                    )
                    time.sleep(rng.uniform(0, 0.05))  # the delay is what is tested

    def search() -> None:
        with connect(db_url, name="search") as conn:
            while not over.is_set():
                notify.scan(conn)

    threads = [threading.Thread(target=end, args=(runs[n::6],)) for n in range(6)]
    searches = [threading.Thread(target=search) for _ in range(2)]
    for thread in [*threads, *searches]:
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    for thread in searches:
        thread.join()
    notify.scan(lab.conn)
    found: list[str] = []
    for one in notify.log(lab.conn, limit=1000):
        found += one["payload"].get("runs") or [one["payload"]["run_id"]]
    assert sorted(found) == sorted(runs)


def test_a_flood_is_twenty_notices_and_one_with_the_rest(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "PAGE", 30)
    lab.pipeline("p")
    lab.pipeline("q")
    notify.add(lab.conn, "ops", **HOOK)
    runs = fail(lab, n=50) + fail(lab, "q", n=5)
    notify.scan(lab.conn)
    notify.scan(lab.conn)
    found: list[str] = []
    for one in told(lab, "run.failed"):
        found += one["payload"].get("runs") or [one["payload"]["run_id"]]
    assert sorted(found) == sorted(runs)
    assert len(told(lab)) < len(runs)


def test_a_clock_that_is_set_back_hides_no_failure(lab: Lab) -> None:
    lab.pipeline("p")
    notify.add(lab.conn, "ops", **HOOK)
    lab.sql("update suimon.notice_marks set at = clock_timestamp() + interval '1 hour'")
    fail(lab)
    notify.scan(lab.conn)
    assert len(told(lab)) == 1


def test_what_a_worker_writes_is_found(lab: Lab) -> None:
    """A timeout of a run, by the worker's own batch."""
    lab.pipeline("p")
    notify.add(lab.conn, "ops", **HOOK)
    lab.submit("p")
    worker = lab.worker()
    ended = replace(lab.ended(lab.claim(worker)[0], "failed"), status="timed_out")
    batches.execute(lab.conn, lab.batch(worker, [ended]))
    notify.scan(lab.conn)
    assert told(lab)[0]["subject"] == "p timed out: no"


# ------------------------------------------------------------------------------------ pools


def since(lab: Lab, minutes: float) -> None:
    lab.sql("update suimon.alarms set since = since - make_interval(mins => %s)", minutes)


def test_a_pool_without_a_worker_is_told_after_a_minute_and_once(lab: Lab) -> None:
    lab.pipeline("p", pool="gpu")
    lab.pipeline("q")
    notify.add(lab.conn, "ops", **HOOK)
    lab.submit("p")
    lab.submit("q")
    lab.worker()
    notify.scan(lab.conn)
    assert told(lab) == []
    since(lab, 2)
    for _ in range(3):
        notify.scan(lab.conn)
    (one,) = told(lab)
    assert (one["kind"], one["payload"]["pool"]) == ("pool.no_worker", "gpu")


def test_a_second_episode_is_told_again(lab: Lab) -> None:
    lab.pipeline("p", pool="gpu")
    notify.add(lab.conn, "ops", **HOOK)
    lab.submit("p")
    for _ in range(2):
        notify.scan(lab.conn)
        since(lab, 2)
        notify.scan(lab.conn)
        worker = lab.worker("gpu")
        notify.scan(lab.conn)
        assert lab.one("select count(*) from suimon.alarms") == 0
        lab.kill(worker)
    assert len(told(lab)) == 2


def test_a_paused_pool_is_no_alarm(lab: Lab) -> None:
    lab.pipeline("p", pool="gpu")
    lab.submit("p")
    lab.sql("insert into suimon.pauses (what, by) values ('pool:gpu', 'ann')")
    notify.scan(lab.conn)
    assert lab.one("select count(*) from suimon.alarms") == 0


# ------------------------------------------------------------------------------------ again


def test_a_notice_is_sent_again_by_hand(lab: Lab) -> None:
    notify.add(lab.conn, "ops", **HOOK)
    notice = notify.test(lab.conn, "ops")
    with pytest.raises(Conflict, match="is waiting"):
        notify.again(lab.conn, notice, actor="ann")
    lab.sql("update suimon.notices set state = 'dead', ended_at = clock_timestamp()")
    notify.again(lab.conn, notice, actor="ann")
    assert notify.log(lab.conn, notice=notice)[0]["state"] == "waiting"
    with pytest.raises(NotThere):
        notify.again(lab.conn, "0" * 32, actor="ann")
