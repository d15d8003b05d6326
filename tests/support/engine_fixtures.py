"""Fixtures of tests with real workers; `conftest.py` of their folders takes them from here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from suimon.db.embedded import EmbeddedServer
from support.database import Databases, chosen_bin, open_folder
from support.engine import Engine, engine_on


@pytest.fixture
def engine(db_url: str, tmp_path: Path) -> Iterator[Engine]:
    """A database of its own on the session's server."""
    with engine_on(db_url, tmp_path / "engine") as made:
        yield made


@pytest.fixture(scope="module")
def own_server() -> Iterator[EmbeddedServer]:
    """A durable server (fsync on) that a test may kill, one for a file of tests."""
    folder = open_folder("suimon-own-")
    try:
        with EmbeddedServer(folder / "pg", bin=chosen_bin()) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_engine(own_server: EmbeddedServer, tmp_path: Path) -> Iterator[Engine]:
    """An engine on a server that the test may kill."""
    own_server.ensure_running()
    databases = Databases(own_server.url)
    with databases.fresh() as url:
        try:
            with engine_on(url, tmp_path / "engine") as made:
                yield made
        finally:
            own_server.ensure_running()
    databases.close()


__all__ = ["engine", "own_engine", "own_server"]
