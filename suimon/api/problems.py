"""Every refusal as ``application/problem+json`` (RFC 9457), made from the error's own parts.

One table says which status an error has. ``type`` and ``code`` are stable, texts may change. An
error that is no ``SuimonError`` becomes one here: what the driver raises while the database is
away is a 503 with ``Retry-After``, a value that PostgreSQL cannot take is a 422, and what is left
is a defect (500) whose traceback goes to the log, never to the caller.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson
import psycopg
from fastapi import Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from suimon import errors
from suimon.api import refusals
from suimon.errors import DatabaseUnavailable, InputRefused, SuimonError

log = logging.getLogger("suimon.api")

MEDIA: Final = "application/problem+json"
#: The status of each class; a class that is not here has that of its nearest base.
STATUS: Final[Mapping[type[SuimonError], int]] = {
    errors.DatabaseUnavailable: 503,
    errors.SchemaMismatch: 503,
    errors.StoreUnavailable: 503,
    errors.DefinitionError: 422,
    errors.LoadFailed: 422,
    errors.RequestRefused: 422,
    errors.UnknownPipeline: 404,
    errors.RunNotFound: 404,
    errors.NotThere: 404,
    errors.InputRefused: 422,
    errors.Conflict: 409,
    errors.QueueFull: 429,
    errors.StoragePressure: 503,
    errors.DataRefused: 422,
    errors.InvalidJson: 400,
    errors.PayloadTooLarge: 413,
    errors.FileChanged: 409,
    errors.FanoutError: 409,
    errors.SecretError: 409,
    errors.SecretMissing: 404,
    refusals.TokenRefused: 401,
    refusals.Forbidden: 403,
    refusals.Malformed: 400,
    refusals.NoSuchPath: 404,
    refusals.MethodRefused: 405,
    refusals.MediaRefused: 415,
    refusals.FieldsRefused: 422,
    refusals.Stale: 412,
    refusals.MatchMissing: 428,
    refusals.Busy: 429,
    refusals.TooSlow: 408,
    SuimonError: 500,
}
#: Seconds after which a caller may ask again, where the error does not know better.
RETRY_SECONDS: Final = {503: 2, 429: 1}
_ERRORS_NAMED: Final = 50


def status_of(error: SuimonError) -> int:
    """The status of the nearest class in the table."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def document(error: SuimonError, request_id: str | None = None) -> dict[str, Any]:
    """The problem as an object."""
    parts = error.to_json()
    detail = error.message + (f" ({error.detail})" if error.detail else "")
    about: dict[str, Any] = {
        "type": f"/docs/errors#{error.code}",
        "title": title(type(error)),
        "status": status_of(error),
        "detail": detail,
        "code": error.code,
    }
    for name in ("type", "code", "message", "detail"):
        parts.pop(name, None)
    about |= parts
    return about if request_id is None else {**about, "request_id": request_id}


def title(kind: type[SuimonError]) -> str:
    """``UnknownPipeline`` → ``Unknown pipeline``: the same words for every problem of a type."""
    named = next(one for one in kind.__mro__ if "code" in vars(one))
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", named.__name__)
    return words[0] + words[1:].lower()


def answer(error: SuimonError, request_id: str | None = None) -> Response:
    """The problem as an answer, with the headers that go with its status."""
    about = document(error, request_id)
    status = int(about["status"])
    headers = {"Cache-Control": "no-store"}
    if status in RETRY_SECONDS:
        seconds = getattr(error, "retry_after_s", None) or RETRY_SECONDS[status]
        headers["Retry-After"] = str(int(seconds))
    if isinstance(error, refusals.MethodRefused):
        headers["Allow"] = error.allow
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="suimon"'
    return Response(orjson.dumps(about), status, headers, MEDIA)


def known(error: BaseException) -> SuimonError:
    """Any error in our words; what nobody foresaw is a defect, and is logged as one."""
    if isinstance(error, SuimonError):
        return error
    if isinstance(error, RequestValidationError):
        return _fields(error)
    if isinstance(error, HTTPException):
        return _http(error)
    if isinstance(error, psycopg.Error):
        return _driver(error)
    log.error("a defect: %s", type(error).__name__, exc_info=error)
    return SuimonError("something went wrong inside the server", hint="Its log says what.")


def _http(error: HTTPException) -> SuimonError:
    cause = error.__cause__
    if isinstance(cause, SuimonError):  # raised while the body was read
        return cause
    if error.status_code == 404:
        return refusals.NoSuchPath(
            "there is nothing at this address", hint="The addresses: /api/v1/openapi.json"
        )
    if error.status_code == 405:
        msg = "this address does not know that method"
        allow = (error.headers or {}).get("Allow", "")
        return refusals.MethodRefused(msg, allow=allow, hint="The header Allow names the others.")
    return refusals.Malformed("the request cannot be read", detail=str(error.detail)[:200])


def _fields(error: RequestValidationError) -> SuimonError:
    """Each mistake with a JSON pointer into the body, or the place of a parameter."""
    listed = []
    for one in error.errors()[:_ERRORS_NAMED]:
        place, *parts = one["loc"]
        steps = [str(part).replace("~", "~0").replace("/", "~1") for part in parts]
        prefix = "" if place == "body" else f"/{place}"
        pointer = prefix + "".join(f"/{step[:100]}" for step in steps)
        listed.append({"pointer": readable(pointer), "message": readable(str(one["msg"]))})
    first = listed[0] if listed else {"pointer": "", "message": "the request is wrong"}
    msg = f"{first['pointer'] or 'the body'}: {first['message']}"
    return refusals.FieldsRefused(msg, errors=listed)


def readable(text: str) -> str:
    """Text that can be sent, whatever the caller wrote."""
    return text.encode("utf-8", "replace").decode()[:500]


def _driver(error: psycopg.Error) -> SuimonError:
    if isinstance(error, psycopg.errors.QueryCanceled | psycopg.errors.LockNotAvailable):
        msg = "the database took too long"
        return DatabaseUnavailable(msg, hint="Ask for less at once, or again later.")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        msg = "the connection to the database was lost"
        hint = "Whether it was done is unknown; with an Idempotency-Key it may be asked again."
        return DatabaseUnavailable(msg, hint=hint)
    if isinstance(error, psycopg.DataError):
        msg = "a value of the request cannot be used"
        return InputRefused(msg, path="$", detail=type(error).__name__)
    log.error("a defect: %s", type(error).__name__, exc_info=error)
    return SuimonError("something went wrong inside the server", hint="Its log says what.")
