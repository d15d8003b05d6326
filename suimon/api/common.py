"""What all routes share: the pool, ids in paths, the router and its documented answers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.routing import APIRoute

from suimon.api.pool import Pool
from suimon.api.refusals import MediaRefused
from suimon.api.shapes import Problem
from suimon.api.waiting import Waiting
from suimon.core import jsonsafe
from suimon.db.connect import Connection
from suimon.errors import InputRefused, RunNotFound
from suimon.run import read

#: Every refusal, whatever its status: one form.
REFUSED: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "model": Problem,
        "description": "A problem (RFC 9457), as in docs/errors.md.",
        "content": {"application/problem+json": {}},
    }
}
_WITH_BODY: Final = ("POST", "PUT", "PATCH", "DELETE")


async def pool_of(request: Request) -> Pool:
    """The connections of this process."""
    found = request.app.state.pool
    assert isinstance(found, Pool)
    return found


async def waiting_of(request: Request) -> Waiting:
    """The clients that wait in this process."""
    found = request.app.state.waiting
    assert isinstance(found, Waiting)
    return found


Place = Annotated[Pool, Depends(pool_of)]
Waits = Annotated[Waiting, Depends(waiting_of)]
RunId = Annotated[str, Path(max_length=64, description="An id, or its first six digits or more.")]
Named = Annotated[str, Path(min_length=1, max_length=200)]


class JsonRequest(Request):
    """Reads JSON as all of Suimon does: no NaN, no NUL, no half characters, bounded."""

    async def json(self) -> Any:
        return jsonsafe.loads(await self.body(), what="body", limit=self.limit)

    limit = jsonsafe.MAX_BYTES + 64 * 1024


class JsonRoute(APIRoute):
    """A route whose body is JSON and says so: a form of a foreign page is no request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            if request.method in _WITH_BODY and self.body_field is not None:
                request = JsonRequest(request.scope, request.receive)
                if await request.body():
                    check_media(request)
            return await inner(request)

        return handler


def check_media(request: Request) -> None:
    """Raises MediaRefused unless the body is said to be JSON in UTF-8."""
    kind, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    charset = parameters.partition("charset=")[2].strip(' "')
    if kind.strip() != "application/json" or charset not in ("", "utf-8", "utf8"):
        msg = "the body is not said to be JSON"
        raise MediaRefused(msg, hint="Content-Type: application/json")


def router(tag: str) -> APIRouter:
    """A router below ``/api/v1`` whose refusals are documented once."""
    return APIRouter(prefix="/api/v1", tags=[tag], route_class=JsonRoute, responses=REFUSED)


def gives(model: Any, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documented form of what is answered."""
    return {status: {"model": model, "description": "Done."} for status in statuses or (200,)}


def run_of(conn: Connection, given: str) -> str:
    """The whole id of the run in a path; what is no id names no run."""
    try:
        return read.resolve(conn, given)
    except InputRefused as error:
        raise RunNotFound(error.message, hint=error.hint) from None
