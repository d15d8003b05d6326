"""Code blocks of Markdown documents, and how a test treats each.

    ```python        a first line `# name.py` makes it a file of the document's project;
                     any other block is run as a program in the project's folder
    ```yaml          a first line `# name.yaml` makes it a file of the project, too
    ```sh            is run by bash in that folder, with the document's database
    <!-- not run: WHY -->       on the line above: not run; its commands must still exist
    <!-- with a worker -->      from here on a worker serves the project

Blocks of other languages are for reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^```(?P<language>[a-z]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = {
    language: re.compile(rf"# (?P<name>[\w/]+\.{ending})\n")
    for language, ending in (("python", "py"), ("yaml", "yaml"))
}
_NOT_RUN = re.compile(r"<!-- not run: (?P<why>[^\n]+?) -->\n$")
_WORKER = "<!-- with a worker -->\n"


@dataclass(frozen=True, slots=True)
class Block:
    """One block. `why` is set if it is not run, `file` if it is a file of the project."""

    document: str
    line: int
    language: str
    text: str
    why: str | None
    file: str | None
    worker: bool

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def documents() -> list[Path]:
    """README.md, CONTRIBUTING.md and every document, in order."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(path: Path) -> list[Block]:
    return list(_blocks(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))


def _blocks(name: str, text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        above = text[: match.start()]
        marked = _NOT_RUN.search(above)
        form = _FILE.get(match["language"])
        file = form.match(match["text"]) if form is not None else None
        yield Block(
            name,
            above.count("\n") + 1,
            match["language"],
            match["text"],
            marked["why"] if marked else None,
            file["name"] if file else None,
            _WORKER in above,
        )
