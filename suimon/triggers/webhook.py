"""A call from outside: verified, decoded, named, stored together with its run, answered.

The order is that of the questions. Whose address is it (``find``)? Is it signed? What does it say?
Which delivery is it? Then ``fire.start_now`` writes delivery and run in one transaction, and only
after its COMMIT is there an answer that says so. If the answer to the COMMIT is lost, the sender
gets an error, repeats, and the delivery's key makes both calls one run.

What is refused is raised as ``Refused``: it has the status, the words for the sender (the same for
every fault of a signature), and the true reason for the log (``call_log.py``).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from suimon.core import bodies, clock, jsonsafe, signatures
from suimon.core.bodies import BodyRefused
from suimon.core.signatures import Headers, IdRefused, Scheme, SecretUnusable
from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.errors import (
    DatabaseUnavailable,
    DataRefused,
    InputRefused,
    PayloadTooLarge,
    QueueFull,
    QuotaExceeded,
    SuimonError,
)
from suimon.graph_triggers import MAX_BODY
from suimon.run import pressure, submit
from suimon.store import secret
from suimon.store.secret_key import KeyRing
from suimon.triggers import fire
from suimon.triggers.fire import Answer, Arrival, Trigger

SQL = statements(__package__, "webhook.sql")

#: Of the headers that a run is given: so many, with so many bytes together.
MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 32 * 1024
#: Of a refused body, in its row.
KEPT_BODY_BYTES: Final = 64 * 1024
RETRY_AFTER_S: Final = 5
TOO_FULL: Final = "there is no room for a body of this size now"
UNSIGNED: Final = "the signature is missing or wrong"

_PRIVATE_WORDS: Final = ("authorization", "cookie", "secret", "signature", "token", "api-key")


class Refused(Exception):  # noqa: N818  (it says what happened)
    """A call that makes no run. ``why`` is for the log, ``told`` for the sender."""

    def __init__(
        self,
        status: int,
        code: str,
        why: str,
        *,
        told: str | None = None,
        retry_after_s: int | None = None,
        source: str = "",
    ) -> None:
        super().__init__(why)
        self.status = status
        self.code = code
        self.why = why
        self.told = told or why
        self.retry_after_s = retry_after_s
        self.source = source


@dataclass(frozen=True, slots=True)
class Call:
    """What came over the wire. Header names are in lower case; the body is untouched."""

    headers: Headers
    body: bytes
    remote: str
    received_at: datetime

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the sender is told. ``answer`` None: there was nothing to start (a challenge)."""

    status: int
    body: dict[str, Any] | str
    answer: Answer | None = None


def find(conn: Connection, slug: str) -> Trigger | None:
    """Who listens at this address."""
    row = conn.execute(SQL.find, {"slug": slug}).fetchone()
    return None if row is None else Trigger(*row)


def max_body(trigger: Trigger) -> int:
    """Bytes of a body, as sent and after inflating it."""
    return int(trigger.spec.get("maxBody", MAX_BODY))


def receive(
    conn: Connection,
    keyring: KeyRing,
    trigger: Trigger,
    call: Call,
    *,
    needs_secret: bool = False,
) -> Reply:
    """Everything from the signature to the COMMIT; raises Refused, or what the database raises."""
    how = signatures.scheme(trigger.spec)
    _check_signature(conn, keyring, trigger, how, call, needs_secret=needs_secret)
    value = decoded(trigger, call)
    word = signatures.challenge(how, value)
    if word is not None:
        return Reply(200, word)
    try:
        named = signatures.delivery_id(how, call.headers, value)
    except IdRefused as error:
        raise Refused(400, "delivery_id", str(error)) from None
    arrival = arrival_of(trigger, how, call, value, named)
    if pressure.refuses(conn, len(arrival.input)):
        full = pressure.refusal(conn, len(arrival.input))
        raise Refused(
            503, "storage", full.message, told=TOO_FULL, retry_after_s=full.retry_after_s,
            source=arrival.source,
        )  # fmt: skip
    try:
        answer = fire.start_now(conn, trigger, arrival)
    except QuotaExceeded as error:
        wait_s = error.retry_after_s
        raise Refused(
            429, "quota", error.message, retry_after_s=wait_s, source=arrival.source
        ) from None
    except QueueFull as error:
        wait_s = fire.retry_after(conn, trigger.pipeline)
        raise Refused(
            429, "full", error.message, retry_after_s=wait_s, source=arrival.source
        ) from None
    except PayloadTooLarge as error:
        raise Refused(413, "too_large", error.message, source=arrival.source) from None
    except (InputRefused, DataRefused) as error:
        raise Refused(400, "input", error.message, source=arrival.source) from None
    except DatabaseUnavailable:
        raise
    except SuimonError as error:
        # the pipeline went away, or two calls met at a moment that the next one will not meet
        raise Refused(
            503, "moment", error.message, retry_after_s=1, source=arrival.source
        ) from None
    return _reply(conn, trigger, arrival, answer, named)


# ------------------------------------------------------------------------------------- questions


def _check_signature(
    conn: Connection,
    keyring: KeyRing,
    trigger: Trigger,
    how: Scheme,
    call: Call,
    *,
    needs_secret: bool,
) -> None:
    given = trigger.spec.get("secret", [])
    references = [given] if isinstance(given, str) else list(given)
    if not references:
        if needs_secret:
            why = "this webhook has no secret, and the server can be reached from outside"
            raise Refused(403, "no_secret", why)
        return
    try:
        found = secret.resolve_all(conn, keyring, references)
        secrets = [found[one] for one in references]
        fault = signatures.verify(
            how, secrets, call.headers, call.body, call.received_at.timestamp()
        )
    except (SuimonError, SecretUnusable) as error:
        # nobody's fault but ours: the sender shall come again when somebody has mended it
        told = "the signature cannot be checked now"
        raise Refused(503, "secret", str(error), told=told, retry_after_s=RETRY_AFTER_S) from None
    if fault is not None:
        raise Refused(401, "signature", fault, told=UNSIGNED)


def decoded(trigger: Trigger, call: Call) -> Any:
    try:
        return bodies.decode(
            call.body,
            call.all(b"content-type"),
            call.all(b"content-encoding"),
            limit=max_body(trigger),
            expects=trigger.spec.get("expects", "any"),
        )
    except BodyRefused as error:
        raise Refused(error.status, error.code, error.why) from None


def arrival_of(trigger: Trigger, how: Scheme, call: Call, value: Any, named: str | None) -> Arrival:
    """A sender that names nothing gets a new name each time."""
    delivery = named or submit.uuid7()
    given = {
        "headers": shown_headers(call.headers, how),
        "body": value,
        "delivery_id": delivery,
        "received_at": _iso(call.received_at),
    }
    try:
        text = jsonsafe.dumps(given, what="delivery")
    except PayloadTooLarge as error:
        raise Refused(413, "too_large", error.message, source=delivery) from None
    except DataRefused as error:
        raise Refused(400, "body", error.message, source=delivery) from None
    digest = hashlib.sha256(call.body).hexdigest()
    detail = {"remote": call.remote, "method": "POST", "size": len(call.body)}
    detail |= {"body_sha256": digest, "id_from_sender": named is not None}
    key = None if named is None else f"{trigger.name}:{named}"
    return Arrival(text, delivery, key, detail)


def _reply(
    conn: Connection, trigger: Trigger, arrival: Arrival, answer: Answer, named: str | None
) -> Reply:
    told: dict[str, Any] = {
        "run_id": answer.run_id,
        "delivery_id": arrival.source,
        "delivery": answer.delivery_id,
        "duplicate": answer.duplicate,
    }
    if named is None:
        told["delivery_id_from_sender"] = False
    if answer.run_id is None:
        told["reason"] = answer.reason
    if answer.duplicate:
        where = {"trigger": trigger.id, "key": arrival.key}
        row = conn.execute(SQL.first_body, where).fetchone()
        if row is not None and row[0] is not None:  # headers and times differ between repetitions
            assert arrival.detail is not None
            told["same_input"] = row[0] == arrival.detail["body_sha256"]
    return Reply(200 if answer.duplicate else 202, told, answer)


# ------------------------------------------------------------------------------------- the log


def shown_headers(headers: Headers, how: Scheme | None = None) -> dict[str, str]:
    """What a run and the log may see: nothing that proves who called, and not without bound."""
    private = signatures.private_headers(how) if how is not None else frozenset()
    shown: dict[str, str] = {}
    room = MAX_HEADER_BYTES
    for key, raw in headers:
        name, value = key.decode("latin-1"), raw.decode("latin-1")
        if name in private or any(word in name for word in _PRIVATE_WORDS):
            continue
        room -= len(key) + len(raw)
        if room < 0 or (len(shown) >= MAX_HEADERS and name not in shown):
            continue
        shown[name] = f"{shown[name]}, {value}" if name in shown else value
    return shown


def told_of(call: Call, trigger: Trigger | None, status: int, *, read: bool) -> dict[str, Any]:
    """What the row of a refused call keeps of it; a body that was not read is not there."""
    how = signatures.scheme(trigger.spec) if trigger is not None else None
    detail: dict[str, Any] = {
        "remote": call.remote,
        "method": "POST",
        "status": status,
        "received_at": _iso(call.received_at),
        "headers": shown_headers(call.headers, how),
    }
    if how is not None:
        try:
            detail["named"] = signatures.delivery_id(how, call.headers, None)
        except IdRefused:
            detail["named"] = None
    if read:
        detail["body"] = _kept(call.body)
    return detail


def _kept(body: bytes) -> dict[str, Any]:
    cut = body[:KEPT_BODY_BYTES]
    made: dict[str, Any] = {"size": len(body), "complete": len(cut) == len(body)}
    try:
        text = cut.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return {**made, "base64": base64.b64encode(cut).decode()}
    return {**made, "text": text}


def _iso(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def call_of(headers: Sequence[tuple[bytes, bytes]], body: bytes, remote: str) -> Call:
    """A call that comes in now."""
    return Call(headers, body, remote, clock.now())
