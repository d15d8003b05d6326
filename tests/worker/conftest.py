"""A folder of user code, and a slot that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.slot_harness import SlotHarness
from support.slot_user_code import CODE


@pytest.fixture
def slot_root(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "work.py").write_text(CODE)
    (folder / "broken.py").write_text("import nowhere_to_be_found\n")
    return folder


@pytest.fixture
def slot(slot_root: Path, tmp_path: Path) -> Iterator[SlotHarness]:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {"TMPDIR": str(temporary), "SUIMON_INSIDE_SLOT": "0"}
    with SlotHarness(slot_root, async_slots=4, env=env) as harness:
        yield harness
