"""The user's code below PATH: which modules there are, and importing them one by one.

PATH is a file or a folder. A module's name begins below PATH: `PATH/orders.py` is `orders`,
`PATH/eu/orders.py` is `eu.orders`; that is also how a graph names tasks. Left out are hidden and
private folders, tests, virtual environments, and what is no Python name. Both the reader of
definitions and the slots use this, so that what was deployed is what can be run.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from suimon.errors import LoadFailed, Mistake

#: More modules than this below one PATH means that PATH is not what was meant.
MAX_MODULES: Final = 2_000
_MAX_DEPTH: Final = 16

_SKIPPED_FOLDERS: Final = frozenset(
    {"__pycache__", "node_modules", "site-packages", "tests", "test", "venv", "build", "dist"}
)
_SKIPPED_FILES: Final = frozenset({"conftest.py", "setup.py", "noxfile.py"})


@dataclass(frozen=True, slots=True)
class Found:
    """A module below PATH: its name and its file."""

    name: str
    file: Path


def folder_of(path: str | os.PathLike[str]) -> Path:
    """The folder that module names and relative file names begin at."""
    full = Path(path).absolute()
    try:
        is_there, is_file, is_folder = full.exists(), full.is_file(), full.is_dir()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        msg = f'"{_shown(path)}" cannot be looked at: {error.strerror}'
        raise LoadFailed(msg, hint="name the file or folder with your pipelines") from None
    if not is_there:
        msg = f'there is no file or folder "{_shown(path)}"'
        raise LoadFailed(msg, hint="name the file or folder with your pipelines")
    if not is_file and not is_folder:
        msg = f'"{_shown(path)}" is neither a file nor a folder'
        hint = "a device or a pipe holds no pipelines; name a .py, .json or .yaml file, or a folder"
        raise LoadFailed(msg, hint=hint)
    return full.parent if is_file else full


def _shown(path: str | os.PathLike[str]) -> str:
    """For people: a name that is no UTF-8 is escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def files_below(path: str | os.PathLike[str], endings: tuple[str, ...]) -> Iterator[Path]:
    """The files to look at, sorted by name; a PATH that is a file is that one file."""
    full = Path(path).absolute()
    if full.is_file():
        if full.suffix in endings:
            yield full
        return
    yield from _walk(folder_of(full), endings, _MAX_DEPTH)


def _walk(folder: Path, endings: tuple[str, ...], depth: int) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        msg = f'"{_shown(folder)}" cannot be read: {error.strerror}'
        hint = "whoever reads definitions needs all folders below PATH"
        raise LoadFailed(msg, hint=hint) from None
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if depth and not entry.is_symlink() and not _is_foreign(entry):
                yield from _walk(entry, endings, depth - 1)
        elif entry.suffix in endings and entry.is_file():
            yield entry


def _is_foreign(folder: Path) -> bool:
    name = folder.name
    return name in _SKIPPED_FOLDERS or name.startswith("_") or (folder / "pyvenv.cfg").exists()


def find(path: str | os.PathLike[str]) -> list[Found]:
    """The modules below PATH. Raises LoadFailed when there are too many."""
    root = folder_of(path)
    alone = Path(path).absolute().is_file()
    found: list[Found] = []
    for file in files_below(path, (".py",)):
        parts = list(file.relative_to(root).with_suffix("").parts)
        if not alone and _is_no_module(file):
            continue
        if parts[-1] == "__init__":
            parts.pop()
        if not parts or not all(part.isidentifier() for part in parts):
            if alone:
                name, stem = _shown(file.name), _shown(file.stem)
                msg = f'"{name}" cannot be imported: "{stem}" is no Python name'
                raise LoadFailed(msg, hint="rename the file, for instance with _ instead of -")
            continue
        found.append(Found(".".join(parts), file))
        if len(found) > MAX_MODULES:
            msg = f'there are more than {MAX_MODULES:,} modules below "{_shown(path)}"'
            raise LoadFailed(msg, hint="name the folder that holds your pipelines only")
    return sorted(found, key=lambda module: module.name)


def _is_no_module(file: Path) -> bool:
    name = file.name
    is_test = name.startswith("test_") or name.endswith("_test.py")
    return is_test or name in _SKIPPED_FILES or name == "__main__.py"


def enter(path: str | os.PathLike[str]) -> None:
    """Make modules below PATH importable, and relative file names begin at its folder."""
    root = str(folder_of(path))
    if root not in sys.path:
        sys.path.insert(0, root)
    os.chdir(root)


def load(found: Found, root: Path) -> ModuleType | Mistake:
    """Import one module, or say what went wrong there, with file and line."""
    shown = str(found.file.relative_to(root))
    taken = _taken_by(found, root)
    if taken:
        hint = "rename the file: another module has this name already"
        return Mistake(None, None, f'"{found.name}" is {taken}', hint, file=shown)
    try:
        return importlib.import_module(found.name)
    except BaseException as error:  # noqa: BLE001 - user code; sys.exit at import included
        return _import_failed(error, shown, root)


def _taken_by(found: Found, root: Path) -> str | None:
    """A module of the standard library or an installed one that would be hidden, or hide this."""
    top = found.name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return "a module of Python's standard library"
    loaded = sys.modules.get(top)
    if loaded is None:
        return None
    places = [getattr(loaded, "__file__", None), *getattr(loaded, "__path__", ())]
    mine = any(place and Path(place).absolute().is_relative_to(root) for place in places)
    return None if mine else "a module that is imported already"


def _import_failed(error: BaseException, shown: str, root: Path) -> Mistake:
    """The line of the user's own code that is nearest to the error."""
    line: int | None = None
    if isinstance(error, SyntaxError) and error.filename:
        line = error.lineno
        place = Path(error.filename)
        shown = str(place.relative_to(root)) if place.is_relative_to(root) else shown
    else:
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            place = Path(frame.filename)
            if place.is_relative_to(root):
                shown, line = str(place.relative_to(root)), frame.lineno
                break
    if isinstance(error, SystemExit):
        message = f"importing it calls sys.exit({error.code})"
        hint: str | None = 'put that below `if __name__ == "__main__":`'
    else:
        text = str(error).strip() or "no message"
        message = f"importing it raises {type(error).__name__}: {text[:1000]}"
        missing = isinstance(error, ModuleNotFoundError)
        hint = "install it where Suimon runs" if missing else None
    return Mistake(None, None, message, hint, file=shown, line=line)
