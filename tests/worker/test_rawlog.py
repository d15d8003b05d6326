"""Raw output of a try: cut at its bounds, never inside a character, whatever the reads were."""

from __future__ import annotations

import sys

import pytest

from suimon.worker.rawlog import HEAD_BYTES, TAIL_BYTES, RawLog

WORD = "\u65e5\u672c\U0001f600"


def said(pieces: list[tuple[str, bytes]]) -> tuple[dict[str, str], str]:
    """(text by stream, the notes)."""
    log, texts, notes = RawLog(), {"stdout": "", "stderr": ""}, ""
    for stream, data in pieces:
        for text in log.take(stream, data):
            texts[stream] += text
    for stream, text in log.end():
        if stream == "note":
            notes += text
        else:
            texts[stream] += text
    return texts, notes


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_a_character_is_not_torn_where_a_read_ends(size: int) -> None:
    data = (WORD * 20).encode()
    pieces = [("stdout", data[at : at + size]) for at in range(0, len(data), size)]
    mixed = [piece for one in pieces for piece in (one, ("stderr", b"x"))]
    assert said(mixed)[0] == {"stdout": WORD * 20, "stderr": "x" * len(pieces)}


def test_what_is_no_text_is_escaped() -> None:
    """Also a character that was never ended, and one that is only its middle."""
    assert (
        said([("stdout", b"a\xff\xe6\x97"), ("stdout", b"b\x97"), ("stdout", b"\xe6")])[0]["stdout"]
        == "a\\xff\\xe6\\x97b\\x97\\xe6"
    )


@pytest.mark.parametrize("shift", range(4))
def test_the_middle_is_dropped_between_characters(shift: int) -> None:
    """The first and the last 256 KB are kept; the note counts what is not."""
    count = 3 * 1024 * 1024 // 4
    data = b"x" * shift + ("\U0001f600" * count).encode()
    pieces = [("stdout", data[at : at + 65_537]) for at in range(0, len(data), 65_537)]
    texts, note = said(pieces)
    kept = texts["stdout"]
    assert set(kept) == ({"x"} if shift else set()) | {"\U0001f600"}
    size = len(kept.encode())
    assert HEAD_BYTES + TAIL_BYTES - 8 <= size <= HEAD_BYTES + TAIL_BYTES
    assert f" {len(data) - size} bytes" in note


def test_a_flood_on_one_stream_leaves_the_other_alone() -> None:
    """Two pipes have no order between them: each keeps its beginning and its end."""
    flood = ("stdout", b"x" * 1_000_000)
    pieces = [flood, ("stderr", b"first "), *[flood] * 5, ("stderr", b"last"), flood]
    texts, note = said(pieces)
    assert texts["stderr"] == "first last"
    assert "bytes of stdout were dropped" in note


def test_single_bytes_take_no_room() -> None:
    """Half a megabyte that came byte by byte is held as few pieces."""
    log = RawLog()
    log.take("stdout", b"x" * HEAD_BYTES)
    for _ in range(2 * TAIL_BYTES):
        log.take("stdout", b"y")
    held = log._streams["stdout"]._tail
    assert len(held) < 1000
    assert sum(map(sys.getsizeof, held)) < 2 * TAIL_BYTES
