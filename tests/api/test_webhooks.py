"""The address that senders call: what is answered, what is logged, and what never happens."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator

import pytest
from support.hooks import bare, post, raw, serving
from support.lab import Lab
from support.wait import wait_until

from suimon.core import clock, signatures
from suimon.db.connect import Connection, connect
from suimon.run import quotas

SECRET = "whsec_c2VjcmV0LW9mLWEtdGVzdA=="
ENVIRONMENT = {"HOOK": SECRET}


@pytest.fixture
def lab(conn: Connection) -> Lab:
    """Two webhooks: `open` takes anything, `signed` what is signed."""
    made = Lab(conn)
    made.pipeline("plain", triggers=[{"type": "WEBHOOK", "slug": "open", "preset": "generic"}])
    made.pipeline("safe", triggers=[{"type": "WEBHOOK", "slug": "in/signed", "secret": "env:HOOK"}])
    return made


@pytest.fixture
def port(lab: Lab, db_url: str) -> Iterator[int]:
    with serving(db_url, environment=ENVIRONMENT) as found:
        yield found


def signed(body: bytes, name: str) -> dict[str, str]:
    how = signatures.scheme({"slug": "in/signed"})
    now = int(clock.now().timestamp())
    return signatures.sign(how, SECRET, body, delivery_id=name, timestamp=now)


def test_the_first_call_is_202_and_the_second_200_with_the_same_run(port: int, lab: Lab) -> None:
    first = post(port, "open", b'{"n": 1}', {"Idempotency-Key": "a"})
    assert (first.status, first.json["duplicate"]) == (202, False)
    assert lab.status(first.json["run_id"]) == "queued"
    second = post(port, "open", b'{"n": 1}', {"Idempotency-Key": "a"})
    assert (second.status, second.json["run_id"]) == (200, first.json["run_id"])
    assert second.json["same_input"] is True
    logged = lab.sql("select state, duplicate, run_id::text from suimon.deliveries order by seq")
    run = first.json["run_id"]
    assert logged == [("delivered", False, run), ("delivered", True, run)]


def test_a_signed_call_is_taken_at_an_address_with_a_slash(port: int, lab: Lab) -> None:
    answer = post(port, "in/signed", b"[1]", signed(b"[1]", "m1"))
    assert answer.status == 202
    given = lab.one("select input from suimon.runs")
    assert (given["body"], given["delivery_id"]) == ([1], "m1")
    assert not any("signature" in name for name in given["headers"])


def test_every_refusal_is_told_counted_and_logged_without_secrets(port: int, lab: Lab) -> None:
    lab.pipeline(
        "small", maxQueued=1,
        triggers=[{"type": "WEBHOOK", "slug": "small", "preset": "generic", "maxBody": 10}],
    )  # fmt: skip
    assert post(port, "small").status == 202
    wrong = {**signed(b"{}", "m"), "webhook-signature": "v1,nonsense", "Authorization": "Bearer x"}
    answers = {
        "unknown": post(port, "nowhere"),
        "signature": post(port, "in/signed", b"{}", wrong),
        "too_large": post(port, "small", b'"' + b"x" * 5000 + b'"'),
        "body": post(port, "open", b"{"),
        "media_type": post(port, "open", b"x", {"Content-Type": "image/png"}),
        "full": post(port, "small", b"{}"),
        "delivery_id": post(port, "open", b"{}", {"Idempotency-Key": "x" * 600}),
    }
    statuses = {code: answer.status for code, answer in answers.items()}
    assert statuses == {
        "unknown": 404, "signature": 401, "too_large": 413, "body": 400, "media_type": 415,
        "full": 429, "delivery_id": 400,
    }  # fmt: skip
    for code, answer in answers.items():
        assert answer.headers["content-type"] == "application/problem+json"
        assert (answer.json["code"], answer.json["status"]) == (code, answer.status)
        assert answer.json["detail"]
    assert answers["full"].headers["retry-after"] == "1"
    rows = lab.sql("select code, detail, trigger_id from suimon.deliveries where state = 'refused'")
    assert {code for code, _, _ in rows} == set(answers)
    assert all(detail["status"] == statuses[code] for code, detail, _ in rows)
    by_code = {code: detail for code, detail, _ in rows}
    assert by_code["body"]["body"] == {"size": 1, "complete": True, "text": "{"}
    assert "body" not in by_code["too_large"]
    assert "nonsense" not in str(rows)
    assert "Bearer" not in str(rows)
    counts = dict(lab.sql("select code, count from suimon.refusals"))
    assert counts == dict.fromkeys(answers, 1)


def test_a_quota_and_a_full_queue_have_titles_of_their_own(port: int, lab: Lab) -> None:
    """A webhook over a quota is called as a start over HTTP is."""
    quotas.change(lab.conn, "all", {"per_day": 0}, actor="test")
    answer = post(port, "open")
    assert (answer.status, answer.json["title"]) == (429, "Quota exceeded")


def test_a_method_that_is_no_post_is_405(port: int) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        answer = post(port, "open", method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_packed_and_chunked_bodies_arrive_whole(port: int, lab: Lab) -> None:
    packed = gzip.compress(b'{"a": 1}')
    assert post(port, "open", packed, {"Content-Encoding": "gzip"}).status == 202
    chunked = (
        b"POST /webhooks/open HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b'Transfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n5\r\n": 2}\r\n0\r\n\r\n'
    )
    assert b" 202 " in raw(port, chunked).split(b"\r\n")[0]
    bodies = lab.sql("select input -> 'body' from suimon.runs order by id")
    assert bodies == [({"a": 1},), ({"a": 2},)]


def test_a_chunked_body_above_the_limit_is_413(port: int) -> None:
    head = (
        b"POST /webhooks/open HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"%x\r\n%s\r\n" % (100_000, b" " * 100_000)
    assert b" 413 " in raw(port, head + chunk * 20 + b"0\r\n\r\n").split(b"\r\n")[0]


def test_slack_is_answered_with_its_word(port: int, lab: Lab) -> None:
    hook = {"type": "WEBHOOK", "slug": "slack", "preset": "slack", "secret": "env:HOOK"}
    lab.pipeline("chat", triggers=[hook])
    body = b'{"type": "url_verification", "challenge": "3eZbrw1a"}'
    now = int(clock.now().timestamp())
    headers = signatures.sign(signatures.scheme(hook), SECRET, body, timestamp=now)
    answer = post(port, "slack", body, headers)
    assert (answer.status, answer.body) == (200, b"3eZbrw1a")
    assert answer.headers["content-type"].startswith("text/plain")


def test_reached_from_outside_a_webhook_without_a_secret_is_refused(lab: Lab, db_url: str) -> None:
    with serving(db_url, environment=ENVIRONMENT, public=True) as port:
        assert post(port, "open").status == 403
        assert post(port, "in/signed", b"{}", signed(b"{}", "m")).status == 202


def test_a_table_that_is_locked_is_503_in_time_and_the_call_is_stored_when_it_is_repeated(
    port: int, lab: Lab, db_url: str
) -> None:
    with connect(db_url, name="lock") as other, other.transaction():
        other.execute("lock table suimon.deliveries in access exclusive mode")
        began = clock.monotonic()
        answer = post(port, "open", b"{}", {"Idempotency-Key": "a"})
        assert clock.monotonic() - began < 5
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) >= 1
    assert post(port, "open", b"{}", {"Idempotency-Key": "a"}).status in (200, 202)
    assert lab.one("select count(*) from suimon.runs") == 1


def test_a_read_only_database_is_503_and_comes_back(port: int, lab: Lab, db_url: str) -> None:
    name = lab.one("select current_database()")
    lab.sql(f'alter database "{name}" set default_transaction_read_only = on')
    lab.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    answer = post(port, "open")
    assert (answer.status, int(answer.headers["retry-after"]) >= 1) == (503, True)
    lab.sql(f'alter database "{name}" set default_transaction_read_only = off')

    def works() -> bool:
        return post(port, "open", b"{}", {"Idempotency-Key": "a"}).status in (200, 202)

    lab.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    wait_until(works, 20, "calls are taken again")


def test_random_headers_and_bytes_are_never_a_server_error(port: int, lab: Lab) -> None:
    rng = random.Random(7)
    names = [
        "webhook-id", "webhook-signature", "webhook-timestamp", "content-type", "content-encoding",
        "idempotency-key", "authorization", "x-forwarded-for", "expect", "x-request-id", "origin",
    ]  # fmt: skip
    words = [
        b"application/json", b"gzip", b"text/plain; charset=utf-16", b"multipart/form-data", b"",
        b"application/x-www-form-urlencoded", b"1614265330", b"v1,", b"\xe9\xff", b"a\tb",
    ]  # fmt: skip
    for turn in range(300):
        headers = [
            (rng.choice(names), rng.choice([*words, _bytes(rng, 40)]))
            for _ in range(rng.randrange(6))
        ]
        body = rng.choice([b"", b"{}", b"[]", b"a=1&b=%00", _bytes(rng, 200, text=False)])
        slug = rng.choice(["open", "in/signed", "in//signed", "%00", "%ff", "x" * 300, "..%2f", ""])
        answer = bare(port, f"/webhooks/{slug}", body, headers)
        assert answer.status < 500, (turn, slug, headers, body, answer)
    alive = post(port, "open")
    assert alive.status == 202


def test_random_requests_leave_the_server_alive(port: int) -> None:
    rng = random.Random(8)
    for _ in range(60):
        head = b"POST /webhooks/open HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        answer = raw(port, head + _bytes(rng, 300, text=False) + b"\r\n\r\n{}")
        assert not answer.split(b"\r\n")[0].split(b" ")[1:2] or b" 5" not in answer[:12]
    assert post(port, "open").status == 202


def _bytes(rng: random.Random, longest: int, *, text: bool = True) -> bytes:
    low, high = (0x20, 0xFF) if text else (0, 0xFF)
    return bytes(rng.randint(low, high) for _ in range(rng.randrange(longest)))
