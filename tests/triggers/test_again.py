"""A refused call is processed again; everything else as the outbox does it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support.lab import Lab

from suimon.db.connect import Connection
from suimon.errors import Conflict
from suimon.store.secret_key import KeyRing
from suimon.triggers import deliver, fire, webhook
from suimon.triggers.again import again
from suimon.triggers.call_log import CallLog, Entry
from suimon.triggers.webhook import Call

RING = KeyRing.of({})
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def listen(lab: Lab) -> fire.Trigger:
    lab.pipeline("p", triggers=[{"type": "WEBHOOK", "slug": "hook", "preset": "generic"}])
    found = webhook.find(lab.conn, "hook")
    assert found is not None
    return found


def call(body: bytes, *headers: tuple[bytes, bytes], key: str | None = None) -> Call:
    named = [] if key is None else [(b"idempotency-key", key.encode())]
    return Call([(b"content-type", b"application/json"), *named, *headers], body, "192.0.2.7", AT)


def keep_refused(conn: Connection, to: fire.Trigger, one: Call, code: str = "full") -> str:
    """The row of a refused call, as the door writes it."""
    detail = webhook.told_of(one, to, 429, read=True)
    CallLog().note(conn, Entry(to.id, "s", code, "why", detail))
    row = conn.execute("select id::text from suimon.deliveries where state = 'refused'").fetchone()
    assert row is not None
    return str(row[0])


def run_of(lab: Lab, to: fire.Trigger, delivery: str) -> dict[str, Any]:
    deliver.deliver(lab.conn, to.id)
    run = lab.one("select run_id from suimon.deliveries where id = %s", delivery)
    return dict(lab.one("select input from suimon.runs where id = %s", run))


@pytest.mark.parametrize("body", [b'{"n": 1}', b'{"n":  1 }'], ids=["text", "spaces"])
def test_a_refused_call_is_taken_as_if_it_had_just_come(conn: Connection, body: bytes) -> None:
    lab = Lab(conn)
    to = listen(lab)
    row = keep_refused(conn, to, call(body, (b"x-a", b"1"), key="d"))
    new = again(conn, row, actor="somebody", why="mended")
    given = run_of(lab, to, new)
    assert (given["body"], given["delivery_id"]) == ({"n": 1}, "d")
    assert given["headers"]["x-a"] == "1"
    assert given["received_at"] == "2026-01-02T03:04:05.000000Z"
    audited = lab.sql("select actor, action, target from suimon.audit")
    assert audited == [("somebody", "again", row)]
    sender = webhook.receive(conn, RING, to, call(body, key="d"))
    assert sender.status == 200  # its own key holds
    assert lab.one("select count(*) from suimon.runs") == 1


def test_a_packed_body_is_kept_as_it_was_sent(conn: Connection) -> None:
    import gzip

    lab = Lab(conn)
    to = listen(lab)
    packed = call(gzip.compress(b'{"n": 2}'), (b"content-encoding", b"gzip"))
    assert run_of(lab, to, again(conn, keep_refused(conn, to, packed), actor="t"))["body"] == {
        "n": 2
    }


def test_what_its_sender_has_repeated_meanwhile_is_not_processed_again(conn: Connection) -> None:
    to = listen(Lab(conn))
    row = keep_refused(conn, to, call(b"{}", key="d"))
    webhook.receive(conn, RING, to, call(b"{}", key="d"))
    with pytest.raises(Conflict, match="sent it again meanwhile"):
        again(conn, row, actor="t")


def test_a_refused_call_without_a_name_is_processed_once(conn: Connection) -> None:
    lab = Lab(conn)
    to = listen(lab)
    row = keep_refused(conn, to, call(b"{}"))
    run_of(lab, to, again(conn, row, actor="t"))
    with pytest.raises(Conflict):
        again(conn, row, actor="t")


@pytest.mark.parametrize(
    ("body", "said"),
    [(b"{", "refused again"), (b'"' + b"x" * 70_000 + b'"', "not kept whole")],
    ids=["broken", "long"],
)
def test_what_cannot_be_processed_again_says_why(conn: Connection, body: bytes, said: str) -> None:
    to = listen(Lab(conn))
    row = keep_refused(conn, to, call(body))
    with pytest.raises(Conflict, match=said):
        again(conn, row, actor="t")


def test_a_delivered_call_becomes_a_new_run_with_the_same_input(conn: Connection) -> None:
    lab = Lab(conn)
    to = listen(lab)
    reply = webhook.receive(conn, RING, to, call(b'{"n": 3}', key="d"))
    assert reply.answer is not None
    given = run_of(lab, to, again(conn, reply.answer.delivery_id, actor="t"))
    assert (given["body"], given["delivery_id"]) == ({"n": 3}, "d")
    assert lab.one("select count(*) from suimon.runs") == 2
