"""The shared texts of a workbook: cells hold numbers into this list.

A list of a million texts would not be flat memory: the first 16 MiB of text stay in memory, the
rest goes to an unnamed temporary file with eight bytes of memory per text.
"""

from __future__ import annotations

import re
import tempfile
from array import array
from collections.abc import Iterable
from typing import IO, Final

from suimon.read.xlsx_container import damaged
from suimon.read.xlsx_xml import Attributes, Texts, parse

_HELD_CHARS: Final = 16 * 1024 * 1024
#: Eight bytes each: 160 MiB at most.
_MAX_TEXTS: Final = 20_000_000
_ESCAPE: Final = re.compile(r"_x([0-9A-Fa-f]{4})_")


class SharedTexts:
    """`texts[n]` is text number n."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._held: list[str] = []
        self._chars = 0
        self._file: IO[bytes] | None = None
        self._ends = array("Q", [0])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def read(self, chunks: Iterable[bytes]) -> None:
        """All texts of the part. Readings (furigana) beside a text are not part of it."""
        texts = Texts(self._name)
        parts: list[str] = []
        reading = False

        def start(tag: str, _: Attributes) -> None:
            nonlocal reading
            if tag == "si":
                parts.clear()
            elif tag == "rPh":
                reading = True
            elif tag == "t" and not reading:
                texts.begin()

        def end(tag: str) -> None:
            nonlocal reading
            if tag == "t" and texts.wanted:
                parts.append(texts.end())
            elif tag == "rPh":
                reading = False
            elif tag == "si":
                self._add("".join(parts))

        for _ in parse(chunks, self._name, start, end, texts):
            pass
        if self._file is not None:
            self._file.flush()

    def __getitem__(self, number: int) -> str:
        if 0 <= number < len(self._held):
            return self._held[number]
        place = number - len(self._held)
        if self._file is None or not 0 <= place < len(self._ends) - 1:
            raise damaged(self._name, f"a cell names text number {number}, which is not there")
        self._file.seek(self._ends[place])
        return self._file.read(self._ends[place + 1] - self._ends[place]).decode(
            "utf-8", "surrogatepass"
        )

    def _add(self, text: str) -> None:
        text = unescaped(text)
        if self._file is None and self._chars < _HELD_CHARS:
            self._held.append(text)
            self._chars += len(text) + 16
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="suimon-texts-")  # noqa: SIM115 - see close
        if len(self._ends) > _MAX_TEXTS:
            raise damaged(self._name, f"it has more than {_MAX_TEXTS:,} different texts")
        data = text.encode("utf-8", "surrogatepass")
        self._file.write(data)
        self._ends.append(self._ends[-1] + len(data))


def unescaped(text: str) -> str:
    """`_x000D_` stands for a character that XML cannot hold."""
    if "_x" not in text:
        return text
    return _ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    code = int(found[1], 16)
    return found[0] if 0xD800 <= code <= 0xDFFF or code == 0 else chr(code)
