"""Workbooks written by hand, so that a test can put into them what no polite program writes."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"

#: Styles 0 to 7: plain, date, date and time, clock, elapsed hours, Japanese date, "0.00E+00", text.
FORMATS = (
    "General", "yyyy-mm-dd", "yyyy/mm/dd hh:mm:ss", "h:mm", "[h]:mm:ss",
    '[$-411]ggge"年"m"月"d"日";@', "0.00E+00", "@",
)  # fmt: skip


def text(reference: str, value: str) -> str:
    return f'<c r="{reference}" t="inlineStr"><is><t>{escape(value)}</t></is></c>'


def number(reference: str, value: object, style: int = 0) -> str:
    return f'<c r="{reference}" s="{style}"><v>{value}</v></c>'


def rows(*lines: Sequence[str], first: int = 1) -> str:
    """Rows of ready cells, numbered from `first`."""
    numbered = enumerate(lines, start=first)
    return "".join(f'<row r="{n}">{"".join(cells)}</row>' for n, cells in numbered)


def table(*lines: Sequence[object]) -> str:
    """Rows of plain values: text and numbers, None for a blank."""
    return rows(
        *(
            [
                text(f"{chr(65 + column)}{row}", value)
                if isinstance(value, str)
                else number(f"{chr(65 + column)}{row}", value)
                for column, value in enumerate(values)
                if value is not None
            ]
            for row, values in enumerate(lines, start=1)
        )
    )


def sheet(body: str, merges: Sequence[str] = ()) -> str:
    merged = "".join(f'<mergeCell ref="{area}"/>' for area in merges)
    after = f"<mergeCells>{merged}</mergeCells>" if merges else ""
    return f'<worksheet xmlns="{MAIN}"><sheetData>{body}</sheetData>{after}</worksheet>'


def write_book(
    path: Path,
    sheets: Mapping[str, str] | str,
    *,
    hidden: Sequence[str] = (),
    properties: str = "",
    calculation: str = "",
    shared: Sequence[str] | None = None,
    more: Mapping[str, str | bytes] | None = None,
) -> Path:
    """Write a workbook. A sheet that is only text is the body of `sheetData` or a whole part."""
    if isinstance(sheets, str):
        sheets = {"Sheet1": sheets}
    listed, links, parts = [], [], {}
    for index, (name, body) in enumerate(sheets.items(), start=1):
        state = ' state="hidden"' if name in hidden else ""
        listed.append(f'<sheet name={quoteattr(name)} sheetId="{index}"{state} r:id="rId{index}"/>')
        links.append((f"rId{index}", "worksheet", f"worksheets/sheet{index}.xml"))
        parts[f"xl/worksheets/sheet{index}.xml"] = body if "<worksheet" in body else sheet(body)
    links.append(("rIdStyles", "styles", "styles.xml"))
    parts["xl/styles.xml"] = _styles()
    if shared is not None:
        links.append(("rIdTexts", "sharedStrings", "/xl/sharedStrings.xml"))
        parts["xl/sharedStrings.xml"] = f'<sst xmlns="{MAIN}">{"".join(shared)}</sst>'
    parts["xl/workbook.xml"] = (
        f'<workbook xmlns="{MAIN}" xmlns:r="{LINKS}"><workbookPr {properties}/>'
        f"<sheets>{''.join(listed)}</sheets><calcPr {calculation}/></workbook>"
    )
    parts["xl/_rels/workbook.xml.rels"] = _relations(links)
    parts["_rels/.rels"] = _relations([("rId1", "officeDocument", "xl/workbook.xml")])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in {**parts, **(more or {})}.items():
            archive.writestr(part, content)
    return path


def _relations(links: Sequence[tuple[str, str, str]]) -> str:
    each = "".join(
        f'<Relationship Id="{identity}" Type="{LINKS}/{kind}" Target="{target}"/>'
        for identity, kind, target in links
    )
    return f'<Relationships xmlns="{PACKAGE}">{each}</Relationships>'


def _styles() -> str:
    codes = "".join(
        f'<numFmt numFmtId="{164 + n}" formatCode={quoteattr(code)}/>'
        for n, code in enumerate(FORMATS)
    )
    cells = "".join(f'<xf numFmtId="{164 + n}"/>' for n in range(len(FORMATS)))
    return (
        f'<styleSheet xmlns="{MAIN}"><numFmts>{codes}</numFmts>'
        f'<cellStyleXfs><xf numFmtId="14"/></cellStyleXfs><cellXfs>{cells}</cellXfs></styleSheet>'
    )
