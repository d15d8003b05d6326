"""What goes wrong while a run lives: its fan-outs, its secrets, its own code."""

# ruff: noqa: N818  (the names say what happened; "Error" at the end of each would add nothing)

from __future__ import annotations

from collections.abc import Sequence

from suimon.errors.base import (
    EXIT_CANCELLED,
    EXIT_FORBIDDEN,
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    SuimonError,
)


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
