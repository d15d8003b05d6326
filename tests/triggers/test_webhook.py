"""A call becomes a delivery and a run in one transaction, or is refused with a reason."""

from __future__ import annotations

import base64
import hmac
import threading
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from support.contents import read_payload
from support.lab import Lab
from support.storage import empty, fill

from suimon.core import signatures
from suimon.db.connect import Connection, connect
from suimon.run import pressure
from suimon.store import secret
from suimon.store.secret_key import KeyRing
from suimon.triggers import deliver, fire, webhook
from suimon.triggers.call_log import BURST, CallLog, Entry
from suimon.triggers.webhook import Call, Refused, Reply

RING = KeyRing.of({"HOOK": "whsec_c2VjcmV0", "OTHER": "whsec_b3RoZXI="})
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
JSON = (b"content-type", b"application/json")


def listen(lab: Lab, slug: str = "hook", *, name: str = "p", **fields: Any) -> fire.Trigger:
    pipeline = fields.pop("pipeline", {})
    spec = {"type": "WEBHOOK", "slug": slug, "preset": "generic", **fields}
    lab.pipeline(name, triggers=[spec], **pipeline)
    found = webhook.find(lab.conn, slug)
    assert found is not None
    return found


def call(body: Any = None, *headers: tuple[bytes, bytes], key: str | None = None) -> Call:
    raw = body if isinstance(body, bytes) else orjson.dumps({} if body is None else body)
    named = [] if key is None else [(b"idempotency-key", key.encode())]
    return Call([JSON, *named, *headers], raw, "192.0.2.7", AT)


def post(conn: Connection, to: fire.Trigger, one: Call, **more: Any) -> Reply:
    return webhook.receive(conn, RING, to, one, **more)


def told(reply: Reply) -> dict[str, Any]:
    assert isinstance(reply.body, dict)
    return reply.body


def refused(conn: Connection, to: fire.Trigger, one: Call, **more: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        post(conn, to, one, **more)
    return caught.value


def test_a_call_is_a_delivery_and_a_run_with_its_whole_input(conn: Connection) -> None:
    lab = Lab(conn)
    to = listen(lab)
    secretive = [(b"authorization", b"Bearer x"), (b"cookie", b"s=1"), (b"x-signature", b"00")]
    odd = [(b"x-name", "é".encode("latin-1")), (b"x-many", b"1"), (b"x-many", b"2")]
    reply = post(conn, to, call({"n": 1}, *secretive, *odd, (b"x-auth-token", b"t"), key="d-1"))
    assert reply.status == 202
    body = told(reply)
    assert body == {
        "run_id": body["run_id"], "delivery_id": "d-1", "delivery": body["delivery"],
        "duplicate": False,
    }  # fmt: skip
    assert lab.one("select input from suimon.runs where id = %s", body["run_id"]) == {
        "headers": {
            "content-type": "application/json", "idempotency-key": "d-1", "x-name": "é",
            "x-many": "1, 2",
        },
        "body": {"n": 1},
        "delivery_id": "d-1",
        "received_at": "2026-01-02T03:04:05.000000Z",
    }  # fmt: skip
    row = lab.sql("select id::text, state, run_id::text, source, detail from suimon.deliveries")
    assert row[0][:4] == (body["delivery"], "delivered", body["run_id"], "d-1")
    assert row[0][4]["remote"] == "192.0.2.7"


def test_the_same_id_is_the_same_run_and_says_whether_the_body_was_the_same(
    conn: Connection,
) -> None:
    to = listen(Lab(conn))
    first = told(post(conn, to, call({"n": 1}, key="d")))
    again = Call([JSON, (b"idempotency-key", b"d"), (b"x-try", b"2")], b'{"n":1}', "", AT)
    reply = post(conn, to, again)
    assert reply.status == 200
    assert told(reply)["run_id"] == first["run_id"]
    assert (told(reply)["duplicate"], told(reply)["same_input"]) == (True, True)
    other = told(post(conn, to, call({"n": 2}, key="d")))
    assert (other["run_id"], other["same_input"]) == (first["run_id"], False)


def test_the_same_body_with_another_id_is_another_run(conn: Connection) -> None:
    to = listen(Lab(conn))
    runs = {told(post(conn, to, call({"n": 1}, key=key)))["run_id"] for key in ("a", "b")}
    assert len(runs) == 2


def test_two_webhooks_of_one_pipeline_do_not_share_their_ids(conn: Connection) -> None:
    lab = Lab(conn)
    hooks = [{"type": "WEBHOOK", "slug": slug, "preset": "generic"} for slug in ("a", "b")]
    lab.pipeline("p", triggers=hooks)
    found = [webhook.find(conn, slug) for slug in ("a", "b")]
    runs = {told(post(conn, to, call(key="1")))["run_id"] for to in found if to is not None}
    assert len(runs) == 2


def test_a_sender_without_an_id_gets_a_new_run_each_time_and_is_told(conn: Connection) -> None:
    to = listen(Lab(conn))
    answers = [told(post(conn, to, call({"n": 1}))) for _ in range(2)]
    assert all(one["delivery_id_from_sender"] is False for one in answers)
    assert len({one["run_id"] for one in answers}) == 2
    assert len({one["delivery_id"] for one in answers}) == 2


def test_many_calls_with_one_id_at_one_moment_are_one_run(db_url: str) -> None:
    with connect(db_url, name="test") as conn:
        lab = Lab(conn)
        to = listen(lab)
        gate = threading.Barrier(8)
        answers: list[dict[str, Any]] = []

        def send() -> None:
            with connect(db_url, name="sender") as mine:
                gate.wait()
                answers.append(told(post(mine, to, call({"n": 1}, key="same"))))

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({one["run_id"] for one in answers}) == 1
        assert [one["duplicate"] for one in answers].count(False) == 1
        assert lab.one("select count(*) from suimon.runs") == 1


def test_while_the_triggers_are_paused_a_call_waits_as_a_delivery(conn: Connection) -> None:
    lab = Lab(conn)
    to = listen(lab)
    lab.sql("insert into suimon.pauses (what, by) values ('triggers:p', 'test')")
    first = post(conn, to, call({"n": 1}, key="a"))
    assert first.status == 202
    assert told(first)["run_id"] is None
    assert told(first)["reason"] == "paused:triggers:p"
    again = post(conn, to, call({"n": 1}, key="a"))
    assert (again.status, told(again)["duplicate"], told(again)["same_input"]) == (200, True, True)
    lab.sql("delete from suimon.pauses")
    behind = told(post(conn, to, call({"n": 2}, key="b")))
    assert behind["run_id"] is None
    assert behind["reason"]
    deliver.deliver(conn, to.id)
    inputs = lab.sql("select input -> 'body' -> 'n' from suimon.runs order by lane_rank, rank")
    assert inputs == [(1,), (2,)]


def test_a_full_pipeline_is_429_and_nothing_is_stored_but_a_repetition_is_found(
    conn: Connection,
) -> None:
    lab = Lab(conn)
    to = listen(lab, pipeline={"maxQueued": 2})
    first = told(post(conn, to, call(key="1")))
    post(conn, to, call(key="2"))
    full = refused(conn, to, call(key="3"))
    assert (full.status, full.code) == (429, "full")
    assert full.retry_after_s == 1
    lab.sql("update suimon.runs set created_at = created_at - interval '1000 s'")
    assert refused(conn, to, call(key="3")).retry_after_s == 300
    assert told(post(conn, to, call(key="1")))["run_id"] == first["run_id"]
    assert lab.one("select count(*) from suimon.deliveries") == 2
    lab.sql("delete from suimon.runs")
    assert post(conn, to, call(key="3")).status == 202


def test_a_signed_call_is_taken_and_each_fault_is_the_same_refusal(conn: Connection) -> None:
    lab = Lab(conn)
    to = listen(lab, preset="standard", secret=["env:HOOK", "env:OTHER"])
    how = signatures.scheme(to.spec)
    stamp = int(AT.timestamp())

    def signed(secret: str, body: bytes = b"{}", at: int = stamp) -> list[tuple[bytes, bytes]]:
        made = signatures.sign(how, secret, b"{}", delivery_id="m", timestamp=at)
        return [(name.encode(), value.encode()) for name, value in made.items()]

    for name in ("HOOK", "OTHER"):
        answer = told(post(conn, to, call(b"{}", *signed(RING.environment[name]))))
        assert answer["delivery_id"] == "m"
    faults = [
        call(b"{}"),
        call(b"{}", *signed("whsec_bm9uZQ==")),
        call(b"[]", *signed("whsec_c2VjcmV0")),
        call(b"{}", *signed("whsec_c2VjcmV0", at=stamp - 301)),
        call(b"{}", *signed("whsec_c2VjcmV0"), (b"webhook-signature", b"v1,x")),
        call(b"not json", *signed("whsec_c2VjcmV0")),
    ]
    answers = [refused(conn, to, one) for one in faults]
    assert {(one.status, one.code, one.told) for one in answers} == {
        (401, "signature", webhook.UNSIGNED)
    }
    assert len({one.why for one in answers}) > 2  # the log knows more than the sender
    assert lab.one("select count(*) from suimon.runs") == 1


def test_a_stored_secret_is_exchanged_without_a_moment_in_which_nothing_fits(
    conn: Connection,
) -> None:
    ring = KeyRing.of({"SUIMON_SECRET_KEY": base64.b64encode(b"k" * 32).decode()})
    secret.put(conn, ring, "hook", "old", by="test")
    secret.put(conn, ring, "hook_new", "new", by="test")
    lab = Lab(conn)

    def answered(to: fire.Trigger, word: str) -> int:
        mac = hmac.digest(word.encode(), b"{}", "sha256").hex().encode()
        try:
            return webhook.receive(conn, ring, to, call(b"{}", (b"x-signature", mac))).status
        except Refused as error:
            return error.status

    for given, old, new in (
        ("secret:hook", 202, 401),
        (["secret:hook_new", "secret:hook"], 202, 202),
        ("secret:hook_new", 401, 202),
    ):
        to = listen(lab, secret=given)
        assert (answered(to, "old"), answered(to, "new")) == (old, new)


@pytest.mark.parametrize("reference", ["env:NOWHERE", "secret:gone", "file:/no/such/file"])
def test_a_secret_that_is_not_there_is_our_fault_and_the_sender_shall_come_again(
    conn: Connection, reference: str
) -> None:
    to = listen(Lab(conn), secret=reference)
    answer = refused(conn, to, call())
    assert (answer.status, answer.code) == (503, "secret")
    assert answer.retry_after_s
    assert reference not in answer.told


def test_a_webhook_without_a_secret_is_refused_where_anybody_can_call(conn: Connection) -> None:
    lab = Lab(conn)
    to = listen(lab)
    assert refused(conn, to, call(), needs_secret=True).status == 403
    assert post(conn, to, call()).status == 202


def test_slack_is_answered_with_its_challenge_and_nothing_starts(conn: Connection) -> None:
    lab = Lab(conn)
    to = listen(lab, preset="slack", secret="env:HOOK")
    body = orjson.dumps({"type": "url_verification", "challenge": "word"})
    assert refused(conn, to, call(body)).status == 401  # not without a signature
    made = signatures.sign(
        signatures.scheme(to.spec), "whsec_c2VjcmV0", body, timestamp=int(AT.timestamp())
    )
    headers = [(name.encode(), value.encode()) for name, value in made.items()]
    assert post(conn, to, call(body, *headers)) == Reply(200, "word")
    assert lab.one("select count(*) from suimon.runs") == 0


def test_an_input_that_the_pipeline_cannot_use_is_refused_at_once(conn: Connection) -> None:
    lab = Lab(conn)
    task = {"type": "TASK", "config": {"task": "m:f"}, "inputs": {"x": {"$ref": "input.body.x"}}}
    spec = {"type": "WEBHOOK", "slug": "hook", "preset": "generic"}
    lab.pipeline("p", {"t": task}, triggers=[spec])
    to = webhook.find(conn, "hook")
    assert to is not None
    answer = refused(conn, to, call({"y": 1}, key="k"))
    assert (answer.status, answer.code) == (400, "input")
    assert "x" in answer.told
    assert lab.one("select count(*) from suimon.deliveries") == 0
    assert post(conn, to, call({"x": 1}, key="k")).status == 202


def test_headers_are_bounded(conn: Connection) -> None:
    many = [(b"x-%d" % n, b"v" * 900) for n in range(300)]
    shown = webhook.shown_headers(many)
    assert 0 < len(shown) <= webhook.MAX_HEADERS
    assert sum(map(len, shown.values())) <= webhook.MAX_HEADER_BYTES


def test_a_large_body_is_stored_whole(conn: Connection) -> None:
    lab = Lab(conn)
    to = listen(lab, maxBody=2_000_000)
    text = "x" * 1_500_000
    run = told(post(conn, to, call({"text": text}, key="k")))["run_id"]
    body = read_payload(lab.conn, run, "input")
    assert orjson.loads(body)["body"]["text"] == text
    assert told(post(conn, to, call({"text": text}, key="k")))["same_input"] is True


# ------------------------------------------------------------------------------------- the log


def entry(code: str = "signature", trigger: int | None = 1) -> Entry:
    return Entry(trigger, "s", code, "why", {"status": 401})


def test_a_large_body_is_refused_while_the_store_is_full(conn: Connection) -> None:
    """503, with the time to come again; a small one is taken, and nothing large was stored."""
    lab = Lab(conn)
    to = listen(lab)
    pressure.change(conn, {"high_bytes": 1000}, actor="test")
    fill(lab, 1000)
    full = refused(conn, to, call({"text": "x" * 9000}, key="d-1"))
    assert (full.status, full.code, full.retry_after_s) == (503, "storage", 30)
    assert "MB" not in full.told
    assert lab.one("select count(*) from suimon.deliveries") == 0
    assert post(conn, to, call({"text": "x"}, key="d-2")).status == 202
    empty(lab)
    assert post(conn, to, call({"text": "x" * 9000}, key="d-1")).status == 202


def test_a_flood_of_refusals_is_counted_and_not_written_one_by_one(conn: Connection) -> None:
    lab = Lab(conn)
    log = CallLog()
    for _ in range(1000):
        log.note(conn, entry())
    assert log.behind
    assert lab.one("select count(*) from suimon.deliveries") < BURST + 30
    log.flush(conn)
    assert not log.behind
    assert lab.one("select count from suimon.refusals where code = 'signature'") == 1000
    rows = lab.one("select sum(coalesce((detail ->> 'count')::int, 1)) from suimon.deliveries")
    assert rows == 1000


def test_refused_rows_are_bounded_and_old_bodies_go_first(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suimon.triggers.call_log.KEEP", 50)
    monkeypatch.setattr("suimon.triggers.call_log.KEEP_BODIES", 10)
    monkeypatch.setattr("suimon.triggers.call_log.BURST", 1e9)
    lab = Lab(conn)
    log = CallLog()
    for n in range(300):
        log.note(conn, Entry(None, str(n), "unknown", "no", {"body": {"text": "x"}}))
    assert lab.one("select count(*) from suimon.deliveries") == 50
    assert lab.one("select min(source::int) from suimon.deliveries") > 200
    bodies = lab.sql("select source::int from suimon.deliveries where detail ? 'body'")
    assert len(bodies) == 10
    assert min(row[0] for row in bodies) > 250
    assert lab.one("select count from suimon.refusals") == 300
