"""Named SQL statements from the `.sql` file beside a module.

Each transition family keeps its SQL in a file of its own name (`claim.py` and `claim.sql`), as
blocks that begin with a line `-- name: some_name`. A module loads its file once, at import:

    SQL = statements(__package__, "claim.sql")
    conn.execute(SQL.claim_rows, {...})

What is sent to the server is the statement alone: lines that hold only a comment stay in the file,
for its readers, so that `pg_stat_statements` and the log show short texts. A mistake in a file (an
empty statement, a name twice, text before the first name) is an error at import, not at first use.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import LiteralString

_NAME = re.compile(r"^--\s*name:\s*(?P<name>\S+)\s*$")
_IDENTIFIER = re.compile(r"^[a-z][a-z0-9_]*$")


class Statements(Mapping[str, LiteralString]):
    """The statements of one file, by attribute (`SQL.claim`) or by key (`SQL["claim"]`)."""

    __slots__ = ("_source", "_texts")

    def __init__(self, source: str, texts: Mapping[str, LiteralString]) -> None:
        self._source = source
        self._texts = dict(texts)

    def __getitem__(self, name: str) -> LiteralString:
        try:
            return self._texts[name]
        except KeyError:
            raise KeyError(self._unknown(name)) from None

    def __getattr__(self, name: str) -> LiteralString:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._texts[name]
        except KeyError:
            raise AttributeError(self._unknown(name)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return f"Statements({self._source}: {', '.join(self._texts)})"

    def _unknown(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._texts, n=1)
        hint = f'; did you mean "{close[0]}"?' if close else f"; it has {', '.join(self._texts)}"
        return f'no statement "{name}" in {self._source}{hint}'


def statements(package: str | None, file: str) -> Statements:
    """Load every named block of `file`, which lies in `package`."""
    if not package:
        msg = f"{file}: statements() needs the package that holds the file"
        raise ValueError(msg)
    source = f"{package}/{file}"
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    return parse(source, text)


def parse(source: str, text: str) -> Statements:
    """Split `text` into its named blocks; `source` names the file in errors."""
    blocks: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if heading := _NAME.match(line):
            name = heading["name"]
            if not _IDENTIFIER.match(name):
                msg = f'{source}:{number}: "{name}" is no statement name (a-z, 0-9, _)'
                raise ValueError(msg)
            if name in blocks:
                msg = f'{source}:{number}: a second statement is named "{name}"'
                raise ValueError(msg)
            lines = blocks[name] = []
        elif line.strip() == "" or line.lstrip().startswith("--"):
            continue
        elif lines is None:
            msg = f'{source}:{number}: text before the first "-- name:" line'
            raise ValueError(msg)
        else:
            lines.append(line.rstrip())
    return Statements(
        source, {name: _statement(source, name, body) for name, body in blocks.items()}
    )


def _statement(source: str, name: str, lines: list[str]) -> LiteralString:
    text = "\n".join(lines).strip().removesuffix(";").rstrip()
    if not text:
        msg = f'{source}: statement "{name}" is empty'
        raise ValueError(msg)
    # It comes from a file of the package, so it is as fixed as a literal in the source.
    return text
