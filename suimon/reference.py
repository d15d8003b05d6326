"""What stands for a value that does not exist yet, while a pipeline is being built.

`rows.total` or `rows["odd key"]` makes a longer reference. Anything that would need the value now
(a condition, a loop, an f-string, a comparison) raises at once: a silent answer would be stored in
the graph for good.
"""

from __future__ import annotations

from typing import NoReturn

from suimon.core.refs import Part


class Reference:
    """A value of a later run: `p.input.path`, or the result of a vertex."""

    __slots__ = ("_suimon_owner", "_suimon_path")

    _suimon_owner: object
    _suimon_path: tuple[Part, ...]

    def __init__(self, owner: object, path: tuple[Part, ...]) -> None:
        object.__setattr__(self, "_suimon_owner", owner)
        object.__setattr__(self, "_suimon_path", path)

    def __getattr__(self, name: str) -> Reference:
        if name.startswith(("__", "_suimon_")):  # what copy, pickle and inspect ask for
            raise AttributeError(name)
        return Reference(self._suimon_owner, (*self._suimon_path, name))

    def __getitem__(self, key: str | int) -> Reference:
        fits = isinstance(key, str) or (type(key) is int and key >= 0)
        if not fits:
            msg = f"a reference takes text or a whole number from 0 in [...], not {key!r}"
            raise TypeError(msg)
        return Reference(self._suimon_owner, (*self._suimon_path, key))

    def __repr__(self) -> str:
        return f"<reference {'.'.join(str(part) for part in self._suimon_path)}>"

    def __copy__(self) -> Reference:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Reference:
        return self

    def _refuse(self, use: str) -> NoReturn:
        shown = ".".join(str(part) for part in self._suimon_path)
        msg = (
            f'"{shown}" is a reference: it has no value while the pipeline is built, so it cannot '
            f"be {use}; give it to a task and do that there"
        )
        raise TypeError(msg)

    def __bool__(self) -> NoReturn:  # noqa: PLE0304 - raising is the purpose of all of these
        self._refuse("used as a condition")

    def __iter__(self) -> NoReturn:
        self._refuse("looped over")

    def __len__(self) -> NoReturn:  # noqa: PLE0303
        self._refuse("counted")

    def __contains__(self, item: object) -> NoReturn:
        self._refuse("searched")

    def __format__(self, spec: str) -> NoReturn:
        self._refuse("put into text")

    def __str__(self) -> NoReturn:  # noqa: PLE0307
        self._refuse("turned into text")

    def __int__(self) -> NoReturn:
        self._refuse("turned into a number")

    def __float__(self) -> NoReturn:
        self._refuse("turned into a number")

    def __call__(self, *_args: object, **_named: object) -> NoReturn:
        self._refuse("called")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        self._refuse("changed")

    def __eq__(self, other: object) -> NoReturn:
        self._refuse("compared")

    def __lt__(self, other: object) -> NoReturn:
        self._refuse("compared")

    __le__ = __gt__ = __ge__ = __ne__ = __lt__
    __hash__ = object.__hash__


def path_of(reference: Reference) -> tuple[Part, ...]:
    """The parts of a reference. A function, so that every attribute name stays free for data."""
    path: tuple[Part, ...] = object.__getattribute__(reference, "_suimon_path")
    return path


def owner_of(reference: Reference) -> object:
    """The pipeline that a reference belongs to."""
    owner: object = object.__getattribute__(reference, "_suimon_owner")
    return owner
