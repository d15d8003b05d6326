"""What a FILE trigger may say: each field by itself, and the fields together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from suimon.graph_fields import Rule, duration, flag, text
from suimon.graph_fields import one_of as choice

#: Object stores that are listed; see suimon/triggers/stores.py.
STORES: Final = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "file", "memory")
MAX_IGNORED: Final = 100
_ADDRESS: Final = re.compile(r"([a-z][a-z0-9+.-]*):", re.ASCII)
_NOT_IN_STORES: Final = ("done", "failed", "followLinks")


class Notes(Protocol):
    def add(
        self, vertex: str | None, field: str | None, message: str, hint: str | None = None
    ) -> None: ...


def path(value: Any) -> str | None:
    """A pattern of paths or of URLs; only its last parts are patterns."""
    if problem := text(value):
        return problem
    if "\0" in value or len(value) > 4096:
        return "must be at most 4,096 characters without NUL"
    names = value.split("/")
    first = next((i for i, name in enumerate(names) if set(name) & set("*?[")), len(names))
    if ".." in names[first:]:
        return f'cannot go up with ".." behind a pattern, as in {value!r}'
    address = _ADDRESS.match(value)
    if address is None:
        return None
    if address[1] not in STORES or not value[address.end() :].startswith("//"):
        return f"must be a path or the URL of a store ({', '.join(STORES)}), not {value!r}"
    return None


def ignore(value: Any) -> str | None:
    """Names that are left out; the list replaces the one that holds else."""
    fine = isinstance(value, list) and len(value) <= MAX_IGNORED
    if fine and all(isinstance(each, str) and each for each in value):
        return None
    return f'must be a list of at most {MAX_IGNORED} patterns, like ["*.part"], not {value!r}'


FILE: Final[Mapping[str, Rule]] = {
    "path": path,
    "settle": duration,
    "dedupe": choice("version", "content"),
    "mode": choice("auto", "watch", "poll"),
    "interval": duration,
    "recursive": flag,
    "ignore": ignore,
    "order": choice("mtime", "name"),
    "empty": choice("skip", "take"),
    "followLinks": flag,
    "done": text,
    "failed": text,
}


def check(trigger: Mapping[str, Any], place: str, notes: Notes) -> None:
    """What its fields say together."""
    where = trigger.get("path")
    if not isinstance(where, str) or not _ADDRESS.match(where):
        return
    for key in _NOT_IN_STORES:
        if key in trigger:
            notes.add(None, f"{place}.{key}", f"{key} is for files of this machine, not for stores")
    if trigger.get("mode") == "watch":
        message = "an object store tells nobody what arrives; it is listed"
        notes.add(None, f"{place}.mode", message, 'leave it out, or write "poll"')
