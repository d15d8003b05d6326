"""The user's code in the slot: importing it, finding functions, and what to know of them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from suimon import modules
from suimon.binding import bind
from suimon.errors import LoadFailed, Mistake
from suimon.read.fence import Fence
from suimon.read.source import open_source as open_rows
from suimon.task import is_async, is_generator, options_of

__all__ = ["bind", "open_source", "resolve", "survey", "wants_context"]


def survey(root: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Import all below `root` and go there; what tasks it defines, and what could not be imported.

    A module that fails does not hide the others: its tasks are missing, and the reason is told.
    """
    tasks: dict[str, Any] = {}
    problems: list[dict[str, str]] = []
    try:
        modules.enter(root)
        found = modules.find(root)
    except LoadFailed as error:
        return tasks, [{"module": "", "message": error.render()}]
    for each in found:
        loaded = modules.load(each, modules.folder_of(root))
        if isinstance(loaded, Mistake):
            problems.append({"module": each.name, "message": loaded.render()})
            continue
        for name, value in list(vars(loaded).items()):
            if options_of(value) is not None and value.__module__ == each.name:
                tasks[f"{each.name}:{name}"] = {
                    "generator": is_generator(value),
                    "async": is_async(value),
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


def wants_context(function: Callable[..., Any]) -> bool:
    return "ctx" in inspect.signature(function).parameters


def open_source(
    path: str, how: Mapping[str, Any], ask: Callable[[dict[str, Any]], Any]
) -> Iterator[Any]:
    """The rows of a file, as a stream. `how` holds format and options, the version that is meant,
    and whether the path is the author's own; the worker is asked where others may lead.
    """

    def folders(real: str) -> Sequence[str]:
        found: list[str] = ask({"op": "folders", "path": real})
        return found

    version = how.get("version")
    return open_rows(
        path,
        how.get("format"),
        how.get("options") or {},
        expected={"version": version} if version else None,
        within=None if how.get("trusted") else Fence(".", folders),
    )
