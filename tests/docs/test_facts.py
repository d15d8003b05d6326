"""Numbers that documents name are the numbers of the source, and files they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from suimon import graph_fields
from suimon.core import jsonsafe, settings
from suimon.run import claim, doors, finish, submit
from suimon.worker import beat, held, sender, slotwork, watch, wire

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))]

DEFAULTS = settings.Settings()
OPERATIONS = {
    f"{jsonsafe.MAX_BYTES // 2**20} MiB of JSON; above {finish.INLINE_BYTES // 1024} KB",
    f"{wire.TRACEBACK_CHARS:,} characters",
    f"{submit.KEY_BYTES:,} bytes",
    f"two chunks of {wire.CHUNK_ITEMS:,} items or {wire.CHUNK_BYTES // 2**20} MiB",
    f"vertices of a graph | {graph_fields.MAX_VERTICES:,} |",
    f"runs in one claim | {claim.MAX_CLAIM:,} |",
    f"`submit_many` | {doors.MANY:,} in one call",
    f"about {held.AHEAD_SECONDS * 1000:.0f} ms of work per slot",
    f"at most {held.AHEAD_RUNS:,} a slot",
    f"{slotwork.RECALL_SECONDS * 1000:.0f} ms, and released",
    f"`--heartbeat` ({DEFAULTS.heartbeat:g} s)",
    f"each {DEFAULTS.heartbeat:g} s",
    f"each {DEFAULTS.sweep:g} s",
}


@pytest.mark.parametrize("words", sorted(OPERATIONS))
def test_operations_names_the_real_bounds(words: str) -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert words in re.sub(r"\s+", " ", text)


def test_operations_counts_what_is_written_in_words() -> None:
    """Five failed starts, three silent intervals, two until claims stop, a second until resent."""
    assert slotwork.FAILED_STARTS == 5
    assert watch.SILENT_INTERVALS == 3
    assert beat.STOP_CLAIMING == 2
    assert beat.END_SLOTS == 2.75
    assert sender.REFUSED_SECONDS == slotwork.UNPLACED_SECONDS == 1
    assert wire.CHUNKS_UNACKNOWLEDGED == 2


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_a_document_names_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = re.findall(r"`((?:suimon|docs|deploy|tests|examples|bench)/[\w./-]+)`", text)
    named += re.findall(r"\]\((?!https?:|#)([\w./-]+)", text)
    homes = (ROOT, path.parent)
    assert [one for one in named if not any((home / one).exists() for home in homes)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_are_narrow(path: Path) -> None:
    """Prose has at most 110 columns; tables and lists of files may be wider."""
    wide = [
        number
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > 110 and not line.startswith(("|", "- `", "<!--"))
    ]
    assert wide == []
