"""What ended at the doors goes after a while; what waits and dead letters stay."""

from __future__ import annotations

import re

import pytest
from support.lab import Lab

from suimon.duties import prune, sweep
from suimon.outbox import notify, retention
from suimon.triggers import fire

STATES = ["waiting", "delivered", "folded", "missed", "refused", "dead", "discarded"]


def old_id(lab: Lab, days: float) -> str:
    """An id of that time."""
    at = "suimon.first_id(clock_timestamp() - make_interval(secs => %s))"
    return str(lab.one(f"select (left({at}::text, 13) || substr(suimon.uuid7()::text, 14))::uuid",
                       days * 86_400))  # fmt: skip


def put(lab: Lab, state: str, days: float, *, ended: float | None = None) -> str:
    """A delivery that arrived and ended so long ago, with a payload of its own."""
    made = old_id(lab, days)
    lab.sql(
        "insert into suimon.deliveries (id, trigger_id, state, source, key, ended_at)"
        " select %s::uuid, t.id, %s, 'x', %s::text, case when %s = 'waiting' then null"
        " else clock_timestamp() - make_interval(secs => %s) end from suimon.triggers t",
        made, state, made, state, (days if ended is None else ended) * 86_400,
    )  # fmt: skip
    lab.sql("insert into suimon.payloads (run_id, name, sha256)"
            " values (%s, 'delivery', suimon.keep_text('{}'))", made)  # fmt: skip
    return made


def left(lab: Lab) -> set[str]:
    rows = {row[0] for row in lab.sql("select id::text from suimon.deliveries")}
    payloads = {row[0] for row in lab.sql("select run_id::text from suimon.payloads")}
    assert rows == payloads
    return rows


@pytest.fixture
def door(lab: Lab) -> Lab:
    lab.pipeline("p", triggers=[{"type": "EVENT", "event": "*"}])
    return lab


def test_what_ended_a_month_ago_goes_and_what_waits_or_is_dead_stays(door: Lab) -> None:
    ids = {(state, days): put(door, state, days) for state in STATES for days in (1, 8, 31, 400)}
    prune.duty(door.conn)
    stays = {
        key for key in ids
        if key[0] in ("waiting", "dead") or key[1] == 1
        or (key[1] == 8 and key[0] not in ("refused", "discarded"))
    }  # fmt: skip
    assert left(door) == {ids[key] for key in stays}


def test_one_that_ended_lately_stays_however_long_it_waited(door: Lab) -> None:
    lately = put(door, "delivered", 100, ended=1)
    prune.duty(door.conn)
    assert left(door) == {lately}


def test_a_discarded_file_that_is_forgotten_is_not_taken_again(door: Lab) -> None:
    made = put(door, "discarded", 8)
    prune.duty(door.conn)
    assert left(door) == set()
    (trigger,) = fire.live(door.conn, ["EVENT"])
    assert door.one(
        "select count(*) from suimon.idempotency_keys"
        " where pipeline = %s and key_hash = sha256(convert_to(%s, 'UTF8'))",
        trigger.pipeline, made,
    ) == 1  # fmt: skip


def test_events_and_notices_of_a_month_ago_go_with_their_payloads(door: Lab) -> None:
    door.sql("select suimon.emit('a', to_jsonb(repeat('x', 20000)), 'k')")
    notify.add(door.conn, "mail", email="a@example.com", actor="ann")
    for _ in range(3):
        notify.test(door.conn, "mail")
    door.sql("delete from suimon.deliveries")
    door.sql("delete from suimon.payloads where name = 'delivery'")
    prune.duty(door.conn)
    assert door.one("select count(*) from suimon.events") == 1
    event, notice = old_id(door, 31), old_id(door, 31)
    door.sql("update suimon.payloads set run_id = %s", event)
    door.sql("update suimon.events set id = %s", event)
    door.sql(
        "update suimon.notices set id = %s, state = 'sent', ended_at = clock_timestamp()"
        " where id = (select id from suimon.notices order by id limit 1)", notice,
    )  # fmt: skip
    assert prune.duty(door.conn) == 2
    counts = "select (select count(*) from suimon.events), (select count(*) from suimon.payloads)"
    assert door.sql(counts) == [(0, 0)]
    assert door.one("select count(*) from suimon.notices") == 2


def test_many_go_in_batches_and_the_rest_is_done_next_time(
    door: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 7)
    for _ in range(30):
        put(door, "delivered", 40)
    assert retention.prune(door.conn, seconds=-1) == (30, True)
    assert retention.prune(door.conn, seconds=60) == (0, False)
    put(door, "refused", 9)
    assert retention.prune(door.conn, seconds=60) == (1, False)


@pytest.mark.parametrize(
    ("state", "days", "work"),
    [("refused", 8, True), ("delivered", 31, True), ("delivered", 8, False), ("dead", 99, False)],
)
def test_the_sweep_sees_whether_there_is_work(
    door: Lab, state: str, days: float, work: bool
) -> None:
    put(door, state, days)
    taken = dict(door.sql(re.sub(r"%\(\w+\)s", "null", sweep.SQL.take)))
    assert taken["prune"] is work
