"""`@task`: marks a function as one that vertices may run. The function stays what it was.

The decorator only hangs the options on the function; whoever calls it calls plain Python. Options
are the defaults of every vertex that runs the task, and are judged there, together with all other
mistakes of the pipeline.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, TypeVar, overload

from suimon.destination import Destination
from suimon.destination import name_of as name_of_destination
from suimon.graph_set import Parameter, TaskInfo

F = TypeVar("F", bound=Callable[..., Any])

_MARK: Final = "__suimon_task__"


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What `@task(...)` was given, as a vertex's config writes it."""

    config: dict[str, Any] = field(default_factory=dict)
    destination: Destination | None = None  # when it was given as the declaration itself


@overload
def task(function: F, /) -> F: ...
@overload
def task(
    *,
    retries: int = ...,
    backoff: str | None = ...,
    timeout: str | None = ...,
    deadline: str | None = ...,
    pool: str | None = ...,
    max_interruptions: int | None = ...,
    secrets: Sequence[str] = ...,
    destination: Destination | str | None = ...,
) -> Callable[[F], F]: ...


def task(
    function: Any = None,
    /,
    *,
    retries: int = 0,
    backoff: str | None = None,
    timeout: str | None = None,
    deadline: str | None = None,
    pool: str | None = None,
    max_interruptions: int | None = None,
    secrets: Sequence[str] = (),
    destination: Destination | str | None = None,
) -> Any:
    """Mark a function as a task: `@task`, `@task()` or `@task(retries=5, timeout="30s")`.

    `retries=5` is at most six tries, `backoff` the wait between them ("2s..5m"), `timeout` is for
    one try and `deadline` for all of them together. A parameter named `ctx` gets the context; the
    others are inputs, validated from their annotations. `secrets=["crm_token"]` names what
    `ctx.secret("crm_token")` may read: stored ones, "env:NAME" or "file:/path". With a
    `destination` the task takes its turn there before it begins, and keeps its place to its end.
    """
    given = {
        "retries": retries,
        "backoff": backoff,
        "timeout": timeout,
        "deadline": deadline,
        "pool": pool,
        "maxInterruptions": max_interruptions,
        "destination": name_of_destination(destination),
        "secrets": list(secrets) if isinstance(secrets, list | tuple) else secrets,
    }
    config = {name: value for name, value in given.items() if value is not None}
    if retries == 0 and type(retries) is int:
        del config["retries"]
    if config["secrets"] == []:
        del config["secrets"]

    def mark(target: F) -> F:
        if not inspect.isfunction(target):
            msg = f"@task goes on a function, not on {target!r}"
            raise TypeError(msg)
        declared = destination if isinstance(destination, Destination) else None
        setattr(target, _MARK, TaskOptions(config, declared))
        return target

    return mark if function is None else mark(function)


def options_of(function: object) -> TaskOptions | None:
    """The options of a task, or None for anything that is no task."""
    found = getattr(function, _MARK, None) if inspect.isfunction(function) else None
    return found if isinstance(found, TaskOptions) else None


def name_of(function: Callable[..., Any]) -> str:
    """`module:function`; a file run as a script counts under its own name."""
    module = function.__module__
    if module == "__main__":
        main_file = getattr(sys.modules.get("__main__"), "__file__", None)
        module = PurePath(main_file).stem if main_file else module
    return f"{module}:{function.__qualname__}"


def is_generator(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def describe(function: Callable[..., Any]) -> TaskInfo:
    """What the signature says, for checks that must not see the code."""
    params: list[Parameter] = []
    rest = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "ctx" or parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            rest = True
        else:
            required = parameter.default is parameter.empty
            params.append(Parameter(parameter.name, required))
    return TaskInfo(is_generator(function), is_async(function), tuple(params), rest)
