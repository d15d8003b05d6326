"""How answers look: tables on a terminal, tab-separated lines elsewhere, JSON when asked for.

On a terminal: no borders, dim headers, times in the local zone, ASCII marks only (box characters
take two columns in many East Asian fonts). Elsewhere: tabs, no colour, UTC. Rich is imported when
a table is drawn on a terminal, and only then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click
import orjson

_STYLES: Final = {"succeeded": "green", "failed": "red", "timed_out": "red", "cancelled": "yellow"}
_LONGEST_CELL: Final = 160
#: What moves a terminal's cursor, colours it, or turns the direction of writing; senders choose
#: file names, delivery ids and headers. Tabs and ends of lines are ours.
_UNPRINTABLE: Final = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (
        *(code for code in range(0x20) if code not in (0x09, 0x0A)),
        *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A),
    )
}  # fmt: skip


def is_terminal() -> bool:
    return sys.stdout.isatty()


def as_json(value: Any) -> None:
    """One JSON text, indented on a terminal."""
    option = orjson.OPT_INDENT_2 if is_terminal() else 0
    click.echo(orjson.dumps(value, option=option).decode())


def printable(text: str) -> str:
    """The text, with what a terminal would obey written as ``\\x1b``."""
    return text.translate(_UNPRINTABLE)


def lines(text: str = "") -> None:
    click.echo(printable(text))


def error_lines(text: str) -> None:
    """To standard error: what is wrong, beside the answer."""
    click.echo(printable(text.encode("utf-8", "backslashreplace").decode()), err=True)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, footer: str | None = None
) -> None:
    """Rows below their names; ``footer`` (what was cut) goes to a terminal only."""
    if not is_terminal():
        click.echo("\t".join(columns))
        for row in rows:
            click.echo("\t".join(_plain(cell) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(
        box=None, header_style="dim", pad_edge=False, show_edge=False, padding=(0, 2, 0, 0)
    )
    for column in columns:
        drawn.add_column(column, overflow="fold", no_wrap=column in ("ID", "STATUS", "CREATED"))
    for row in rows:
        cells = [_plain(cell)[:_LONGEST_CELL] for cell in row]
        drawn.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    Console(highlight=False).print(drawn)
    if footer:
        click.echo(footer)


def pairs(parts: Mapping[str, Any]) -> None:
    """``name: value`` lines; what is None is left out."""
    shown = {name: value for name, value in parts.items() if value is not None}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        click.echo(f"{name:<{width}}  {_plain(value)}")


def when(text: str | datetime | None) -> str:
    """An instant for people: local on a terminal, UTC elsewhere."""
    if text is None:
        return ""
    instant = datetime.fromisoformat(text) if isinstance(text, str) else text
    if is_terminal():
        return f"{instant.astimezone():%Y-%m-%d %H:%M:%S}"
    return instant.isoformat(timespec="milliseconds")


def short_id(run_id: str) -> str:
    """On a terminal its first half, which is enough to name a run that nobody spawned."""
    return run_id[:18] if is_terminal() else run_id


def microseconds(us: int | None) -> str:
    """``180 us``, ``2.1 ms``, ``1.4 s``, ``3 m 5 s``."""
    return "" if us is None else span(us / 1_000_000)


def span(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1_000_000:.0f} us"
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} m" if hours else f"{minutes} m {rest} s"


def value(given: Any, *, longest: int = 2000) -> str:
    """A stored value as JSON, cut where it is long."""
    text = orjson.dumps(given).decode()
    return (
        text
        if len(text) <= longest
        else f"{text[:longest]}... ({len(text):,} characters; all: --json)"
    )


def first_line(text: str | None) -> str:
    parts = (text or "").strip().splitlines()
    return parts[0] if parts else ""


def _plain(cell: Any) -> str:
    text = "" if cell is None else str(cell)
    return printable(" ".join(text.split()) if any(c in text for c in "\t\r\n") else text)
