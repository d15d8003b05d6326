"""What only a caller over HTTP can do wrong; all else has its class in ``suimon/errors.py``.

Each has the status of its answer in the table of ``problems.py``, and a code like every error.
"""

from __future__ import annotations

from collections.abc import Sequence

from suimon.errors import (
    EXIT_CONFLICT,
    EXIT_FORBIDDEN,
    EXIT_LIMITED,
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    QueueFull,
    RequestRefused,
)


class TokenRefused(RequestRefused):
    """The bearer token is missing or another one."""

    code = "SUI-7001"
    exit_code = EXIT_FORBIDDEN


class Forbidden(RequestRefused):
    """A page of another site asked, or the server was addressed by a name that is not its own."""

    code = "SUI-7002"
    exit_code = EXIT_FORBIDDEN


class Malformed(RequestRefused):
    """A path, query, header or cursor that cannot be read."""

    code = "SUI-7003"
    exit_code = EXIT_USAGE


class NoSuchPath(RequestRefused):
    """Nothing has this address."""

    code = "SUI-7004"
    exit_code = EXIT_NOT_FOUND


class MethodRefused(RequestRefused):
    """The address knows other methods only; the header `Allow` names them."""

    code = "SUI-7005"
    exit_code = EXIT_USAGE

    def __init__(
        self,
        message: str,
        *,
        allow: str = "",
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.allow = allow


class MediaRefused(RequestRefused):
    """The body is not said to be `application/json`."""

    code = "SUI-7006"
    exit_code = EXIT_USAGE


class FieldsRefused(RequestRefused):
    """Fields are missing, unknown or of the wrong kind; `errors` has a pointer to each."""

    code = "SUI-7007"
    exit_code = EXIT_USAGE
    fields = ("errors",)

    def __init__(
        self,
        message: str,
        *,
        errors: Sequence[dict[str, str]] = (),
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.errors = list(errors)


class Stale(RequestRefused):
    """`If-Match` names a state that is not the current one; somebody else was faster."""

    code = "SUI-7008"
    exit_code = EXIT_CONFLICT
    fields = ("current",)

    def __init__(
        self,
        message: str,
        *,
        current: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.current = current


class MatchMissing(RequestRefused):
    """An edit without `If-Match`: read the thing first, and send its `ETag` along."""

    code = "SUI-7009"
    exit_code = EXIT_USAGE


class Busy(RequestRefused):
    """More requests, waiting clients or bytes at once than one process takes; ask again."""

    code = "SUI-7010"
    exit_code = EXIT_LIMITED


class FullForNow(QueueFull):
    """A full pipeline, with the seconds after which to ask again."""

    def __init__(self, error: QueueFull, retry_after_s: int) -> None:
        super().__init__(error.message, detail=error.detail, hint=error.hint)
        self.retry_after_s = retry_after_s


class TooSlow(RequestRefused):
    """The body did not arrive in time."""

    code = "SUI-7011"
    exit_code = EXIT_USAGE
