"""Keys and stored secrets for tests with real workers."""

from __future__ import annotations

import base64

from suimon.store import secret
from suimon.store.secret_key import KeyRing
from support.engine import Engine

VALUE = 'p@ss/w%rd+\n"zwei'
KEY, NEW, OTHER = (base64.b64encode(bytes([n]) * 32).decode() for n in (7, 8, 9))


def ring(current: str = KEY, old: str | None = None) -> KeyRing:
    given = {"SUIMON_SECRET_KEY": current}
    return KeyRing.of(given | ({"SUIMON_SECRET_KEY_OLD": old} if old else {}))


def store(engine: Engine, name: str = "crm", value: str = VALUE) -> None:
    """Set a secret under `KEY`."""
    secret.put(engine.conn, ring(), name, value, by="test")
