"""Where a path may lead that comes with a run's input.

An author's own path, written in the graph, may name any file. A path from an input is somebody
else's word: it must lead into the folder of the pipelines, into a folder that a FILE trigger
watches, or into one of the folders that the operator allows. Judged is where the path really leads,
through `..` and links, before anything is opened, and once more when the file is open, so that a
link put there in between gains nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from suimon.errors import FileRefused

_HINT: Final = (
    "a path in an input may lead into the folder of the pipelines, the folders of FILE triggers, "
    "and SUIMON_READ_FOLDERS"
)


class Fence:
    """`more` is asked, with the real path, only for what is outside of `root`."""

    def __init__(self, root: str | os.PathLike[str], more: Callable[[str], Sequence[str]]) -> None:
        self._root = root
        self._more = more

    def check(self, name: str, full: Path) -> None:
        """Raise FileRefused for a path that leads out."""
        self._judge(name, os.path.realpath(full))

    def check_open(self, name: str, fd: int) -> None:
        """The same for a file that is open, wherever its name leads by now."""
        try:
            real = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
        except OSError:
            return  # no /proc: what `check` said has to do
        self._judge(name, real.removesuffix(" (deleted)"))

    def _judge(self, name: str, real: str) -> None:
        if is_within(real, [os.path.realpath(self._root)]):
            return
        if not is_within(real, [os.path.realpath(folder) for folder in self._more(real)]):
            msg = f'"{name}" leads outside of the folders that runs may read'
            raise FileRefused(msg, path=name, hint=_HINT)


def is_within(real: str, folders: Sequence[str]) -> bool:
    """All are real paths."""
    return any(real == one or real.startswith(one.rstrip("/") + "/") for one in folders)
