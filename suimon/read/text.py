"""Bytes of a file to lines of text: streamed, strict, and able to say where it went wrong.

Nothing is replaced and nothing is guessed from a sample. UTF-8 is the default, with or without a
byte order mark. `encoding="auto"` reads the file once more beforehand: it is UTF-8 if all of it is
valid UTF-8, else cp932 (the Windows form of Shift-JIS) if all of it is valid cp932 and most of its
two-byte characters are kana, marks and everyday kanji (EUC-JP and Latin-1 are valid cp932 by
accident, but never look like that), else refused with what was found. A byte order mark decides
before that. A file that is no text at all (ZIP, Parquet, an old Office file, HTML) is refused by
what its first bytes say.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from suimon.errors import FileRefused

_CHUNK_BYTES: Final = 256 * 1024
#: One line, or one record with line breaks inside quotes. Larger means a quote was never closed.
MAX_LINE_CHARS: Final = 16 * 1024 * 1024

#: (That of UTF-32 begins like the one of UTF-16.)
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MARK: Final = "\ufeff"
#: First bytes that no text file has, and what they are.
_NO_TEXT: Final = (
    (b"PK\x03\x04", "a ZIP archive, perhaps an Excel workbook (.xlsx)"),
    (b"PAR1", "a Parquet file"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file (.xls) or a protected one"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"%PDF-", "a PDF"),
    (b"BZh", "compressed with bzip2"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
)
_MARKUP: Final = re.compile(rb"\s*<(!doctype|html|\?xml|table|meta|head)\b", re.IGNORECASE)
#: What switches to Japanese letters in ISO-2022-JP, whose bytes are all valid UTF-8.
_ESCAPES: Final = ("\x1b$B", "\x1b$@", "\x1b(J", "\x1b(I")
#: cp932: a two-byte character of the first half (kana, marks, everyday kanji), of the second, or a
#: half-width kana.
_CP932: Final = re.compile(rb"([\x81-\x9f][\x40-\xfc])|[\xe0-\xfc][\x40-\xfc]|[\xa1-\xdf]")


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
        begun = False
        for piece in self._pieces():
            # a program that put a mark before a file that had one made two of it
            text = rest + piece if begun else piece.lstrip(_MARK)
            begun = begun or bool(text)
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
            except UnicodeError as error:
                if not isinstance(error, UnicodeDecodeError):
                    raise self._no_text(error) from None
                # what the decoder had kept back from the last piece stands before this one
                kept = len(error.object) - len(data)
                byte = self._offset - kept + error.start
                yield error.object[: error.start].decode(self.encoding, "ignore")
                raise self._bad_byte(byte, error) from None
            self._refuse_nul(text, data)
            self._refuse_escapes(text)
            self._offset += len(data)
            if text:
                yield text
            if not data:
                return

    def _no_text(self, error: UnicodeError) -> FileRefused:
        """What some decoders say of a file that has not even the beginning of their encoding."""
        msg = f'"{self._name}" is not valid {self.encoding}: row {self.row + 1} cannot be decoded'
        hint = 'name the encoding, for instance encoding="cp932", or "auto"'
        return FileRefused(msg, path=self._name, row=self.row + 1, detail=str(error), hint=hint)

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

    def _refuse_escapes(self, text: str) -> None:
        if "\x1b" not in text or self.encoding not in ("utf-8", "ascii"):
            return
        if any(escape in text for escape in _ESCAPES):
            msg = f'"{self._name}" is in ISO-2022-JP (JIS), not {self.encoding}'
            raise FileRefused(msg, path=self._name, hint='say encoding="iso2022_jp"')

    def _choose(self, wanted: str) -> tuple[str, int]:
        """The encoding, and how many bytes of mark to skip."""
        self._file.seek(0)
        head = self._file.read(512)
        self._refuse_no_text(head)
        wanted = codecs.lookup(wanted).name if wanted != "auto" else wanted
        for mark, encoding in _MARKS:
            if head.startswith(mark):
                if wanted in ("auto", encoding, encoding[:6], "utf-8-sig"):
                    return encoding, len(mark)
                msg = f'"{self._name}" begins with the mark of {encoding}, not of {wanted}'
                hint = f'use encoding="{encoding[:6].rstrip("-")}" or "auto"'
                raise FileRefused(msg, path=self._name, byte=0, hint=hint)
        if wanted == "utf-8-sig":
            return "utf-8", 0
        return (self._judge(), 0) if wanted == "auto" else (wanted, 0)

    def _refuse_no_text(self, head: bytes) -> None:
        found = next((what for magic, what in _NO_TEXT if head.startswith(magic)), None)
        if found is None and _MARKUP.match(head.removeprefix(codecs.BOM_UTF8)):
            found = "HTML or XML"
        if found is not None:
            msg = f'"{self._name}" is {found}, not a text file with rows'
            hint = "ask the sender for the right file, or name its format"
            raise FileRefused(msg, path=self._name, byte=0, hint=hint)

    def _judge(self) -> str:
        """Read all of it, once per candidate; refused unless one of the two is clearly meant."""
        bad = self._first_bad_byte("utf-8")
        if bad is None:
            return "utf-8"
        failures = [f"utf-8 fails at byte {bad}"]
        bad_cp932 = self._first_bad_byte("cp932")
        if bad_cp932 is not None:
            failures.append(f"cp932 fails at byte {bad_cp932}")
        elif self._looks_japanese():
            return "cp932"
        else:
            failures.append("it would be valid cp932, but with letters that are hardly ever used")
        other = "euc_jp" if self._first_bad_byte("euc_jp") is None else "latin-1"
        msg = f'the encoding of "{self._name}" cannot be told: {"; ".join(failures)}'
        hint = f'name the encoding, for instance encoding="{other}"'
        raise FileRefused(msg, path=self._name, byte=max(bad, bad_cp932 or 0), hint=hint)

    def _looks_japanese(self) -> bool:
        """Of a file that is valid cp932: is at least half of its Japanese text everyday text?"""
        self._file.seek(0)
        usual = rare = 0
        rest = b""
        while data := self._file.read(_CHUNK_BYTES):
            data = rest + data
            end = 0
            for found in _CP932.finditer(data):
                usual += found[1] is not None
                rare += found[1] is None and len(found[0]) == 2
                end = found.end()
            # half of a character may stand at the end of this piece
            rest = data[-1:] if end < len(data) and data[-1] >= 0x81 else b""
        return usual > 0 and usual >= rare

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
