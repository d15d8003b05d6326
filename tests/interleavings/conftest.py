"""The lab, its sessions, and the statements as they were before they were mended."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.lab_fixtures import lab, sessions

from suimon.db.statements import Statements, parse

_FILE = Path(__file__).with_name("without_the_fix.sql")


@pytest.fixture(scope="session")
def broken() -> Statements:
    """The obvious statements that each interleaving breaks."""
    return parse(_FILE.name, _FILE.read_text(encoding="utf-8"))


__all__ = ["broken", "lab", "sessions"]
