"""Names of files as text that can be stored, and back to the same bytes.

A file's name on Linux is bytes. Almost always they are UTF-8, and the text is the name. When they
are not, no JSON can carry them, so the path is written as `file:` with the bytes in percent form
(`file:inbox/caf%E9.csv`). The same form is used for the rare path that begins with `file:` itself,
so that each text means one path and each path has one text. Composed and decomposed spellings of a
name are different names: nothing is normalised.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

_MARK: Final = "file:"


def path_text(path: bytes) -> str:
    """The text of a path, from which `local_path` finds it again."""
    try:
        text = path.decode()
    except UnicodeDecodeError:
        return _MARK + quote_from_bytes(path)
    return _MARK + quote_from_bytes(path) if text.startswith(_MARK) else text


def local_path(text: str | os.PathLike[str]) -> Path:
    """The path to give to `open()`: of a text that `path_text` made, or of any other path."""
    name = os.fspath(text)
    if name.startswith(_MARK):
        name = os.fsdecode(unquote_to_bytes(name.removeprefix(_MARK)))
    return Path(name)


def shown(name: bytes) -> str:
    """A name for people: what is no UTF-8 is escaped, and not meant to be turned back."""
    return name.decode("utf-8", "backslashreplace")
