"""Bytes of a file to lines of text: streamed, strict, and able to say where it went wrong.

Nothing is replaced and nothing is guessed from a sample. UTF-8 is the default, with or without a
byte order mark. `encoding="auto"` reads the file once more beforehand: it is UTF-8 if all of it is
valid UTF-8, else cp932 (the Windows form of Shift-JIS) if all of it is valid cp932, else refused
with the byte position of both. A byte order mark decides before that.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import BinaryIO, Final

from suimon.errors import FileRefused

_CHUNK_BYTES: Final = 256 * 1024
#: One line, or one record with line breaks inside quotes. Larger means a quote was never closed.
MAX_LINE_CHARS: Final = 16 * 1024 * 1024

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_AUTO: Final = ("utf-8", "cp932")


class TextLines:
    """The lines of a file with their line ends (\\n, \\r\\n, \\r), and the position reached."""

    def __init__(self, file: BinaryIO, *, name: str, encoding: str) -> None:
        self._file = file
        self._name = name
        self.encoding, self._start = self._choose(encoding)
        self._offset = self._start
        #: The row being read, kept by whoever makes rows of the lines; for messages.
        self.row = 0

    def __iter__(self) -> Iterator[str]:
        """Raises FileRefused at the first byte that is no text, after all lines before it."""
        self._file.seek(self._start)
        rest = ""
        for piece in self._pieces():
            text = rest + piece
            cut = _end_of_lines(text)
            yield from io.StringIO(text[:cut], newline="")
            rest = text[cut:]
            if len(rest) > MAX_LINE_CHARS:
                msg = f'"{self._name}", row {self.row + 1}: the line is longer than 16 MiB'
                raise FileRefused(msg, path=self._name, row=self.row + 1)
        if rest:
            yield from io.StringIO(rest, newline="")

    def _pieces(self) -> Iterator[str]:
        """Decoded pieces of the file; a bad byte is raised after the good text before it."""
        decoder = codecs.getincrementaldecoder(self.encoding)("strict")
        while True:
            data = self._file.read(_CHUNK_BYTES)
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                # what the decoder had kept back from the last piece stands before this one
                kept = len(error.object) - len(data)
                byte = self._offset - kept + error.start
                yield error.object[: error.start].decode(self.encoding, "ignore")
                raise self._bad_byte(byte, error) from None
            self._refuse_nul(text, data)
            self._offset += len(data)
            if text:
                yield text
            if not data:
                return

    def _bad_byte(self, byte: int, error: UnicodeDecodeError) -> FileRefused:
        row = self.row + 1
        found = error.object[error.start : error.start + 1].hex()
        msg = (
            f'"{self._name}" is not valid {self.encoding}: row {row}, '
            f"byte {byte} (0x{found}) is no text"
        )
        hint = 'name the encoding, for instance encoding="cp932", or "auto"'
        return FileRefused(msg, path=self._name, row=row, byte=byte, hint=hint)

    def _refuse_nul(self, text: str, data: bytes) -> None:
        if "\x00" not in text:
            return
        byte = self._offset + max(data.find(b"\x00"), 0)
        msg = f'"{self._name}" holds a NUL character at byte {byte}; it is no text file'
        hint = 'if it is UTF-16 without a byte order mark, name it: encoding="utf-16-le"'
        raise FileRefused(msg, path=self._name, byte=byte, hint=hint)

    def _choose(self, wanted: str) -> tuple[str, int]:
        """The encoding, and how many bytes of mark to skip."""
        self._file.seek(0)
        head = self._file.read(4)
        wanted = codecs.lookup(wanted).name if wanted != "auto" else wanted
        for mark, encoding in _MARKS:
            if head.startswith(mark):
                if wanted in ("auto", encoding, encoding[:6], "utf-8-sig"):
                    return encoding, len(mark)
                if encoding == "utf-8":
                    msg = f'"{self._name}" begins with a UTF-8 mark, but {wanted} was asked for'
                    raise FileRefused(msg, path=self._name, byte=0, hint='use encoding="utf-8"')
        if wanted == "utf-8-sig":
            return "utf-8", 0
        return (self._judge(), 0) if wanted == "auto" else (wanted, 0)

    def _judge(self) -> str:
        """Read all of it, once per candidate; the first that fits the whole file is the answer."""
        failures: list[str] = []
        first_bad = 0
        for encoding in _AUTO:
            bad = self._first_bad_byte(encoding)
            if bad is None:
                return encoding
            first_bad = max(first_bad, bad)
            failures.append(f"{encoding} fails at byte {bad}")
        msg = f'the encoding of "{self._name}" cannot be told: {"; ".join(failures)}'
        hint = 'name the encoding, for instance encoding="latin-1"'
        raise FileRefused(msg, path=self._name, byte=first_bad, hint=hint)

    def _first_bad_byte(self, encoding: str) -> int | None:
        self._file.seek(0)
        decoder = codecs.getincrementaldecoder(encoding)("strict")
        offset = 0
        while True:
            data = self._file.read(_CHUNK_BYTES)
            try:
                decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                return offset - (len(error.object) - len(data)) + error.start
            offset += len(data)
            if not data:
                return None


def _end_of_lines(text: str) -> int:
    """Where the last complete line ends. A \\r at the very end may be half of \\r\\n: not yet."""
    newline = text.rfind("\n")
    lone = text.rfind("\r", newline + 1, len(text) - 1)
    return max(newline, lone) + 1
