"""Process a delivery once more, by an operator's word.

What became a run, was folded or missed has its input still, and is told again by
``outbox/dead_letter.py``. A call that was refused never had one: it is put together here from what
its row kept (headers, the first 64 KB of the body) and taken as if it had just come, without asking
for its signature. Its own key holds: a sender that has repeated it meanwhile makes no second run.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

from suimon.core import signatures
from suimon.core.signatures import IdRefused
from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.errors import Conflict
from suimon.outbox import dead_letter
from suimon.run import audit
from suimon.triggers import fire, webhook
from suimon.triggers.fire import Arrival, Trigger
from suimon.triggers.webhook import Call, Refused

SQL = statements(__package__, "webhook.sql")


def again(conn: Connection, delivery: str, *, actor: str, why: str = "") -> str:
    """The id of the new delivery, which becomes a run in its turn. Raises Conflict."""

    def act() -> str | None:
        with transaction(conn):
            row = conn.execute(SQL.refused, {"id": delivery}).fetchone()
            if row is None:
                return None
            trigger_id, kept = row
            return _again(conn, delivery, trigger_id, kept, actor=actor, why=why)

    return retrying(act) or dead_letter.again(conn, delivery, actor=actor, why=why)


def _again(
    conn: Connection, delivery: str, trigger_id: int, kept: dict[str, Any], *, actor: str, why: str
) -> str:
    to = fire.trigger(conn, trigger_id)
    if to is None:
        msg = f"the webhook of delivery {delivery} is not known any more"
        raise Conflict(msg)
    arrival = _put_together(to, delivery, kept)
    new = fire.arrive(conn, to, [arrival])
    found = conn.execute(SQL.by_key, {"trigger": to.id, "key": arrival.key}).fetchone()
    if not new or found is None:
        where = f"delivery {found[0]}" if found is not None else "a run that is there already"
        msg = f"its sender has sent it again meanwhile: {where}"
        raise Conflict(msg)
    audit.note(conn, "again", [delivery], actor=actor, why=why, detail={"new": found[0]})
    return str(found[0])


def _put_together(to: Trigger, delivery: str, kept: dict[str, Any]) -> Arrival:
    """The call as its row has it."""
    body = kept.get("body")
    if body is None or not body["complete"]:
        msg = f"the body of delivery {delivery} was not read, or not kept whole"
        raise Conflict(msg, hint="Ask its sender to send it again.")
    raw = base64.b64decode(body["base64"]) if "base64" in body else body["text"].encode()
    pairs = kept["headers"].items()
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    call = Call(headers, raw, kept["remote"], datetime.fromisoformat(kept["received_at"]))
    how = signatures.scheme(to.spec)
    try:
        value = webhook.decoded(to, call)
        named = signatures.delivery_id(how, headers, value)
        arrival = webhook.arrival_of(to, how, call, value, named)
    except (Refused, IdRefused) as error:
        msg = f"it would be refused again: {error}"
        raise Conflict(msg) from None
    detail = {**(arrival.detail or {}), "again_of": delivery}
    return Arrival(arrival.input, arrival.source, arrival.key or f"again:{delivery}", detail)
