"""Reading in tests: all rows at once, with the notes, and what a refusal said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suimon.errors import FileRefused
from suimon.read import open_source

HANDED = Path(__file__).parents[1] / "data" / "handed"
TRUTH: dict[str, Any] = {
    entry["file"]: entry["truth"]
    for entry in json.loads((HANDED / "MANIFEST.json").read_text("utf-8"))["files"]
}


def read(path: Path | str, notes: list[str] | None = None, **options: Any) -> list[dict[str, Any]]:
    notes = [] if notes is None else notes
    return list(open_source(path, None, options, root=HANDED, note=notes.append))


def refused(path: Path | str, **options: Any) -> FileRefused:
    with pytest.raises(FileRefused) as caught:
        read(path, **options)
    return caught.value
