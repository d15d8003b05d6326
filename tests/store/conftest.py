"""The lab of the payload store, and an object store that can go away."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.contents import ObjectStore
from support.lab_fixtures import lab

__all__ = ["lab", "store"]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """A folder by URL."""
    return ObjectStore(tmp_path / "objects")
