"""An .xlsx file as the ZIP archive it is: judged by its bytes, its parts read within bounds.

What is not an Excel workbook is refused in one sentence that a person who has never heard of ZIP
understands: protected, damaged, or something else with the wrong name. Sizes in the archive are not
believed: bytes are counted while they are unpacked, and a part that swells beyond its bound or
beyond 300 times its packed size is refused.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

from suimon.errors import FileRefused

_MIB: Final = 1024 * 1024
CHUNK_BYTES: Final = 64 * 1024
#: Unpacked: a part that is held (workbook, styles), the texts (kept on disk), a sheet (streamed).
HELD_BYTES: Final = 32 * _MIB
STRINGS_BYTES: Final = 2 * 1024 * _MIB
SHEET_BYTES: Final = 8 * 1024 * _MIB
_MAX_RATIO: Final = 300
_RATIO_FROM: Final = 64 * _MIB
_DIRECTORY_BYTES: Final = 8 * _MIB
_TAIL_BYTES: Final = 66 * 1024
_LOOK_BYTES: Final = 4 * _MIB

_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED: Final = "EncryptedPackage".encode("utf-16-le")
_OLD_BOOK: Final = tuple(word.encode("utf-16-le") for word in ("Workbook", "Book\0"))
_HTML: Final = re.compile(rb"\s*<(!doctype\s+html|html|table|meta|head|body)\b", re.IGNORECASE)
_UNPACKING: Final = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, struct.error,
    NotImplementedError, OverflowError,
)  # fmt: skip


class Container:
    """The parts of a workbook by their names, which are compared without case."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self._size = file.seek(0, 2)
        _refuse_other_files(file, name, self._size)
        _refuse_large_directory(file, name, self._size)
        try:
            self._archive = zipfile.ZipFile(file)
        except _UNPACKING as error:
            raise damaged(name, str(error)) from None
        self._parts: dict[str, zipfile.ZipInfo] = {}
        for info in self._archive.infolist():
            key = info.filename.replace("\\", "/").lstrip("/").lower()
            if key in self._parts:
                raise damaged(name, f"the part {info.filename!r} is there twice")
            self._parts[key] = info
        self._refuse_other_archives()

    def __contains__(self, part: str) -> bool:
        return part.lower() in self._parts

    def whole(self, part: str) -> bytes:
        """A small part."""
        return b"".join(self.chunks(part, HELD_BYTES))

    def chunks(self, part: str, limit: int) -> Iterator[bytes]:
        """A part, piece by piece; refused when it is damaged or swells beyond its bound."""
        info = self._parts.get(part.lower())
        if info is None:
            raise damaged(self.name, f"the part {part!r} is missing")
        if info.flag_bits & 1:
            raise _protected(self.name)
        packed = min(max(info.compress_size, 1), self._size)
        total = 0
        try:
            with self._archive.open(info) as stream:
                while data := stream.read(CHUNK_BYTES):
                    total += len(data)
                    if total > limit or (total > _RATIO_FROM and total > _MAX_RATIO * packed):
                        raise _too_large(self.name, part, total)
                    yield data
        except RuntimeError as error:
            if isinstance(error, NotImplementedError):
                raise damaged(self.name, str(error)) from None
            raise _protected(self.name) from None
        except _UNPACKING as error:
            raise damaged(self.name, f"{part}: {error}") from None

    def _refuse_other_archives(self) -> None:
        relations = "_rels/.rels" in self._parts and "mimetype" not in self._parts
        sheets = any(key.startswith("xl/") and key.endswith(".xml") for key in self._parts)
        if "xl/workbook.xml" in self._parts or (relations and sheets):
            return
        other = "a ZIP archive, but no Excel workbook"
        for part, what in _ARCHIVES:
            if part in self._parts:
                other = what
        raise _no_excel(self.name, other)


_ARCHIVES: Final = (
    ("mimetype", "an OpenDocument file (LibreOffice), no Excel workbook"),
    ("word/document.xml", "a Word document, no Excel workbook"),
    ("ppt/presentation.xml", "a PowerPoint presentation, no Excel workbook"),
    ("xl/workbook.bin", "a binary workbook (.xlsb), which is not read"),
)


def damaged(name: str, detail: str) -> FileRefused:
    msg = f'"{name}" is damaged: Excel data is missing or unreadable in it'
    return FileRefused(msg, path=name, detail=detail[:500], hint="ask the sender for it again")


def _protected(name: str) -> FileRefused:
    msg = f'"{name}" is protected with a password and cannot be read'
    return FileRefused(msg, path=name, hint="open it in Excel, remove the password, save it again")


def _no_excel(name: str, what: str) -> FileRefused:
    msg = f'"{name}" is not an Excel workbook: it is {what}'
    return FileRefused(msg, path=name, hint="open it in Excel and save it as .xlsx")


def _too_large(name: str, part: str, size: int) -> FileRefused:
    msg = f'"{name}" unpacks to more than is read: it may be made to do harm'
    detail = f"{part}: more than {size // _MIB:,} MiB unpacked"
    return FileRefused(msg, path=name, detail=detail)


def _refuse_other_files(file: BinaryIO, name: str, size: int) -> None:
    file.seek(0)
    head = file.read(min(size, _LOOK_BYTES))
    if size == 0:
        msg = f'"{name}" is empty (0 bytes): it is not an Excel workbook'
        raise FileRefused(msg, path=name, hint="ask the sender for it again")
    if head.startswith(_OLE):
        file.seek(max(size - _LOOK_BYTES, 0))
        everything = head + file.read(_LOOK_BYTES)
        if _ENCRYPTED in everything:
            raise _protected(name)
        if any(word in everything for word in _OLD_BOOK):
            raise _no_excel(name, "an old Excel file (.xls, before 2007), which is not read")
        msg = f'"{name}" is protected, or an old or unsupported container: it cannot be read'
        hint = "open it in Excel, remove any password and save it as .xlsx"
        raise FileRefused(msg, path=name, hint=hint)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return
    raise _no_excel(name, _what_is(head))


def _what_is(head: bytes) -> str:
    if head.startswith(b"PAR1"):
        return "a Parquet file"
    if head.startswith(b"%PDF-"):
        return "a PDF"
    text = head.removeprefix(b"\xef\xbb\xbf")[:4096]
    if _HTML.match(text):
        return "a web page (HTML) with the name of a workbook"
    if text.lstrip().startswith(b"<?xml"):
        return "an XML file with the name of a workbook"
    if b"\0" not in text or text.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "a text file, perhaps CSV, with the name of a workbook"
    return "something else with the name of a workbook"


def _refuse_large_directory(file: BinaryIO, name: str, size: int) -> None:
    """The archive's directory is held in memory: it is bounded before it is read."""
    file.seek(max(size - _TAIL_BYTES, 0))
    tail = file.read(_TAIL_BYTES)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + 22 > len(tail):
        raise damaged(name, "the end of the file is missing: it was cut off")
    directory = struct.unpack_from("<I", tail, at + 12)[0]
    if directory > _DIRECTORY_BYTES and directory != 0xFFFFFFFF:
        raise _too_large(name, "the list of parts", directory)
