"""Is this call from whom it says? The signature schemes of webhooks, pure.

A preset is a table entry: which header holds the signature, over what it is made, how the secret
and the digest are written, and which header or field names the delivery. `generic` is the same
table entry, filled in by the trigger's own words. So there is one verification for all of them.

    standard   webhook-signature: v1,BASE64 ...   over ID.TIMESTAMP.BODY    id: webhook-id
    github     X-Hub-Signature-256: sha256=HEX    over BODY                 id: X-GitHub-Delivery
    stripe     Stripe-Signature: t=..,v1=HEX      over TIMESTAMP.BODY       id: body.id
    slack      X-Slack-Signature: v0=HEX          over v0:TIMESTAMP:BODY    id: body.event_id
    gitlab     X-Gitlab-Token: the secret itself                            id: Idempotency-Key
    generic    whatever the trigger says          over BODY or a template   id: Idempotency-Key

Everything is compared as bytes, in constant time, so a header with an accent or a Japanese letter
is a wrong signature and nothing else. Each fault takes the way of a right signature: the digest is
made also when the header is missing, too long or there twice. Bounds: 4,096 bytes of a signature
header, ten signatures in it, two secrets.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from suimon.core.durations import seconds

Headers = Sequence[tuple[bytes, bytes]]

PRESETS: Final = ("standard", "github", "stripe", "slack", "gitlab", "generic")
DEFAULT_PRESET: Final = "standard"
ALGORITHMS: Final = ("sha256", "sha512", "sha1")
ENCODINGS: Final = ("hex", "base64")
#: How far a signed timestamp may lie from now, both ways.
TOLERANCE_S: Final = 300.0
MAX_HEADER_BYTES: Final = 4_096
MAX_SIGNATURES: Final = 10
MAX_SECRETS: Final = 2
MAX_ID_BYTES: Final = 512

_PARTS: Final = re.compile(r"\{(body|id|timestamp)\}")
_TIMESTAMP: Final = re.compile(rb"[0-9]{1,12}")
_HEADER_ID: Final = re.compile(rb"[\x20-\x7e]+")


class SecretUnusable(ValueError):  # noqa: N818  (it says what happened)
    """The secret is there, but no key of this scheme; the text never shows it."""


class IdRefused(ValueError):  # noqa: N818
    """The delivery id cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How one trigger's calls are signed and named. Header names are in lower case."""

    preset: str
    header: str
    template: str = "{body}"
    algorithm: str = "sha256"
    encoding: str = "hex"
    prefix: str = ""
    style: str = "single"  # single; list: `v1,.. v1,..`; fields: `t=..,v1=..`; token: no digest
    timestamp_header: str | None = None
    tolerance_s: float = TOLERANCE_S
    id_headers: tuple[str, ...] = ("idempotency-key",)
    id_field: str | None = None  # of a JSON body
    key_is_base64: bool = False

    @property
    def timed(self) -> bool:
        return "{timestamp}" in self.template


_TABLE: Final[Mapping[str, Scheme]] = {
    "standard": Scheme(
        "standard", "webhook-signature", "{id}.{timestamp}.{body}", encoding="base64",
        prefix="v1,", style="list", timestamp_header="webhook-timestamp",
        id_headers=("webhook-id", "idempotency-key"), key_is_base64=True,
    ),
    "github": Scheme(
        "github", "x-hub-signature-256", prefix="sha256=", id_headers=("x-github-delivery",)
    ),
    "stripe": Scheme(
        "stripe", "stripe-signature", "{timestamp}.{body}", prefix="v1=", style="fields",
        id_headers=(), id_field="id",
    ),
    "slack": Scheme(
        "slack", "x-slack-signature", "v0:{timestamp}:{body}", prefix="v0=",
        timestamp_header="x-slack-request-timestamp", id_headers=(), id_field="event_id",
    ),
    # X-Gitlab-Event-UUID is shared by all calls that one webhook set off in turn, so it is second.
    "gitlab": Scheme(
        "gitlab", "x-gitlab-token", style="token",
        id_headers=("idempotency-key", "x-gitlab-event-uuid"),
    ),
    "generic": Scheme("generic", "x-signature"),
}  # fmt: skip


def scheme(spec: Mapping[str, Any]) -> Scheme:
    """The scheme of a WEBHOOK trigger, from its checked fields."""
    base = _TABLE[spec.get("preset", DEFAULT_PRESET)]
    timestamp_header = spec.get("timestampHeader", base.timestamp_header)
    template = base.template
    if base.preset == "generic" and timestamp_header is not None:
        template = "{timestamp}.{body}"
    key_header = spec.get("keyHeader")
    return Scheme(
        base.preset,
        str(spec.get("header", base.header)).lower(),
        spec.get("template", template),
        spec.get("algorithm", base.algorithm),
        spec.get("encoding", base.encoding),
        spec.get("prefix", base.prefix),
        base.style,
        None if timestamp_header is None else timestamp_header.lower(),
        seconds(spec["tolerance"]) if "tolerance" in spec else base.tolerance_s,
        base.id_headers if key_header is None else (key_header.lower(),),
        base.id_field if key_header is None else None,
        base.key_is_base64,
    )


def private_headers(how: Scheme) -> frozenset[str]:
    """Those that prove who calls: they are neither stored nor given to the run."""
    return frozenset({how.header, "x-hub-signature", "x-slack-signature", "x-gitlab-token"})


# ------------------------------------------------------------------------------------- verify


def verify(
    how: Scheme, secrets: Sequence[str], headers: Headers, body: bytes, now: float
) -> str | None:
    """None: it is signed with one of the secrets. Otherwise the fault, for the log alone.

    The caller is told the same words for each of them. `now` is in seconds since 1970.
    """
    keys = [key_of(how, secret) for secret in secrets[:MAX_SECRETS]]
    given, fault = _one(headers, how.header)
    if how.style == "token":
        right = _any_equal([_padded(given)], [_padded(key) for key in keys])
        return fault or (None if right else "the token is another one")
    stamp, signatures = _signatures(how, given)
    if how.timestamp_header is not None:
        stamp, lacks = _one(headers, how.timestamp_header)
        fault = fault or lacks
    name = b""
    if "{id}" in how.template:
        name, lacks = _one(headers, how.id_headers[0] if how.id_headers else "")
        fault = fault or lacks
    expected = [_written(how, _digest(how, key, body, name, stamp)) for key in keys]
    right = _any_equal(signatures or [b""], expected)
    if fault is None and how.timed:
        fault = _stale(stamp, now, how.tolerance_s)
    return fault or (None if right else "the signature is another one")


def key_of(how: Scheme, secret: str) -> bytes:
    """The key that a secret stands for; raises SecretUnusable."""
    key = secret.encode()
    if how.key_is_base64:
        try:
            key = base64.b64decode(secret.removeprefix("whsec_").encode(), validate=True)
        except (binascii.Error, ValueError):
            msg = 'the secret is not "whsec_" with base64 behind it, as Standard Webhooks has it'
            raise SecretUnusable(msg) from None
    if not key:
        msg = "the secret is empty"
        raise SecretUnusable(msg)
    return key


def sign(
    how: Scheme, secret: str, body: bytes, *, delivery_id: str = "", timestamp: int = 0
) -> dict[str, str]:
    """The headers of a call that `verify` takes: for senders of ours, for tests and documents."""
    key, stamp = key_of(how, secret), b"%d" % timestamp
    made: dict[str, str] = {}
    if how.style == "token":
        value = key
    else:
        value = how.prefix.encode()
        value += _written(how, _digest(how, key, body, delivery_id.encode(), stamp))
    if how.style == "fields":
        value = b"t=" + stamp + b"," + value
    made[how.header] = value.decode()
    if how.timestamp_header is not None:
        made[how.timestamp_header] = stamp.decode()
    if delivery_id and how.id_headers:
        made[how.id_headers[0]] = delivery_id
    return made


def _one(headers: Headers, name: str) -> tuple[bytes, str | None]:
    """The value of a header that has to be there once; a fault comes with an empty value."""
    wanted = name.encode()
    found = [value for key, value in headers if key.lower() == wanted]
    if len(found) != 1:
        how_often = "missing" if not found else f"there {len(found)} times"
        return b"", f"the header {name} is {how_often}"
    if not found[0]:
        return b"", f"the header {name} is empty"
    if len(found[0]) > MAX_HEADER_BYTES:
        return b"", f"the header {name} has {len(found[0]):,} bytes"
    return found[0], None


def _signatures(how: Scheme, given: bytes) -> tuple[bytes, list[bytes]]:
    """(timestamp or nothing, the signatures without what is written around them)."""
    prefix = how.prefix.encode()
    stamp = b""
    if how.style == "single":
        parts = [given]
    elif how.style == "list":
        parts = given.split(b" ")
    else:
        parts = [part.strip() for part in given.split(b",")]
        stamp = next((part[2:] for part in parts if part.startswith(b"t=")), b"")
    found = [part[len(prefix) :] for part in parts if part.startswith(prefix)][:MAX_SIGNATURES]
    return stamp, [one.lower() for one in found] if how.encoding == "hex" else found


def _digest(how: Scheme, key: bytes, body: bytes, name: bytes, stamp: bytes) -> bytes:
    """Fed part by part: a body of 16 MB is not copied to be signed."""
    made = hmac.new(key, digestmod=how.algorithm)
    known = {"body": body, "id": name, "timestamp": stamp}
    for place, part in enumerate(_PARTS.split(how.template)):
        made.update(known[part] if place % 2 else part.encode())
    return made.digest()


def _written(how: Scheme, digest: bytes) -> bytes:
    return digest.hex().encode() if how.encoding == "hex" else base64.b64encode(digest)


def _any_equal(given: Sequence[bytes], expected: Sequence[bytes]) -> bool:
    """All pairs are compared, whichever fits."""
    right = False
    for one in given:
        for other in expected:
            right |= hmac.compare_digest(one, other)
    return right


def _padded(token: bytes) -> bytes:
    """A digest of a token: compared at one length, whatever its own is."""
    return hmac.digest(b"suimon", token, "sha256")


def _stale(stamp: bytes, now: float, tolerance_s: float) -> str | None:
    if not _TIMESTAMP.fullmatch(stamp):
        return "the timestamp is no number of seconds"
    away = now - int(stamp)
    if abs(away) <= tolerance_s:
        return None
    return f"the timestamp lies {abs(away):,.0f} s in the {'past' if away > 0 else 'future'}"


# ------------------------------------------------------------------------------------- which one


def delivery_id(how: Scheme, headers: Headers, body: Any) -> str | None:
    """What the sender calls this delivery, the same at each repetition; None: it has no name."""
    for name in how.id_headers:
        wanted = name.encode()
        found = {value.strip() for key, value in headers if key.lower() == wanted} - {b""}
        if len(found) > 1:
            msg = f"the header {name} names {len(found)} deliveries"
            raise IdRefused(msg)
        for value in found:
            if len(value) > MAX_ID_BYTES or not _HEADER_ID.fullmatch(value):
                msg = f"the header {name} must be 1 to {MAX_ID_BYTES} printable ASCII characters"
                raise IdRefused(msg)
            return value.decode()
    if how.id_field is not None and isinstance(body, dict):
        named = body.get(how.id_field)
        if isinstance(named, str) and named:
            if len(named.encode()) > MAX_ID_BYTES:
                msg = f'"{how.id_field}" in the body is longer than {MAX_ID_BYTES} bytes'
                raise IdRefused(msg)
            return named
    return None


def challenge(how: Scheme, body: Any) -> str | None:
    """What a sender wants repeated before it sends anything (Slack's url_verification)."""
    if how.preset != "slack" or not isinstance(body, dict):
        return None
    word = body.get("challenge")
    asks = body.get("type") == "url_verification"
    return word if asks and isinstance(word, str) and len(word) <= MAX_HEADER_BYTES else None


def template_problem(template: Any) -> str | None:
    """What is wrong with a generic trigger's template, as the end of a sentence."""
    if not isinstance(template, str) or len(template) > 200:
        return "must be text of at most 200 characters"
    parts = _PARTS.split(template)
    names = parts[1::2]
    if names.count("body") != 1 or len(names) != len(set(names)):
        return 'must have {body} once, and may have {timestamp} and {id}, like "{timestamp}.{body}"'
    if any("{" in part or "}" in part for part in parts[::2]):
        return "may have no other braces than {body}, {timestamp} and {id}"
    return None
