"""Fixtures for all tests: a server for the session, a fresh migrated database for each test.

def test_something(conn): ...          a connection (autocommit) to a database of its own
def test_something(db_url): ...        the same database by URL, for processes and threads
def test_something(empty_db_url): ...  a database without Suimon's schema
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
from support.database import Databases, chosen_bin, session_server

from suimon.db import embedded_binaries
from suimon.db.connect import Connection, connect, redacted
from suimon.errors import SuimonError

_session = contextlib.ExitStack()  # the controlling process's; closed when pytest ends
_shared_url: str | None = None


def _server_url() -> str:
    global _shared_url
    if _shared_url is None:
        _shared_url = _session.enter_context(session_server())
    return _shared_url


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist: one server for all workers, owned by the process that outlives them."""
    node.workerinput["suimon_server_url"] = _server_url()


def pytest_configure() -> None:
    """A shell that starts us in the background has SIGINT ignored, and every child inherits that:
    commands whose Ctrl-C is tested would never hear it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    _session.close()


def pytest_report_header() -> list[str]:
    if given := os.environ.get("SUIMON_DATABASE_URL"):
        server = f"{redacted(given)} (SUIMON_DATABASE_URL)"
    else:
        try:
            found = embedded_binaries.find(chosen_bin())
            server = f"PostgreSQL {found.version} ({found.source}), embedded"
        except SuimonError as error:
            server = error.render()
    account = embedded_binaries.server_account()
    me = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() == 0 else str(os.geteuid())
    lines = [f"server: {server}", f"identity: {me}, the server's: {account.name}"]
    db = resources.files("suimon.db")
    if (db / "schema.sql").read_bytes() != (db / "migrations" / "0001_initial.sql").read_bytes():
        lines.append("schema.sql is ahead of the migrations: tests run on the migrations")
    return lines


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses a database and is quick is run a second time on the oldest PostgreSQL."""
    for item in items:
        uses = getattr(item, "fixturenames", ())
        if {"db_url", "empty_db_url"} & set(uses) and not item.get_closest_marker("slow"):
            item.add_marker("portable")


@pytest.fixture(scope="session")
def server_url(request: pytest.FixtureRequest) -> str:
    """A server with the right to create databases."""
    given = getattr(request.config, "workerinput", {}).get("suimon_server_url")
    return given or _server_url()


@pytest.fixture(scope="session")
def databases(server_url: str) -> Iterator[Databases]:
    """Makes further databases: `with databases.fresh() as url`."""
    made = Databases(server_url)
    yield made
    made.close()


@pytest.fixture
def db_url(databases: Databases) -> Iterator[str]:
    """A fresh database with the whole schema."""
    with databases.fresh() as url:
        yield url


@pytest.fixture
def empty_db_url(databases: Databases) -> Iterator[str]:
    """A fresh database without Suimon's schema."""
    with databases.fresh(migrated=False) as url:
        yield url


@pytest.fixture
def conn(db_url: str) -> Iterator[Connection]:
    """A connection to this test's own database, in autocommit mode."""
    with connect(db_url, name="test") as connection:
        yield connection
