"""XML of a workbook, read as a stream and within bounds.

No document type is accepted, so no entity can be declared: an .xlsx never has one. Depth, the size
of one tag and the size of one text are bounded, so that memory does not depend on the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from xml.parsers import expat

from suimon.read.xlsx_container import damaged

_DEPTH: Final = 64
_TAG_BYTES: Final = 4 * 1024 * 1024
#: Of one cell; Excel itself allows 32,767 characters.
TEXT_CHARS: Final = 16 * 1024 * 1024

Attributes = dict[str, str]
Start = Callable[[str, Attributes], None]
End = Callable[[str], None]


class Texts:
    """What stands between tags, gathered while someone wants it."""

    __slots__ = ("_size", "name", "parts", "wanted")

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[str] = []
        self.wanted = False
        self._size = 0

    def begin(self) -> None:
        self.parts = []
        self._size = 0
        self.wanted = True

    def add(self, text: str) -> None:
        if self.wanted:
            self.parts.append(text)
            self._size += len(text)
            if self._size > TEXT_CHARS:
                raise damaged(self.name, "one text is longer than 16 MiB")

    def end(self) -> str:
        self.wanted = False
        return "".join(self.parts)


def parse(
    chunks: Iterable[bytes], name: str, start: Start, end: End, texts: Texts | None = None
) -> Iterator[None]:
    """Feed the parser; yields after each piece, so that the caller can pass on what it has got.

    Names come without their namespace: prefixes differ between the programs that write workbooks.
    """
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.buffer_size = 64 * 1024
    local: dict[str, str] = {}
    depth = 0

    def begin(full: str, attributes: Attributes) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEPTH:
            raise damaged(name, "its XML is nested too deeply")
        known = local.get(full)
        if known is None:
            known = full.rpartition("}")[2]
            if len(local) < 10_000:
                local[full] = known
        start(known, attributes)

    def finish(full: str) -> None:
        nonlocal depth
        depth -= 1
        end(local.get(full) or full.rpartition("}")[2])

    def refuse(*_: Any) -> None:
        raise damaged(name, "its XML declares a document type, which no workbook has")

    parser.StartElementHandler = begin
    parser.EndElementHandler = finish
    parser.StartDoctypeDeclHandler = refuse
    if texts is not None:
        parser.CharacterDataHandler = texts.add
    fed = 0
    try:
        for chunk in chunks:
            fed += len(chunk)
            parser.Parse(chunk, False)  # noqa: FBT003 - expat takes it by position only
            if fed - max(parser.CurrentByteIndex, 0) > _TAG_BYTES:
                raise damaged(name, "one tag of its XML is longer than 4 MiB")
            yield
        parser.Parse(b"", True)  # noqa: FBT003
    except expat.ExpatError as error:
        raise damaged(name, f"XML: {error}") from None
    yield


def attribute(attributes: Attributes, wanted: str) -> str | None:
    """An attribute by its name without namespace."""
    if wanted in attributes:
        return attributes[wanted]
    return next(
        (value for key, value in attributes.items() if key.rpartition("}")[2] == wanted), None
    )
