"""The sabotages still fit the code: an entry that fits nowhere would prove nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "sabotage"))

from sabotages import SABOTAGES, Sabotage  # noqa: E402


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda s: s.name)
def test_each_sabotage_fits_exactly_one_place(sabotage: Sabotage) -> None:
    """Its line stands once in its file, and its tests exist."""
    assert (ROOT / sabotage.file).read_text(encoding="utf-8").count(sabotage.old) == 1
    for path in sabotage.tests.split():
        assert (ROOT / path).exists(), path
