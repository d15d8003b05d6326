"""Quotas over HTTP: how many runs may be created in a day and in a month."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import Body, Path, Request, Response
from pydantic import Field

from suimon.api import answers, shapes
from suimon.api.common import Place, gives, router
from suimon.api.shapes import Act
from suimon.db.connect import Connection
from suimon.errors import Conflict, NotThere
from suimon.run import quotas

api = router("quotas")

#: A label's value may hold a slash.
QuotaName = Annotated[str, Path(min_length=1, max_length=200)]


class Change(Act):
    """Fields that are left out stay; null is no such limit."""

    per_day: Annotated[int | None, Field(ge=0, le=quotas.MOST)] = None
    per_month: Annotated[int | None, Field(ge=0, le=quotas.MOST)] = None


@api.get("/quotas", responses=gives(shapes.Page))
def listed(place: Place) -> Response:
    """All quotas: used, reserved, left, and when they renew."""
    with place.connection() as conn:
        return answers.json({"items": quotas.listed(conn), "next_cursor": None})


@api.get("/quotas/{name:path}", responses=gives(shapes.Thing))
def one(name: QuotaName, place: Place) -> Response:
    """One quota, with the ETag that an edit needs."""
    with place.connection() as conn:
        return _answer(quotas.show(conn, name))


@api.patch("/quotas/{name:path}", responses=gives(shapes.Thing, 200, 201))
def change(name: QuotaName, asked: Change, request: Request, place: Place) -> Response:
    """Change a quota, at once, or make one: that needs no `If-Match`."""
    quotas.check_name(name)
    wanted: dict[str, Any] = {
        field: getattr(asked, field) for field in quotas.NAMES if field in asked.model_fields_set
    }
    with place.connection() as conn:
        expected = _expected(conn, name, request)
        try:
            found = quotas.change(
                conn, name, wanted, actor=asked.by, why=asked.why, expected=expected
            )
        except Conflict:
            raise _stale(conn, name) from None
    return _answer(found, 201 if expected == 0 else 200)


@api.delete("/quotas/{name:path}", responses=gives(shapes.Thing))
def remove(
    name: QuotaName, request: Request, place: Place, asked: Annotated[Act | None, Body()] = None
) -> Response:
    """Count no more; who waited for it goes on."""
    given = asked or Act()
    with place.connection() as conn:
        expected = _expected(conn, name, request)
        try:
            quotas.remove(conn, name, actor=given.by, why=given.why, expected=expected)
        except Conflict:
            raise _stale(conn, name) from None
    return answers.json({"name": name, "removed": True})


def _expected(conn: Connection, name: str, request: Request) -> int | None:
    """The version that an edit replaces; 0: there is none yet; None: whichever."""
    given = request.headers.get("if-match", "")
    try:
        before = quotas.show(conn, name)
    except NotThere:
        if given and "*" not in given:
            raise _stale(conn, name) from None
        return 0
    answers.check_match(request, _mark(before))
    return None if "*" in given else int(before["version"])


def _stale(conn: Connection, name: str) -> Exception:
    try:
        return answers.stale(_mark(quotas.show(conn, name)))
    except NotThere:
        return answers.stale("none")


def _answer(found: dict[str, Any], status: int = 200) -> Response:
    return answers.json(found, status, {"ETag": _mark(found)})


def _mark(found: dict[str, Any]) -> str:
    name = hashlib.sha256(found["name"].encode()).hexdigest()[:12]  # a label may hold a quote
    return f'"{name}-{found["version"]}"'
