"""Every error Suimon raises on purpose, and how each one speaks.

An error has three parts, as PostgreSQL's have: the fact in one line with the identifier in quotes,
the detail (what was found), and the hint (what to do). Each class has a stable `code` that scripts
and documents may rely on, and the `exit_code` the command line leaves with. Names may be caught;
texts may change.

    SuimonError
    ├── DatabaseUnavailable     SUI-1001   no connection, or the connection broke and did not return
    ├── SchemaMismatch          SUI-1002   the database's schema is not the one of this version
    ├── DefinitionError         SUI-2001   a pipeline is wrong; holds every `Mistake` at once
    ├── LoadFailed              SUI-2002   the code below PATH could not be read
    ├── RequestRefused                     somebody asked for something that cannot be done
    │   ├── UnknownPipeline     SUI-3001
    │   ├── RunNotFound         SUI-3002
    │   ├── InputRefused        SUI-3003   names the path of the field
    │   ├── Conflict            SUI-3004   the state has changed, or the thing exists already
    │   ├── QueueFull           SUI-3005   nothing was stored; ask again later
    │   ├── NotThere            SUI-3006   a trigger, a pool or another thing that nobody knows
    │   └── AddressRefused      SUI-3007   an address that the engine does not connect to
    ├── DataRefused                        a value or a file that cannot be carried unharmed
    │   ├── InvalidJson         SUI-4001   NaN, NUL, lone surrogate, ... with its JSON path
    │   ├── PayloadTooLarge     SUI-4002
    │   ├── FileRefused         SUI-4003   names file, row and byte
    │   └── FileChanged         SUI-4004   the file is not the one the run was started for
    ├── FanoutError                        a fan-out that cannot keep its promise
    │   ├── ItemsChanged        SUI-5001   a re-read list differs from the frozen manifest
    │   ├── DuplicateKeys       SUI-5002
    │   └── MergeFailed         SUI-5003   more children failed than the merge tolerates
    ├── SecretError                        a secret that cannot be had; no message holds a value
    │   ├── SecretMissing       SUI-8001   nothing of that name is stored, set or readable
    │   ├── SecretKeyMissing    SUI-8002   it is stored, and this process has no key
    │   ├── SecretKeyWrong      SUI-8003   not the key, or not what was stored under this name
    │   ├── SecretNotGranted    SUI-8004   a task asked for what it was not granted
    │   └── SecretTooShort      SUI-8005   it could not be taken out of a log
    ├── Fatal                   SUI-6001   raised by tasks: end this run, do not retry
    │   └── CallRefused         SUI-6004   an HTTP vertex got an answer that another try cannot mend
    ├── CallFailed              SUI-6003   an HTTP vertex got no good answer; it is tried again
    └── Cancelled               SUI-6002   raised inside a task whose run is being cancelled
"""

# ruff: noqa: N818  (the names say what happened; "Error" at the end of each would add nothing)

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

# The command line's exit codes; the same table holds for every command.
EXIT_NEGATIVE = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_FORBIDDEN = 4
EXIT_CONFLICT = 5
EXIT_UNREACHABLE = 6
EXIT_GAVE_UP = 7
EXIT_PARTLY = 8
EXIT_CANCELLED = 9
EXIT_LIMITED = 10
EXIT_VERSION = 78
EXIT_INTERRUPTED = 130


class SuimonError(Exception):
    """The root: catch this to catch all that Suimon raises on purpose."""

    code: ClassVar[str] = "SUI-0000"
    exit_code: ClassVar[int] = EXIT_NEGATIVE
    #: Attributes that a program is told besides message, detail and hint.
    fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, message: str, *, detail: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        return self.message

    def render(self) -> str:
        """The whole text for a person: fact, detail, hint, each on its own lines."""
        lines = [f"{self.message} [{self.code}]"]
        if self.detail:
            lines.append(f"  detail: {self.detail}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The same for a program; parts that are absent are left out."""
        parts = {
            "type": type(self).__name__,
            "code": self.code,
            "message": self.message,
            "detail": self.detail,
            "hint": self.hint,
            **{name: getattr(self, name) for name in self.fields},
        }
        return {name: value for name, value in parts.items() if value is not None}


# --------------------------------------------------------------------------- the database


class DatabaseUnavailable(SuimonError):
    """No connection to PostgreSQL; whatever was asked may be asked again."""

    code = "SUI-1001"
    exit_code = EXIT_UNREACHABLE


class SchemaMismatch(SuimonError):
    """Schema and package version differ. The exit code is the one that systemd does not restart."""

    code = "SUI-1002"
    exit_code = EXIT_VERSION


# --------------------------------------------------------------------------- definitions


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing wrong with one pipeline: where it stands, what it is, what to do."""

    vertex: str | None
    field: str | None
    message: str
    hint: str | None = None
    pipeline: str | None = None
    file: str | None = None
    line: int | None = None

    def render(self) -> str:
        """`orders.retries: must be a whole number (hint)`, with the file in front if known."""
        place = ".".join(part for part in (self.vertex, self.field) if part)
        if self.pipeline:
            place = f"{self.pipeline}: {place}" if place else self.pipeline
        if self.file:
            position = f"{self.file}:{self.line}" if self.line else self.file
            place = f"{position}: {place}" if place else position
        text = f"{place}: {self.message}" if place else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def to_json(self) -> dict[str, Any]:
        parts = {
            "file": self.file,
            "line": self.line,
            "pipeline": self.pipeline,
            "vertex": self.vertex,
            "field": self.field,
            "message": self.message,
            "hint": self.hint,
        }
        return {name: value for name, value in parts.items() if value is not None}

    @staticmethod
    def from_json(parts: dict[str, Any]) -> Mistake:
        return Mistake(**{"vertex": None, "field": None, **parts})


class DefinitionError(SuimonError):
    """One or more pipelines are wrong. All mistakes are reported together."""

    code = "SUI-2001"

    def __init__(
        self, mistakes: Iterable[Mistake], *, detail: str | None = None, hint: str | None = None
    ) -> None:
        self.mistakes: tuple[Mistake, ...] = tuple(mistakes)
        count = len(self.mistakes)
        first = self.mistakes[0].render() if count else "the definition is wrong"
        message = first if count <= 1 else f"{count} mistakes; the first: {first}"
        super().__init__(message, detail=detail, hint=hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.mistakes,)

    def render(self) -> str:
        if len(self.mistakes) <= 1:
            return super().render()
        lines = [f"{len(self.mistakes)} mistakes in the definitions [{self.code}]"]
        lines += [f"  - {mistake.render()}" for mistake in self.mistakes]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        mistakes = [mistake.to_json() for mistake in self.mistakes]
        return {**super().to_json(), "mistakes": mistakes}


class LoadFailed(SuimonError):
    """The code below PATH could not be read: an import raised, or the reader took too long."""

    code = "SUI-2002"


# --------------------------------------------------------------------------- requests


class RequestRefused(SuimonError):
    """Somebody asked for something that cannot be done; nothing was stored."""

    code = "SUI-3000"


class UnknownPipeline(RequestRefused):
    """No pipeline of this name has been deployed."""

    code = "SUI-3001"
    exit_code = EXIT_NOT_FOUND


class RunNotFound(RequestRefused):
    """No run with this id, or it was pruned."""

    code = "SUI-3002"
    exit_code = EXIT_NOT_FOUND


class InputRefused(RequestRefused):
    """The input does not fit what the pipeline or the task declares; `path` names the field."""

    code = "SUI-3003"
    exit_code = EXIT_USAGE
    fields = ("path",)

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.path = path


class Conflict(RequestRefused):
    """The state is not the one the request needs; `run_id` names the run that is in the way."""

    code = "SUI-3004"
    exit_code = EXIT_CONFLICT
    fields = ("run_id",)

    def __init__(
        self,
        message: str,
        *,
        run_id: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.run_id = run_id


class QueueFull(RequestRefused):
    """The pipeline has as many waiting runs as it may have. Nothing was stored."""

    code = "SUI-3005"
    exit_code = EXIT_LIMITED


class NotThere(RequestRefused):
    """A trigger, a pool or another thing by a name that nothing has."""

    code = "SUI-3006"
    exit_code = EXIT_NOT_FOUND


class AddressRefused(RequestRefused):
    """An address inside, or one with no plain meaning; nothing was connected to."""

    code = "SUI-3007"
    exit_code = EXIT_FORBIDDEN


# --------------------------------------------------------------------------- data


class DataRefused(SuimonError):
    """A value or file that cannot be carried without harm; it is never repaired silently."""

    code = "SUI-4000"
    exit_code = EXIT_USAGE


class InvalidJson(DataRefused):
    """A value PostgreSQL's jsonb or the JSON standard refuses; `path` is like `$.a[3].b`."""

    code = "SUI-4001"
    fields = ("path",)

    def __init__(
        self,
        message: str,
        *,
        path: str = "$",
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.path = path


class PayloadTooLarge(DataRefused):
    """An input, a result or a signal above the limit; both sizes are in bytes of JSON."""

    code = "SUI-4002"
    fields = ("size", "limit")

    def __init__(
        self,
        message: str,
        *,
        size: int = 0,
        limit: int = 0,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.size = size
        self.limit = limit


class FileRefused(DataRefused):
    """A file that cannot be read as what it claims to be; row and byte say where."""

    code = "SUI-4003"
    fields = ("path", "row", "byte")

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        row: int | None = None,
        byte: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.path = path
        self.row = row
        self.byte = byte


class FileChanged(DataRefused):
    """Size, modification time or inode differ from those the run was started with."""

    code = "SUI-4004"


# --------------------------------------------------------------------------- fan-outs


class FanoutError(SuimonError):
    """A fan-out that cannot keep its promise of one child per item."""

    code = "SUI-5000"


class ItemsChanged(FanoutError):
    """The source gave other items than the first time; `position` is the first that differs."""

    code = "SUI-5001"
    fields = ("position",)

    def __init__(
        self,
        message: str,
        *,
        position: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.position = position


class DuplicateKeys(FanoutError):
    """Two items have one key; `positions` names at most twenty of them."""

    code = "SUI-5002"
    fields = ("positions",)

    def __init__(
        self,
        message: str,
        *,
        positions: Sequence[int] = (),
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.positions = tuple(positions)


class MergeFailed(FanoutError):
    """More children ended badly than the merge tolerates."""

    code = "SUI-5003"


# --------------------------------------------------------------------------- secrets


class SecretError(SuimonError):
    """A secret that cannot be had. Messages name it and never hold a value."""

    code = "SUI-8000"


class SecretMissing(SecretError):
    """Nothing of this name is stored, or set in the environment, or can be read."""

    code = "SUI-8001"
    exit_code = EXIT_NOT_FOUND


class SecretKeyMissing(SecretError):
    """The secret is stored, and this process has no key to read it."""

    code = "SUI-8002"
    exit_code = EXIT_FORBIDDEN


class SecretKeyWrong(SecretError):
    """The key is not the database's, or what is stored was not stored under this name."""

    code = "SUI-8003"
    exit_code = EXIT_FORBIDDEN


class SecretNotGranted(SecretError):
    """A task asked for a secret that its `@task(secrets=[...])` does not name."""

    code = "SUI-8004"
    exit_code = EXIT_FORBIDDEN


class SecretTooShort(SecretError):
    """The value has fewer than four characters and could not be taken out of a log."""

    code = "SUI-8005"
    exit_code = EXIT_USAGE


# --------------------------------------------------------------------------- raised in tasks


class Fatal(SuimonError):
    """Raise it in a task to end the run as failed without another try."""

    code = "SUI-6001"


class Cancelled(SuimonError):
    """Raised inside a task whose run is being cancelled. Clean up and let it pass."""

    code = "SUI-6002"
    exit_code = EXIT_CANCELLED


class CallFailed(SuimonError):
    """The far side of an HTTP vertex gave no good answer; another try may get one."""

    code = "SUI-6003"
    fields = ("status",)

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.status = status


class CallRefused(Fatal):
    """The far side of an HTTP vertex gave an answer that another try would get again."""

    code = "SUI-6004"
    fields = ("status",)

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.status = status
