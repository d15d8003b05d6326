"""Destinations over HTTP: how often and how many at once they are called; held and released."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Body, Request, Response
from pydantic import Field

from suimon.api import answers, shapes
from suimon.api.common import Named, Place, gives, router
from suimon.api.shapes import Act
from suimon.errors import Conflict
from suimon.run import destinations

api = router("destinations")


class Change(Act):
    """Fields that are left out stay; null is unlimited."""

    rate: Annotated[str | None, Field(max_length=100)] = None
    burst: Annotated[int | None, Field(ge=1, le=shapes.HIGHEST_INT)] = None
    concurrency: Annotated[int | None, Field(ge=1, le=shapes.HIGHEST_INT)] = None


class Hold(Act):
    seconds: Annotated[float | None, Field(gt=0, le=destinations.LONGEST_HOLD_SECONDS)] = None


@api.get("/destinations", responses=gives(shapes.Page))
def listed(place: Place) -> Response:
    """All destinations with their limits, and what waits for them."""
    with place.connection() as conn:
        return answers.json({"items": destinations.listed(conn), "next_cursor": None})


@api.get("/destinations/{name}", responses=gives(shapes.Thing))
def one(name: Named, place: Place) -> Response:
    """One destination, and which runs call it; with the ETag that an edit needs."""
    with place.connection() as conn:
        return _answer(destinations.show(conn, name))


@api.patch("/destinations/{name}", responses=gives(shapes.Thing))
def change(name: Named, asked: Change, request: Request, place: Place) -> Response:
    """Change its limits, at once; later deploys leave them as they are then."""
    wanted: dict[str, Any] = {
        field: getattr(asked, field)
        for field in destinations.NAMES
        if field in asked.model_fields_set
    }
    with place.connection() as conn:
        before = destinations.show(conn, name)
        answers.check_match(request, _mark(before))
        any_state = "*" in request.headers.get("if-match", "")
        try:
            found = destinations.change(
                conn,
                name,
                wanted,
                actor=asked.by,
                why=asked.why,
                expected=None if any_state else before["version"],
            )
        except Conflict:
            now = destinations.show(conn, name)
            if now["version"] == before["version"]:
                raise
            raise answers.stale(_mark(now)) from None
    return _answer(found)


@api.post("/destinations/{name}/hold", responses=gives(shapes.Thing))
def hold(name: Named, place: Place, asked: Annotated[Hold | None, Body()] = None) -> Response:
    """Let nobody call it, so long or until it is released; calls being made go on."""
    given = asked or Hold()
    with place.connection() as conn:
        found = destinations.hold(
            conn, name, seconds=given.seconds, actor=given.by, why=given.why
        )  # fmt: skip
    return _answer(found)


@api.post("/destinations/{name}/release", responses=gives(shapes.Thing))
def release(name: Named, place: Place, asked: Annotated[Act | None, Body()] = None) -> Response:
    """Let calls go on, whoever held it."""
    given = asked or Act()
    with place.connection() as conn:
        return _answer(destinations.release(conn, name, actor=given.by, why=given.why))


def _answer(found: dict[str, Any]) -> Response:
    return answers.json(found, headers={"ETag": _mark(found)})


def _mark(found: dict[str, Any]) -> str:
    name = re.sub(r"[^a-z0-9_-]", "", str(found["name"]))
    return f'"{name}-{found["version"]}"'
