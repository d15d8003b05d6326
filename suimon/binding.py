"""From JSON to a call: which input goes to which parameter, validated from its annotation.

`bind(function)` is made once per task and used for every run. What can be decided once is decided
once: names, defaults, validators. A parameter without an annotation takes its value as it is, and a
task without any annotation costs less than a microsecond a call. `ctx` is nobody's input: whoever
calls the function adds it.

A value that does not fit raises InputRefused with the path of the field. For the item of a fan-out
the path begins at the item (`$.quantity`), otherwise at the inputs (`$.order.quantity`).
"""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from suimon.context import MergeResult, Rows
from suimon.core.jsonsafe import path_text
from suimon.core.suggest import one_of
from suimon.errors import InputRefused

Call = tuple[tuple[Any, ...], dict[str, Any]]
Validate = Callable[[Any], Any]

CONTEXT: Final = "ctx"

# Live objects that a slot puts in the place of JSON; an annotation is documentation for them.
_LIVE: Final = (MergeResult, Rows)
_SHOWN_ERRORS: Final = 20
_SHOWN_CHARS: Final = 80


def bind(function: Callable[..., Any]) -> Bound:
    """The binding of one task. Raises TypeError when an annotation cannot be understood."""
    return Bound(function)


class Bound:
    """Names, defaults and validators of one function."""

    __slots__ = ("_by_position", "_items", "_names", "_required", "_rest", "_validators", "name")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = getattr(function, "__qualname__", repr(function))
        parameters = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name != CONTEXT and parameter.kind is not parameter.VAR_POSITIONAL
        ]
        rest = [p for p in parameters if p.kind is p.VAR_KEYWORD]
        named = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
        self._names = tuple(p.name for p in named)
        self._required = tuple(p.name for p in named if p.default is p.empty)
        self._by_position = tuple(p.name for p in named if p.kind is p.POSITIONAL_ONLY)
        self._rest = rest[0].name if rest else None
        self._validators = _validators(function, [p.name for p in parameters])
        # which parameter takes the item, for each set of shared names seen (one per vertex)
        self._items: dict[tuple[str, ...], str] = {}

    def call_args(self, inputs: Mapping[str, Any], ignorable: Collection[str] = ()) -> Call:
        """The call for `{name: value}`; of those that are `ignorable`, the ones it names."""
        if ignorable and self._rest is None:
            names = self._names
            inputs = {n: v for n, v in inputs.items() if n in names or n not in ignorable}
        if not self._names and not inputs:
            return (), {}
        self._refuse_unknown(inputs)
        kwargs: dict[str, Any] = {}
        for name, value in inputs.items():
            validate = self._validator(name)
            kwargs[name] = value if validate is None else self._check(name, validate, value, name)
        return self._finish(kwargs)

    def call_item(self, item: Any, shared: Mapping[str, Any]) -> Call:
        """The call for one item: it is the first parameter that `shared` does not name."""
        name = self._items.get(tuple(shared)) or self._item_parameter(shared)
        validate = self._validators.get(name)
        value = item if validate is None else self._check(name, validate, item, None)
        if not shared and self._required in ((), (name,)) and not self._by_position:
            return (), {name: value}
        kwargs: dict[str, Any] = {name: value}
        for other, constant in shared.items():
            # one fan-out's constants serve many calls; no call may see what another did to them
            own = copy.deepcopy(constant) if isinstance(constant, dict | list) else constant
            check = self._validator(other)
            kwargs[other] = own if check is None else self._check(other, check, own, other)
        return self._finish(kwargs)

    def _validator(self, name: str) -> Validate | None:
        known = self._validators.get(name)
        if known is None and self._rest is not None and name not in self._names:
            return self._validators.get(self._rest)
        return known

    def _item_parameter(self, shared: Mapping[str, Any]) -> str:
        """Found once per set of shared names, and remembered: a task serves few vertices."""
        self._refuse_unknown(shared)
        name = next((name for name in self._names if name not in shared), None)
        if name is None:
            msg = f'"{self.name}" has no parameter left for the item'
            raise InputRefused(msg, path="$", hint="the item is the first one that is not shared")
        self._items[tuple(shared)] = name
        return name

    def _refuse_unknown(self, inputs: Mapping[str, Any]) -> None:
        if self._rest is not None:
            return
        for name in inputs:
            if name not in self._names:
                msg = f'"{self.name}" has no parameter "{name}"'
                raise InputRefused(msg, path=path_text([name]), hint=one_of(name, self._names))

    def _finish(self, kwargs: dict[str, Any]) -> Call:
        for name in self._required:
            if name not in kwargs:
                msg = f'"{self.name}" needs "{name}", which was not given'
                raise InputRefused(msg, path=path_text([name]))
        args: list[Any] = []
        for name in self._by_position:
            if name not in kwargs:
                break
            args.append(kwargs.pop(name))
        return tuple(args), kwargs

    def _check(self, name: str, validate: Validate, value: Any, root: str | None) -> Any:
        if isinstance(value, _LIVE):
            return value
        try:
            return validate(value)
        except ValueError as error:
            raise _refused(self.name, name, root, error) from None


def _refused(task: str, name: str, root: str | None, error: ValueError) -> InputRefused:
    """One line per field that does not fit; the first one is the error's path."""
    problems = getattr(error, "errors", None)
    if problems is None:
        return InputRefused(f'"{task}" refuses "{name}": {error}', path=path_text([name]))
    prefix: list[str | int] = [] if root is None else [root]
    lines: list[str] = []
    first = path_text(prefix)
    for index, problem in enumerate(problems(include_url=False, include_context=False)):
        path = path_text([*prefix, *problem["loc"]])
        if index == 0:
            first = path
        found = repr(problem.get("input"))
        shown = found if len(found) <= _SHOWN_CHARS else found[:_SHOWN_CHARS] + "..."
        lines.append(f"{path}: {problem['msg']}, got {shown}")
    what = f'"{task}" refuses its item' if root is None else f'"{task}" refuses its inputs'
    more = lines[1:_SHOWN_ERRORS]
    detail = "; ".join(more) + ("; ..." if len(lines) > _SHOWN_ERRORS else "")
    return InputRefused(f"{what}: {lines[0]}", path=first, detail=detail or None)


def _validators(function: Callable[..., Any], names: list[str]) -> dict[str, Validate]:
    """A validator for each annotated parameter; annotations may be text or forward references."""
    plain = inspect.unwrap(function)
    if not getattr(plain, "__annotations__", None):
        return {}
    try:
        hints = typing.get_type_hints(plain, include_extras=True)
    except Exception as error:
        name = getattr(plain, "__qualname__", repr(plain))
        msg = (
            f'the annotations of "{name}" cannot be understood: {type(error).__name__}: {error}; '
            "their types must be importable where the task is defined, not only for type checkers"
        )
        raise TypeError(msg) from error
    wanted = {name: hints[name] for name in names if name in hints}
    return {
        name: _validator_of(plain, name, hint)
        for name, hint in wanted.items()
        if hint not in (Any, object) and hint not in _LIVE
    }


def _validator_of(function: Callable[..., Any], name: str, hint: Any) -> Validate:
    from pydantic import ConfigDict, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

    try:
        try:
            return TypeAdapter(hint).validate_python
        except PydanticSchemaGenerationError:
            loose = ConfigDict(arbitrary_types_allowed=True)
            return TypeAdapter(hint, config=loose).validate_python
    except (PydanticUserError, PydanticSchemaGenerationError) as error:
        called = getattr(function, "__qualname__", repr(function))
        msg = f'the annotation of "{name}" in "{called}" cannot be validated: {error.message}'
        raise TypeError(msg) from error
