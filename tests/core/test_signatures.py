"""Signatures of webhooks: each provider's published example, and everything that is not one."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest

from suimon.core import signatures
from suimon.core.signatures import IdRefused, Scheme, SecretUnusable

GITHUB = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&"
    b"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibI"
    b"GlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
#: The example of each provider's own documentation or library: secret, headers, body, its time.
PUBLISHED: list[tuple[str, str, dict[str, str], bytes, int]] = [
    (
        "standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
        b'{"test": 2432232314}', 1614265330,
    ),
    (
        "github", "It's a Secret to Everybody", {"x-hub-signature-256": f"sha256={GITHUB}"},
        b"Hello, World!", 0,
    ),
    (
        "stripe", "8e1138dbb41c5726420bd0c909ecb9a70ea01eff",
        {
            "stripe-signature": "t=1632994609,"
            "v1=51835061c251fe1d328ac0fffccebe05e38e198d82ee3c3fdd66973cb9160845"
        },
        b'{\n  "hello": "world"\n}', 1632994609,
    ),
    (
        "slack", "8f742231b10e8888abcd99yyyzzz85a5",
        {
            "x-slack-request-timestamp": "1531420618",
            "x-slack-signature":
                "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        },
        SLACK_BODY, 1531420618,
    ),
    ("gitlab", "a token", {"x-gitlab-token": "a token"}, b"{}", 0),
]  # fmt: skip
BY_NAME = {one[0]: one for one in PUBLISHED}


def wire(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def of(preset: str, **more: Any) -> Scheme:
    return signatures.scheme({"type": "WEBHOOK", "slug": "s", "preset": preset, **more})


def judged(preset: str, **changes: Any) -> str | None:
    """The verdict on a published example with something changed."""
    _, secret, headers, body, now = BY_NAME[preset]
    given = {"secrets": [secret], "headers": wire(headers), "body": body, "now": now, **changes}
    return signatures.verify(of(preset), **given)


@pytest.mark.parametrize("preset", list(BY_NAME))
def test_the_published_example_of_a_provider_is_right(preset: str) -> None:
    assert judged(preset) is None


@pytest.mark.parametrize("preset", list(BY_NAME))
def test_another_body_or_another_secret_is_wrong(preset: str) -> None:
    assert judged(preset, secrets=["whsec_AAAA" if preset == "standard" else "other"])
    if preset != "gitlab":  # its token says nothing about the body
        assert judged(preset, body=BY_NAME[preset][3] + b" ")


@pytest.mark.parametrize("preset", list(BY_NAME))
def test_either_of_two_secrets_is_right_while_they_are_exchanged(preset: str) -> None:
    other = "whsec_" + base64.b64encode(b"k" * 24).decode()
    secret = BY_NAME[preset][1]
    assert judged(preset, secrets=[other, secret]) is None
    assert judged(preset, secrets=[secret, other]) is None
    assert judged(preset, secrets=[other, other, secret])  # a third one is never asked


@pytest.mark.parametrize("preset", ["standard", "stripe", "slack"])
@pytest.mark.parametrize(("away", "said"), [(-301, "future"), (301, "past"), (86_400, "past")])
def test_a_timestamp_outside_the_window_is_refused(preset: str, away: int, said: str) -> None:
    now = BY_NAME[preset][4]
    assert said in str(judged(preset, now=now + away))
    assert judged(preset, now=now + (300 if away > 0 else -300)) is None


def test_the_window_can_be_set() -> None:
    _, secret, headers, body, now = BY_NAME["stripe"]
    given = (wire(headers), body, now + 400)
    assert signatures.verify(of("stripe", tolerance="10m"), [secret], *given) is None
    assert signatures.verify(of("stripe", tolerance="1m"), [secret], *given)


ODD = [
    b"", b"x", b"=", b",", "sé".encode(), "sé".encode("latin-1"), "署名".encode(), b"\xff\x01",
    b"v1,", b"v1=", b"v0=", b"sha256=", b"t=,v1=", b"t=9,v1=9", b"x" * 1_000_000, b"v1, " * 250_000,
]  # fmt: skip


@pytest.mark.parametrize("preset", list(BY_NAME))
@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_an_odd_signature_header_is_a_wrong_signature_and_no_error(
    preset: str, value: bytes
) -> None:
    name = of(preset).header.encode()
    headers = [(k, value if k == name else v) for k, v in wire(BY_NAME[preset][2])]
    assert judged(preset, headers=headers)


@pytest.mark.parametrize("preset", list(BY_NAME))
def test_a_header_that_is_missing_or_there_twice_is_wrong_even_beside_a_right_one(
    preset: str,
) -> None:
    headers = wire(BY_NAME[preset][2])
    for place, (name, value) in enumerate(headers):
        without = headers[:place] + headers[place + 1 :]
        assert judged(preset, headers=without), name
        assert judged(preset, headers=[*headers, (name, value)]), name
        assert judged(preset, headers=[(name, b"wrong"), *headers]), name
        capital = [(name.upper(), value), *without]
        assert judged(preset, headers=capital) is None


def test_one_right_signature_among_ten_is_enough_and_the_eleventh_is_not_read() -> None:
    _, _, headers, _, _ = BY_NAME["standard"]
    right = headers["webhook-signature"]
    for before, fine in ((0, True), (9, True), (10, False)):
        value = " ".join(["v1,AAAA"] * before + [right])
        verdict = judged("standard", headers=wire({**headers, "webhook-signature": value}))
        assert (verdict is None) is fine, before
    other = "v1a," + right.removeprefix("v1,")  # another algorithm's name
    assert judged("standard", headers=wire({**headers, "webhook-signature": other}))


@pytest.mark.parametrize("stamp", ["", "x", "-1", "1e9", "1" * 13, "\u0661\u0662", "16 30"])
def test_a_timestamp_that_is_no_number_is_refused(stamp: str) -> None:
    _, secret, headers, body, now = BY_NAME["standard"]
    how = of("standard")
    key = signatures.key_of(how, secret)
    signed = f"{headers['webhook-id']}.{stamp}.".encode() + body
    digest = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    given = {**headers, "webhook-timestamp": stamp, "webhook-signature": f"v1,{digest}"}
    assert signatures.verify(how, [secret], wire(given), body, now)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_not base64", "whsec_é"])
def test_a_secret_that_is_no_key_of_the_scheme_is_told_apart_from_a_wrong_signature(
    secret: str,
) -> None:
    with pytest.raises(SecretUnusable) as caught:
        judged("standard", secrets=[secret])
    assert not secret or secret not in str(caught.value)


@pytest.mark.parametrize("algorithm", signatures.ALGORITHMS)
@pytest.mark.parametrize("encoding", signatures.ENCODINGS)
def test_a_generic_signature_is_what_the_trigger_says(algorithm: str, encoding: str) -> None:
    how = of("generic", header="X-Sig", algorithm=algorithm, encoding=encoding, prefix="mac=")
    digest = hmac.new(b"key", b"body", getattr(hashlib, algorithm)).digest()
    text = digest.hex() if encoding == "hex" else base64.b64encode(digest).decode()
    given = [(b"x-sig", b"mac=" + text.encode())]
    assert signatures.verify(how, ["key"], given, b"body", 0) is None
    assert signatures.verify(how, ["key"], [(b"x-sig", text.encode())], b"body", 0)
    shouted = [(b"x-sig", b"mac=" + text.upper().encode())]
    fine = signatures.verify(how, ["key"], shouted, b"body", 0) is None
    assert fine is (encoding == "hex")  # hex may be written in capitals


def test_a_generic_template_is_signed_as_it_stands() -> None:
    more = {"timestampHeader": "X-Time", "template": "{id}|{timestamp}|{body}", "keyHeader": "X-No"}
    how = of("generic", **more)
    headers = signatures.sign(how, "key", b"body", delivery_id="7", timestamp=1000)
    assert headers["x-signature"] == hmac.new(b"key", b"7|1000|body", "sha256").hexdigest()
    assert signatures.verify(how, ["key"], wire(headers), b"body", 1200) is None
    assert signatures.verify(how, ["key"], wire({**headers, "x-no": "8"}), b"body", 1200)
    assert signatures.verify(how, ["key"], wire({**headers, "x-time": "1001"}), b"body", 1200)
    plain = of("generic", timestampHeader="X-Time")
    assert plain.template == "{timestamp}.{body}"


@pytest.mark.parametrize("preset", signatures.PRESETS)
def test_what_is_signed_here_is_verified_here(preset: str) -> None:
    secret = "whsec_" + base64.b64encode(b"k" * 24).decode()
    headers = signatures.sign(of(preset), secret, b"{}", delivery_id="a", timestamp=50)
    assert signatures.verify(of(preset), [secret], wire(headers), b"{}", 60) is None


# ------------------------------------------------------------------------------------- ids


@pytest.mark.parametrize(
    ("preset", "headers", "body", "name"),
    [
        ("standard", {"webhook-id": "m1"}, {}, "m1"),
        ("standard", {"idempotency-key": "k"}, {}, "k"),
        ("github", {"x-github-delivery": "g-1"}, {}, "g-1"),
        ("stripe", {}, {"id": "evt_1"}, "evt_1"),
        ("stripe", {}, {"id": 3}, None),
        ("stripe", {}, [1], None),
        ("slack", {}, {"event_id": "Ev1"}, "Ev1"),
        ("gitlab", {"x-gitlab-event-uuid": "u", "idempotency-key": "k"}, {}, "k"),
        ("gitlab", {"x-gitlab-event-uuid": "u"}, {}, "u"),
        ("generic", {"idempotency-key": " k "}, {}, "k"),
        ("generic", {"x-request-id": "r"}, {}, None),
        ("generic", {"idempotency-key": ""}, {}, None),
        ("generic", {}, {"id": "x"}, None),
    ],
)
def test_a_delivery_is_named_as_its_sender_names_it(
    preset: str, headers: dict[str, str], body: Any, name: str | None
) -> None:
    assert signatures.delivery_id(of(preset), wire(headers), body) == name


def test_another_header_can_name_the_delivery() -> None:
    how = of("stripe", keyHeader="X-Request-Id")
    assert signatures.delivery_id(how, [(b"x-request-id", b"r")], {"id": "evt"}) == "r"
    assert signatures.delivery_id(how, [], {"id": "evt"}) is None


@pytest.mark.parametrize(
    "values", [[b"a", b"b"], [b"x" * 513], ["é".encode()], [b"a\tb"], [b"a\x00b"]], ids=range(5)
)
def test_a_name_that_is_none_is_refused(values: list[bytes]) -> None:
    with pytest.raises(IdRefused):
        signatures.delivery_id(of("generic"), [(b"idempotency-key", v) for v in values], {})
    with pytest.raises(IdRefused):
        signatures.delivery_id(of("slack"), [], {"event_id": "x" * 513})


def test_a_name_that_is_there_twice_and_the_same_is_one_name() -> None:
    given = [(b"idempotency-key", b"a"), (b"Idempotency-Key", b"a")]
    assert signatures.delivery_id(of("generic"), given, {}) == "a"


def test_only_slack_gets_its_challenge_back() -> None:
    asks = {"type": "url_verification", "challenge": "word"}
    assert signatures.challenge(of("slack"), asks) == "word"
    assert signatures.challenge(of("github"), asks) is None
    for other in ({"type": "event"}, {**asks, "challenge": 3}, {**asks, "challenge": "x" * 5000}):
        assert signatures.challenge(of("slack"), other) is None


@pytest.mark.parametrize(
    "template", ["", "{timestamp}", "{body}{body}", "{body", "{body}{x}", 3, "x" * 201 + "{body}"]
)
def test_a_template_that_signs_nothing_is_refused(template: Any) -> None:
    assert signatures.template_problem(template)
    assert signatures.template_problem("v0:{timestamp}:{body}") is None
