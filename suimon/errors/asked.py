"""What somebody asked for, or brought, and was refused."""

# ruff: noqa: N818  (the names say what happened; "Error" at the end of each would add nothing)

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suimon.errors.base import (
    EXIT_CONFLICT,
    EXIT_FORBIDDEN,
    EXIT_LIMITED,
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    SuimonError,
)


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


class QuotaExceeded(QueueFull):
    """A quota of runs has less left than was asked for; `renews_at` says when it has more again.

    `quota` is its name, `period` the day or month it is for; `limit`, `used` (created or reserved),
    `left` and `asked` are numbers of runs; `position` is how far a list was read.
    """

    code = "SUI-3008"
    fields = ("quota", "period", "limit", "used", "left", "asked", "renews_at", "position")

    def __init__(
        self,
        message: str,
        *,
        refusal: Mapping[str, Any] | None = None,
        renews_in_s: float = 1.0,
        position: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        found = refusal or {}
        self.quota: str | None = found.get("quota")
        self.period: str | None = found.get("period")
        self.limit: int | None = found.get("limit")
        self.used: int | None = found.get("used")
        self.left: int | None = found.get("left")
        self.asked: int | None = found.get("asked")
        self.renews_at: str | None = found.get("renews_at")
        self.position = position
        #: Seconds until it renews.
        self.renews_in_s = renews_in_s

    @property
    def retry_after_s(self) -> int:
        """Seconds after which a caller may ask again, from 1 to 300: it may be raised meanwhile."""
        return int(min(max(self.renews_in_s, 1.0), 300.0))


class NotThere(RequestRefused):
    """A trigger, a pool or another thing by a name that nothing has."""

    code = "SUI-3006"
    exit_code = EXIT_NOT_FOUND


class AddressRefused(RequestRefused):
    """An address inside, or one with no plain meaning; nothing was connected to."""

    code = "SUI-3007"
    exit_code = EXIT_FORBIDDEN


class StoragePressure(RequestRefused):
    """The payload store or the disk is nearly full, and this is large. Nothing was stored."""

    code = "SUI-3009"
    exit_code = EXIT_LIMITED
    #: For a caller over HTTP.
    retry_after_s = 30


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
    """A file that cannot be read as what it claims to be, row and byte say where; or a path that
    was named and that the system refuses.
    """

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
