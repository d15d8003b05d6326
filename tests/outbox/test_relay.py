"""Sending notices: signed, at least once, later and later, and never where it may not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from support.lab import Lab
from support.receivers import Hook, Mailbox, hook, mailbox
from support.wait import wait_until

from suimon.db.connect import connect
from suimon.outbox import notify, reach, relay
from suimon.outbox.relay import Post, Relay
from suimon.store.secret_key import KeyRing

KEY = b"a key of thirty-two bytes, or so"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


def post(**more: str) -> Post:
    """What a process with this environment sends with."""
    given = {"HOOK": SECRET, "SUIMON_ALLOW_ADDRESSES": "127.0.0.1", **more}
    return Post(KeyRing.of(given))


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as made:
        yield made


@pytest.fixture
def mails() -> Iterator[Mailbox]:
    with mailbox() as made:
        yield made


def add(lab: Lab, url: str, name: str = "ops") -> None:
    notify.add(lab.conn, name, webhook=url, secret="env:HOOK", actor="ann")


def ask(lab: Lab, name: str = "ops") -> str:
    return notify.test(lab.conn, name)


def state(lab: Lab, notice: str) -> tuple[str, int, str | None]:
    found = notify.log(lab.conn, notice=notice)[0]
    return found["state"], found["tries"], found["why"]


def due(lab: Lab) -> None:
    """The pause before the next try is over."""
    lab.sql("update suimon.notices set next_at = clock_timestamp() where state = 'waiting'")


# ------------------------------------------------------------------------------------ webhooks


def test_a_notice_is_posted_signed_as_the_standard_webhooks_say(lab: Lab, receiver: Hook) -> None:
    add(lab, receiver.url)
    notice = ask(lab)
    assert relay.round(lab.conn, post()) is None
    assert state(lab, notice) == ("sent", 1, None)
    (call,) = receiver.calls
    at = call.headers["webhook-timestamp"]
    content = f"{notice}.{at}.".encode() + call.body
    mac = base64.b64encode(hmac.new(KEY, content, hashlib.sha256).digest()).decode()
    assert call.headers["webhook-signature"] == f"v1,{mac}"
    assert call.headers["webhook-id"] == notice
    body = orjson.loads(call.body)
    assert (body["type"], body["data"]["channel"]) == ("test", "ops")


def test_an_answer_that_is_no_success_is_tried_again_with_the_same_id(
    lab: Lab, receiver: Hook
) -> None:
    add(lab, receiver.url)
    notice = ask(lab)
    receiver.answer = lambda _: (500, {})
    wait_s = relay.round(lab.conn, post())
    assert wait_s is not None
    assert 3 < wait_s < 7
    assert state(lab, notice) == ("waiting", 1, "the receiver answered 500")
    receiver.answer = lambda _: (200, {})
    due(lab)
    relay.round(lab.conn, post())
    assert state(lab, notice)[:2] == ("sent", 2)
    assert {call.headers["webhook-id"] for call in receiver.calls} == {notice}


def test_after_the_last_try_a_notice_is_dead(lab: Lab, receiver: Hook) -> None:
    add(lab, receiver.url)
    notice = ask(lab)
    receiver.answer = lambda _: (503, {})
    for _ in range(10):
        due(lab)
        relay.round(lab.conn, post())
    assert state(lab, notice) == ("dead", 10, "the receiver answered 503; given up after 10 tries")
    assert notify.one(lab.conn, "ops")["enabled"]


def test_retry_after_is_honoured(lab: Lab, receiver: Hook) -> None:
    add(lab, receiver.url)
    ask(lab)
    receiver.answer = lambda _: (429, {"retry-after": "1000"})
    wait_s = relay.round(lab.conn, post())
    assert wait_s is not None
    assert 990 < wait_s <= 1000


def test_gone_disables_the_channel(lab: Lab, receiver: Hook) -> None:
    add(lab, receiver.url)
    notice = ask(lab)
    receiver.answer = lambda _: (410, {})
    relay.round(lab.conn, post())
    assert state(lab, notice)[0] == "dead"
    found = notify.one(lab.conn, "ops")
    assert (found["enabled"], found["note"]) == (False, "the receiver answered 410")


def test_a_redirect_is_not_followed(lab: Lab, receiver: Hook) -> None:
    with hook() as other:
        add(lab, receiver.url)
        notice = ask(lab)
        receiver.answer = lambda _: (307, {"location": other.url})
        relay.round(lab.conn, post())
        assert state(lab, notice) == ("waiting", 1, "the receiver answered 307")
        assert other.connections == 0


def test_nobody_at_the_address_is_a_try(lab: Lab) -> None:
    with hook() as gone:
        url = gone.url
    add(lab, url)
    notice = ask(lab)
    relay.round(lab.conn, post())
    found = state(lab, notice)
    assert found[:2] == ("waiting", 1)
    assert "ConnectError" in str(found[2])


def test_a_receiver_that_drips_is_left_when_the_time_is_up(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach.Reach.post, "__kwdefaults__", {"timeout_s": 0.5})
    with hook(drip_s=0.05) as slow:
        add(lab, slow.url)
        notice = ask(lab)
        relay.round(lab.conn, post())
        found = state(lab, notice)
    assert found[:2] == ("waiting", 1)
    assert "Timeout" in str(found[2])


def test_a_secret_that_is_missing_is_told_and_not_sent_without(lab: Lab, receiver: Hook) -> None:
    notify.add(lab.conn, "ops", webhook=receiver.url, secret="env:NOT_SET", actor="ann")
    notice = ask(lab)
    relay.round(lab.conn, post())
    assert state(lab, notice) == ("waiting", 1, 'the secret "env:NOT_SET" is not set')
    assert receiver.calls == []


def test_the_databases_own_port_is_not_reached_although_its_address_is_open(lab: Lab) -> None:
    info = lab.conn.info
    add(lab, f"http://127.0.0.1:{info.port}/")
    notice = ask(lab)
    relay.round(lab.conn, post())
    found = state(lab, notice)
    assert found[0] == "dead"
    assert "the database's own address and port" in str(found[2])


# ------------------------------------------------------------------------------------ at least once


def test_a_notice_of_a_relay_that_died_is_sent_by_another_one(lab: Lab, receiver: Hook) -> None:
    add(lab, receiver.url)
    notice = ask(lab)
    relay._claim(lab.conn)  # and no more is heard of it
    assert relay.round(lab.conn, post()) is not None
    assert receiver.calls == []
    lab.sql("update suimon.notices set next_at = clock_timestamp()")
    relay.round(lab.conn, post())
    assert state(lab, notice)[:2] == ("sent", 2)


def test_two_relays_send_each_notice_once(lab: Lab, receiver: Hook, db_url: str) -> None:
    names = [f"c{i}" for i in range(6)]
    for name in names:
        add(lab, receiver.url, name)
    sent = {ask(lab, name) for name in names for _ in range(3)}

    def work() -> None:
        with connect(db_url, name="relay") as conn:
            relay.round(conn, post())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [call.headers["webhook-id"] for call in receiver.calls]
    assert sorted(ids) == sorted(sent)


def test_an_answer_after_the_lease_changes_nothing_that_another_try_did(
    lab: Lab, receiver: Hook
) -> None:
    add(lab, receiver.url)
    notice = ask(lab)
    (late,) = relay._claim(lab.conn)
    due(lab)
    relay.round(lab.conn, post())
    relay.settle(lab.conn, late, relay.notices.dead("too late"))
    assert state(lab, notice) == ("sent", 2, None)


def test_a_receiver_that_fails_holds_up_nobody_else(lab: Lab, receiver: Hook) -> None:
    with hook() as gone:
        url = gone.url
    add(lab, url, "broken")
    add(lab, receiver.url, "fine")
    first = [ask(lab, "broken") for _ in range(8)]
    second = ask(lab, "fine")
    relay.round(lab.conn, post())
    assert state(lab, second)[0] == "sent"
    assert {state(lab, one)[0] for one in first} == {"waiting"}


def test_a_disabled_channel_waits_and_is_sent_when_it_is_enabled(lab: Lab, receiver: Hook) -> None:
    add(lab, receiver.url)
    notice = ask(lab)
    notify.disable(lab.conn, "ops", actor="ann")
    assert relay.round(lab.conn, post()) is None
    assert state(lab, notice)[0] == "waiting"
    notify.enable(lab.conn, "ops", actor="ann")
    relay.round(lab.conn, post())
    assert state(lab, notice)[0] == "sent"


def test_the_thread_sends_when_it_is_told_and_again_when_the_pause_is_over(
    lab: Lab, receiver: Hook, db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay.notices, "PAUSES_S", (0.05,) * 9)
    answers = iter([(500, {}), (500, {})])
    receiver.answer = lambda _: next(answers, (200, {}))
    add(lab, receiver.url)
    thread = Relay(db_url, post())
    thread.start()
    try:
        notice = ask(lab)
        thread.poke()
        wait_until(lambda: state(lab, notice)[0] == "sent", 20, "sent")
        assert state(lab, notice)[1] == 3
        name = "select count(*) from pg_stat_activity where application_name = 'suimon:relay'"
        wait_until(lambda: lab.one(name) == 0, 20, "without a connection while it sleeps")
    finally:
        thread.close()
        thread.join(10)
    assert not thread.is_alive()


# ------------------------------------------------------------------------------------ e-mail


def smtp(mails: Mailbox, **more: str) -> Post:
    given = {"SUIMON_SMTP_HOST": "127.0.0.1", "SUIMON_SMTP_PORT": str(mails.port)}
    return post(**given, SUIMON_SMTP_SECURITY="none", SUIMON_SMTP_FROM="suimon@example.com", **more)


def tell(lab: Lab, subject: str, payload: dict[str, Any] | None = None) -> str:
    at = lab.one("select clock_timestamp()")
    fact = f"fact {subject}"
    assert notify.tell(lab.conn, "run.failed", fact, at, subject, payload or {}) == 1
    return str(notify.log(lab.conn, limit=1)[0]["id"])


def test_a_notice_is_mailed_as_plain_text(lab: Lab, mails: Mailbox) -> None:
    notify.add(lab.conn, "mail", email="a@example.com, b@example.com", actor="ann")
    notice = tell(lab, "p failed: ä", {"pipeline": "p", "error": "ä\nb", "runs": ["x", "y"]})
    relay.round(lab.conn, smtp(mails))
    assert state(lab, notice) == ("sent", 1, None)
    (mail,) = mails.mails
    assert mail["Subject"] == "[suimon] p failed: ä"
    assert mail["From"] == "suimon@example.com"
    assert mail["Message-ID"] == f"<{notice}@suimon.invalid>"
    assert mails.recipients == [["a@example.com", "b@example.com"]]
    text = mail.get_content()
    assert "pipeline: p" in text
    assert "runs: x, y" in text
    assert mail.get_content_type() == "text/plain"


@pytest.mark.parametrize("bad", ["\r\n", "\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_no_subject_becomes_a_header_of_its_own(lab: Lab, mails: Mailbox, bad: str) -> None:
    notify.add(lab.conn, "mail", email="a@example.com", actor="ann")
    notice = tell(lab, f"p failed: x{bad}Bcc: victim@example.com{bad}{bad}<script>")
    relay.round(lab.conn, smtp(mails))
    assert state(lab, notice)[0] == "sent"
    (mail,) = mails.mails
    assert mail["Bcc"] is None
    assert mails.recipients == [["a@example.com"]]
    assert mail["Subject"] == "[suimon] p failed: x Bcc: victim@example.com <script>"


def test_a_recipient_that_is_refused_for_good_is_the_end(lab: Lab, mails: Mailbox) -> None:
    notify.add(lab.conn, "mail", email="a@example.com", actor="ann")
    mails.answer = "550 no such user"
    notice = tell(lab, "one")
    relay.round(lab.conn, smtp(mails))
    assert state(lab, notice)[0] == "dead"
    mails.answer = "451 later"
    notice = tell(lab, "two")
    relay.round(lab.conn, smtp(mails))
    assert state(lab, notice)[:2] == ("waiting", 1)


def test_without_encryption_nothing_is_sent_where_it_is_asked_for(lab: Lab, mails: Mailbox) -> None:
    """The server knows no STARTTLS; the password is not sent in the clear."""
    notify.add(lab.conn, "mail", email="a@example.com", actor="ann")
    notice = tell(lab, "one")
    given = {"SUIMON_SMTP_HOST": "127.0.0.1", "SUIMON_SMTP_PORT": str(mails.port)}
    relay.round(lab.conn, post(**given, SUIMON_SMTP_USER="u", SUIMON_SMTP_PASSWORD="env:HOOK"))
    found = state(lab, notice)
    assert found[:2] == ("waiting", 1)
    assert "STARTTLS" in str(found[2])
    assert mails.mails == []


def test_without_a_mail_server_it_waits_and_says_so(lab: Lab) -> None:
    notify.add(lab.conn, "mail", email="a@example.com", actor="ann")
    notice = tell(lab, "one")
    relay.round(lab.conn, post())
    assert "SUIMON_SMTP_HOST" in str(state(lab, notice)[2])
