"""Which files a FILE trigger means: its pattern, what it ignores, its options. Pure decisions.

A pattern is an absolute path whose last parts may hold `*`, `?` and `[...]`; a part `**` stands for
any number of folders. What comes before the first such part is the base: the folder that is listed.
With `recursive` the last part may lie at any depth below the others.

Left out by name: temporary and lock files of programs that are still writing, hidden files, and the
trigger's own `done` and `failed` folders. `ignore` replaces the list of names; an entry with a
slash is compared with the path below the base, any other with the name of each file and folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from suimon.core import durations
from suimon.read.files import TEMPORARY

#: What is ignored where a trigger does not say otherwise.
IGNORE: Final = (*TEMPORARY, ".*", "*~", "*.download", "*.opdownload")
SETTLE_S: Final = 2.0
INTERVAL_S: Final = 2.0

_GLOB: Final = re.compile(r"[*?\[]")
_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.ASCII)


def is_address(path: str) -> bool:
    """`s3://bucket/in/*.csv`: an object store, not a path of this machine."""
    return _ADDRESS.match(path) is not None


@dataclass(frozen=True, slots=True)
class Rules:
    """One trigger's wishes. `base` is absolute, `parts` are what a path below it must match."""

    base: str
    parts: tuple[str, ...]
    ignore: tuple[str, ...] = IGNORE
    settle_s: float = SETTLE_S
    interval_s: float = INTERVAL_S
    mode: str = "auto"
    order: str = "mtime"
    by_content: bool = False
    take_empty: bool = False
    follow_links: bool = False
    done: str | None = None
    failed: str | None = None
    _lower: tuple[str, ...] = field(default=(), repr=False)

    @property
    def start(self) -> frozenset[int]:
        return _closed(self.parts, {0})

    def step(self, states: frozenset[int], name: str) -> frozenset[int]:
        """Where the pattern may stand after one more name."""
        found = set()
        for state in states:
            if state < len(self.parts):
                if self.parts[state] == "**":
                    found.add(state)
                elif fnmatchcase(name, self.parts[state]):
                    found.add(state + 1)
        return _closed(self.parts, found)

    def is_whole(self, states: frozenset[int]) -> bool:
        """A file here is meant."""
        return len(self.parts) in states

    def goes_on(self, states: frozenset[int]) -> bool:
        """A folder here may hold files that are meant."""
        return any(state < len(self.parts) for state in states)

    def ignored_by(self, below: str) -> str | None:
        """The entry of the ignore list that leaves this path out; `below` is relative to base."""
        name = below.rpartition("/")[2].lower()
        path = below.lower()
        for entry in self._lower:
            if fnmatchcase(path if "/" in entry else name, entry):
                return entry
        return None

    def below(self, path: str) -> str | None:
        """The path relative to the base, or None when it is not below it."""
        base = self.base.rstrip("/") + "/"
        return path[len(base) :] if path.startswith(base) and len(path) > len(base) else None

    def target(self, state: str) -> str | None:
        """The folder that a file goes to when its run has ended so."""
        chosen = self.done if state == "succeeded" else self.failed
        if chosen is None:
            return None
        return os.path.normpath(os.path.join(self.base, chosen))  # noqa: PTH118

    @property
    def own_folders(self) -> frozenset[str]:
        """Folders of files that are done with: never listed."""
        both = (self.target("succeeded"), self.target("failed"))
        return frozenset(folder for folder in both if folder is not None)


def _closed(parts: Sequence[str], states: set[int]) -> frozenset[int]:
    """`**` may also stand for no folder at all."""
    found = set(states)
    for state in sorted(states):
        while state < len(parts) and parts[state] == "**":
            state += 1  # noqa: PLW2901
            found.add(state)
    return frozenset(found)


def split(pattern: str) -> tuple[str, tuple[str, ...]]:
    """(base, parts): the folder before the first part that is a pattern, and the rest."""
    names = [name for name in pattern.split("/") if name]
    plain = next((i for i, name in enumerate(names) if _GLOB.search(name)), len(names))
    plain = min(plain, len(names) - 1) if not pattern.endswith("/") else plain
    base = os.path.normpath("/" + "/".join(names[: max(plain, 0)]))
    return base.replace("//", "/"), tuple(names[max(plain, 0) :]) or ("*",)


def of_spec(spec: Mapping[str, Any]) -> Rules:
    """The rules of a stored FILE trigger of this machine's file system."""
    base, parts = split(str(spec["path"]))
    return with_options(spec, base, parts)


def with_options(spec: Mapping[str, Any], base: str, parts: tuple[str, ...]) -> Rules:
    if spec.get("recursive") and "**" not in parts:
        parts = (*parts[:-1], "**", parts[-1])
    ignore = tuple(spec.get("ignore", IGNORE))
    return Rules(
        base=base,
        parts=parts,
        ignore=ignore,
        settle_s=durations.seconds(spec["settle"]) if "settle" in spec else SETTLE_S,
        interval_s=durations.seconds(spec["interval"]) if "interval" in spec else INTERVAL_S,
        mode=str(spec.get("mode", "auto")),
        order=str(spec.get("order", "mtime")),
        by_content=spec.get("dedupe") == "content",
        take_empty=spec.get("empty") == "take",
        follow_links=bool(spec.get("followLinks", False)),
        done=spec.get("done"),
        failed=spec.get("failed"),
        _lower=tuple(entry.lower() for entry in ignore),
    )


def folder_of(spec: Mapping[str, Any]) -> str | None:
    """The folder that runs of this FILE trigger may read; None for an object store."""
    path = spec.get("path")
    if not isinstance(path, str) or is_address(path):
        return None
    return split(path)[0]
