"""The user's code in the slot: finding functions, and what of them the engine must know."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from suimon import task

MODULES = 10_000
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})


def enter(root: str) -> list[str]:
    """Make the code below `root` importable, go there, and name its modules."""
    path = Path(root).resolve()
    folder = path.parent if path.is_file() else path
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    if path.is_file():
        return [path.stem]
    return sorted(_modules(folder, ""))[:MODULES]


def survey(modules: list[str]) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Import all; what tasks they define, and which could not be imported, with the reason."""
    tasks: dict[str, Any] = {}
    problems: list[dict[str, str]] = []
    for module in modules:
        try:
            loaded = importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001 - user code; sys.exit at import included
            problems.append({"module": module, "message": f"{type(error).__name__}: {error}"})
            continue
        for name, value in list(vars(loaded).items()):
            if task.options_of(value) is not None and value.__module__ == module:
                tasks[f"{module}:{name}"] = {
                    "generator": task.is_generator(value),
                    "async": task.is_async(value),
                }
    return tasks, problems


def resolve(name: str) -> Callable[..., Any]:
    """The object behind "module:function"."""
    module, _, way = name.partition(":")
    value: Any = importlib.import_module(module)
    for part in way.split("."):
        value = getattr(value, part, None)
        if value is None:
            msg = f'the module "{module}" has no "{way}"'
            raise AttributeError(msg)
    if not callable(value):
        msg = f'"{name}" is a {type(value).__name__}, not a function'
        raise TypeError(msg)
    function: Callable[..., Any] = value
    return function


def plain_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The user's own function, without the wrapper that @task may have put around it."""
    return inspect.unwrap(function)


def wants_context(function: Callable[..., Any]) -> bool:
    return "ctx" in inspect.signature(function).parameters


def bind(function: Callable[..., Any]) -> Any:
    """The binding: `.call_item(item, shared)` and `.call_args(inputs)`."""
    try:
        from suimon.binding import bind as make
    except ModuleNotFoundError:
        return _PlainBinding(function)
    return make(function)


def open_source(path: str, format_name: str | None, options: dict[str, Any]) -> Iterator[Any]:
    """The rows of a file, as a stream."""
    from suimon.read.source import open_source as opened

    return iter(opened(path, format_name, options))


def _modules(folder: Path, prefix: str) -> Iterator[str]:
    """Modules and packages below a folder; hidden, private and foreign folders are left out."""
    for entry in folder.iterdir():
        name = entry.stem if entry.is_file() else entry.name
        if not name.isidentifier() or name.startswith("_") or name in _SKIPPED:
            continue
        if entry.is_file() and entry.suffix == ".py":
            yield prefix + name
        elif entry.is_dir() and (entry / "__init__.py").exists():
            yield prefix + name
            yield from _modules(entry, f"{prefix}{name}.")


class _PlainBinding:
    """Until `suimon.binding` is here."""

    def __init__(self, function: Callable[..., Any]) -> None:
        names = inspect.signature(function).parameters
        self.names = [n for n in names if n != "ctx"]

    def call_item(self, item: Any, shared: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        first = next(n for n in self.names if n not in shared)
        return (), {first: item, **shared}

    def call_args(self, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return (), dict(inputs)
