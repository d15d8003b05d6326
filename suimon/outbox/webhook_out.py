"""One notice to one webhook, signed as the Standard Webhooks say.

The receiver knows a notice by its `webhook-id`, which is the same in every try: at least once means
that it may come twice. Only a 2xx answer is taken as received; of an answer nothing but its status
and `Retry-After` is looked at, and nothing of it is kept.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import random
from datetime import datetime
from typing import Final

import httpx2
import orjson

from suimon.core import notices
from suimon.core.notices import Notice, Verdict
from suimon.errors import AddressRefused
from suimon.outbox.reach import Reach

_PREFIX: Final = "whsec_"
USER_AGENT: Final = "suimon-notify/1"
GONE: Final = 410


def send(reach: Reach, notice: Notice, secret: str, now: datetime, rng: random.Random) -> Verdict:
    """POST it; what follows from the answer."""
    body = orjson.dumps(
        {
            "type": notice.kind,
            "timestamp": notice.created_at.isoformat(timespec="milliseconds"),
            "subject": notice.subject,
            "data": notice.payload,
        }
    )
    headers = {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        **signed(secret, notice.id, int(now.timestamp()), body),
    }
    try:
        answer = reach.post(notice.target, body, headers)
    except AddressRefused as error:
        return notices.dead(error.message)
    except httpx2.HTTPError as error:
        return notices.later(notice.tries, f"{type(error).__name__}: {error}", rng)
    why = f"the receiver answered {answer.status}"
    if 200 <= answer.status < 300:
        return notices.SENT
    if answer.status == GONE:
        return notices.dead(why, disable=True)
    asked_s = notices.retry_after(answer.headers.get("retry-after"), now)
    return notices.later(notice.tries, why, rng, not_before_s=asked_s)


def signed(secret: str, notice_id: str, at: int, body: bytes) -> dict[str, str]:
    """The three headers; the signature is over id, time and body."""
    content = b"%b.%d.%b" % (notice_id.encode(), at, body)
    mac = hmac.new(_key(secret), content, hashlib.sha256).digest()
    return {
        "webhook-id": notice_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(mac).decode()}",
    }


def _key(secret: str) -> bytes:
    """`whsec_` and base64, as the Standard Webhooks write it; any other text is the key itself."""
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            pass
    return secret.encode()
