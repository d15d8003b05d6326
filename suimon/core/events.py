"""What may be told as an event: its type, its key, its size.

Asked where it is told, before anything is sent, by `ctx.emit`, the client and the command line
alike; the SQL function asks the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from suimon.core import jsonsafe
from suimon.errors import InputRefused, PayloadTooLarge

TYPE_CHARACTERS: Final = 200
KEY_BYTES: Final = 1024
#: A little less than an input may have: the run's input holds the payload with its type and time.
PAYLOAD_BYTES: Final = jsonsafe.MAX_BYTES - 1024
#: What one step may tell: so many events, and so many bytes of payloads together.
STEP_EVENTS: Final = 1_000
STEP_BYTES: Final = 1024 * 1024

_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Event:
    """One event that a step tells when it ends well. ``payload`` is checked JSON text."""

    type: str
    payload: str
    key: str


def check_type(kind: Any) -> str:
    """The type of an event, or InputRefused."""
    if isinstance(kind, str) and _TYPE.fullmatch(kind):
        return kind
    shown = kind[:TYPE_CHARACTERS] if isinstance(kind, str) else repr(kind)[:TYPE_CHARACTERS]
    msg = f'the event type cannot be used: "{shown}"'
    hint = "Letters, digits, and . _ : / - (at most 200), like order.paid"
    raise InputRefused(msg, path="type", hint=hint)


def check_key(key: Any) -> str:
    """The key of an event, or InputRefused."""
    size = -1
    if isinstance(key, str) and "\0" not in key:
        try:
            size = len(key.encode())
        except UnicodeEncodeError:
            size = -1
    if 0 < size <= KEY_BYTES:
        return str(key)
    msg = "the key of the event cannot be used"
    hint = f"1 to {KEY_BYTES} bytes of UTF-8 without NUL; for more, take a hash."
    raise InputRefused(msg, path="key", hint=hint)


def encode(payload: Any) -> bytes:
    """The payload as canonical JSON, or InvalidJson / PayloadTooLarge. None is an empty object."""
    given = {} if payload is None else payload
    return jsonsafe.dumps(given, what="payload", limit=PAYLOAD_BYTES)


class Told:
    """What one try has told so far; nothing of it is sent before the try has ended well.

    Without a key of its own an event gets one from the run, the vertex and its number among those
    of the try: a try that is repeated because its end was not recorded does not tell it twice.
    """

    __slots__ = ("_bytes", "_prefix", "events")

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._bytes = 0
        self.events: list[tuple[str, str, str]] = []

    def add(self, kind: Any, payload: Any, key: Any) -> None:
        """Check one event and keep it. Raises InputRefused, InvalidJson or PayloadTooLarge."""
        if len(self.events) >= STEP_EVENTS:
            msg = f"a step tells of at most {STEP_EVENTS:,} events"
            raise InputRefused(msg, path="emit", hint="Tell of many things in one event.")
        checked = check_type(kind)
        text = encode(payload)
        total = self._bytes + len(text)
        if total > STEP_BYTES:
            msg = f"the events of a step are {total:,} bytes of JSON; the limit is {STEP_BYTES:,}"
            hint = "put the data into a file or a table and tell its name"
            raise PayloadTooLarge(msg, size=total, limit=STEP_BYTES, hint=hint)
        named = f"{self._prefix}:{len(self.events)}" if key is None else check_key(key)
        self._bytes = total
        self.events.append((checked, text.decode(), named))
