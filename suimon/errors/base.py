"""The root of all errors, the exit codes, and what is wrong with database or definitions."""

# ruff: noqa: N818  (the names say what happened; "Error" at the end of each would add nothing)

from __future__ import annotations

from collections.abc import Iterable
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
        for name, text in (("detail", detail), ("hint", hint)):
            if text:  # a traceback shows them below the message
                self.add_note(f"{name}: {text}")

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


class DatabaseUnavailable(SuimonError):
    """No connection to PostgreSQL; whatever was asked may be asked again."""

    code = "SUI-1001"
    exit_code = EXIT_UNREACHABLE


class SchemaMismatch(SuimonError):
    """Schema and package version differ. The exit code is the one that systemd does not restart."""

    code = "SUI-1002"
    exit_code = EXIT_VERSION


class StoreUnavailable(SuimonError):
    """An object store does not answer, or not with what was put there; it may be asked again."""

    code = "SUI-1004"
    exit_code = EXIT_UNREACHABLE


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
