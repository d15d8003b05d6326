"""Fixtures of tests on the engine's functions; the folders' `conftest.py` take them from here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from suimon.db.connect import Connection
from support.lab import Lab
from support.sessions import Sessions


@pytest.fixture
def lab(conn: Connection) -> Lab:
    """The engine's acts on the test's own connection."""
    return Lab(conn)


@pytest.fixture
def sessions(db_url: str) -> Iterator[Sessions]:
    """Further connections to the same database: `a, b = sessions("a", "b")`."""
    made = Sessions(db_url)
    yield made
    made.close()


__all__ = ["lab", "sessions"]
