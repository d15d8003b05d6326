"""What a workbook says about itself: its sheets, the formats of its cells, where dates begin."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from suimon.core.suggest import one_of
from suimon.errors import FileRefused
from suimon.read.xlsx_container import SHEET_BYTES, STRINGS_BYTES, Container, damaged
from suimon.read.xlsx_dates import NUMBER, format_kind
from suimon.read.xlsx_strings import SharedTexts
from suimon.read.xlsx_xml import Attributes, attribute, parse

_MAX_FORMATS = 100_000
_MAX_SHEETS = 10_000


@dataclass(frozen=True, slots=True)
class Sheet:
    name: str
    visible: bool
    part: str


@dataclass(slots=True)
class Workbook:
    """Close it: the shared texts may lie in a temporary file."""

    container: Container
    sheets: list[Sheet] = field(default_factory=list)
    from_1904: bool = False
    #: The program that wrote it asks for all formulas to be calculated when it is opened.
    uncalculated: bool = False
    #: For each cell style: "" or what kind of date its format shows.
    kinds: list[str] = field(default_factory=list)
    texts: SharedTexts | None = None

    @property
    def name(self) -> str:
        return self.container.name

    def close(self) -> None:
        if self.texts is not None:
            self.texts.close()

    def chunks(self, sheet: Sheet) -> Iterator[bytes]:
        return self.container.chunks(sheet.part, SHEET_BYTES)

    def kind_of_style(self, style: str | None) -> str:
        if style is None:
            return NUMBER if not self.kinds else self.kinds[0]
        try:
            return self.kinds[int(style)]
        except (ValueError, IndexError):
            raise damaged(self.name, f"a cell has the style {style}, which is not there") from None

    def sheet(self, wanted: str | int) -> Sheet:
        """A sheet by its name, or by its number from 1, hidden ones included."""
        names = [sheet.name for sheet in self.sheets]
        if isinstance(wanted, int):
            if wanted <= len(self.sheets):
                return self.sheets[wanted - 1]
            msg = f'"{self.name}" has {len(names)} sheets; there is no sheet {wanted}'
            raise FileRefused(msg, path=self.name)
        if wanted not in names:
            msg = f'"{self.name}" has no sheet "{wanted}"'
            raise FileRefused(msg, path=self.name, hint=one_of(wanted, names))
        return self.sheets[names.index(wanted)]


def open_workbook(container: Container) -> Workbook:
    """All but the sheets themselves and the shared texts."""
    book = Workbook(container)
    main = next(
        (
            target
            for kind, _, target in _relations(container, "_rels/.rels", "")
            if kind == "officeDocument"
        ),
        "xl/workbook.xml",
    )
    folder = posixpath.dirname(main)
    links = posixpath.join(folder, "_rels", posixpath.basename(main) + ".rels")
    relations = list(_relations(container, links, folder))
    targets = {identity: target for kind, identity, target in relations if kind == "worksheet"}
    _read_workbook(container, main, book, targets)
    for kind, _, target in relations:
        if kind == "styles" and target in container:
            _read_styles(container, target, book)
        elif kind == "sharedStrings" and target in container:
            book.texts = SharedTexts(container.name)
            try:
                book.texts.read(container.chunks(target, STRINGS_BYTES))
            except BaseException:
                book.close()
                raise
    return book


def _relations(container: Container, part: str, folder: str) -> Iterator[tuple[str, str, str]]:
    """(kind, id, part) of each relation."""
    if part not in container:
        return
    found: list[tuple[str, str, str]] = []

    def start(tag: str, attributes: Attributes) -> None:
        if tag == "Relationship" and attributes.get("TargetMode") != "External":
            target = attributes.get("Target", "").replace("\\", "/")
            absolute = target.startswith("/")
            path = target.lstrip("/") if absolute else posixpath.join(folder, target)
            kind = attributes.get("Type", "").rpartition("/")[2]
            found.append((kind, attributes.get("Id", ""), posixpath.normpath(path)))

    _drain(parse([container.whole(part)], container.name, start, _nothing))
    yield from found


def _read_workbook(
    container: Container, part: str, book: Workbook, targets: dict[str, str]
) -> None:
    def start(tag: str, attributes: Attributes) -> None:
        if tag == "workbookPr":
            book.from_1904 = attributes.get("date1904") in ("1", "true", "on")
        elif tag == "calcPr":
            book.uncalculated = attributes.get("fullCalcOnLoad") in ("1", "true", "on")
        elif tag == "sheet" and len(book.sheets) < _MAX_SHEETS:
            identity = attribute(attributes, "id") or ""
            visible = attributes.get("state", "visible") == "visible"
            if identity in targets:  # others are charts and macros, which have no cells
                sheet = Sheet(attributes.get("name", ""), visible, targets[identity])
                book.sheets.append(sheet)

    _drain(parse([container.whole(part)], container.name, start, _nothing))
    if not book.sheets:
        raise damaged(container.name, "it has no sheet with cells")


def _read_styles(container: Container, part: str, book: Workbook) -> None:
    codes: dict[int, str] = {}
    styles: list[int] = []
    inside = False

    def start(tag: str, attributes: Attributes) -> None:
        nonlocal inside
        if tag == "numFmt":
            codes[_number(attributes.get("numFmtId"))] = attributes.get("formatCode", "")
        elif tag == "cellXfs":
            inside = True
        elif tag == "xf" and inside and len(styles) < _MAX_FORMATS:
            styles.append(_number(attributes.get("numFmtId")))

    def end(tag: str) -> None:
        nonlocal inside
        if tag == "cellXfs":
            inside = False

    _drain(parse([container.whole(part)], container.name, start, end))
    known = {number: format_kind(number, codes.get(number)) for number in set(styles)}
    book.kinds = [known[number] for number in styles]


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0


def _nothing(_: str) -> None:
    return


def _drain(steps: Iterable[None]) -> None:
    for _ in steps:
        pass
