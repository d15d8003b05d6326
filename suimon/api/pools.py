"""Pools over HTTP: who serves them, their caps, and which pool a pipeline's runs are for."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import Field

from suimon.api import answers, shapes
from suimon.api.common import Named, Place, gives, router
from suimon.api.shapes import Act
from suimon.errors import Conflict
from suimon.run import moving, pools

api = router("pools")


class Cap(Act):
    """null: any number."""

    cap: Annotated[int | None, Field(ge=1, le=pools.MOST)]


class PoolChoice(Act):
    """null: the pool that is declared."""

    pool: Annotated[str | None, Field(max_length=100)]


@api.get("/pools", responses=gives(shapes.Page))
def listed(place: Place) -> Response:
    """All pools that a worker, a pipeline or a vertex names."""
    with place.connection() as conn:
        return answers.json({"items": pools.listed(conn), "next_cursor": None})


@api.get("/pools/{name}", responses=gives(shapes.Thing))
def one(name: Named, place: Place) -> Response:
    """One pool, with the ETag that an edit needs."""
    with place.connection() as conn:
        return _answer(pools.show(conn, name))


@api.put("/pools/{name}/cap", responses=gives(shapes.Thing))
def set_cap(name: Named, asked: Cap, request: Request, place: Place) -> Response:
    """At most so many of its runs are claimed at once, over all its workers; at once in force."""
    with place.connection() as conn:
        before = pools.show(conn, name)
        answers.check_match(request, _mark(before))
        any_state = "*" in request.headers.get("if-match", "")
        expected = None if any_state else before["version"]
        try:
            found = pools.set_cap(
                conn, name, asked.cap, actor=asked.by, why=asked.why, expected=expected
            )
        except Conflict:
            raise answers.stale(_mark(pools.show(conn, name))) from None
    return _answer(found)


def _answer(found: dict[str, Any]) -> Response:
    return answers.json(found, headers={"ETag": _mark(found)})


def _mark(found: dict[str, Any]) -> str:
    return answers.etag(["pool", found["name"], found["version"]])


# ------------------------------------------------------------------------- a pipeline's pool


@api.get("/pipelines/{name}/pool", responses=gives(shapes.Thing))
def pool_of(name: Named, place: Place) -> Response:
    """The pool of its runs, live and declared; with the ETag that an edit needs."""
    with place.connection() as conn:
        found = moving.current(conn, name)
    about = {"name": name, "pool": found.pool, "declared_pool": found.declared}
    headers = {"ETag": _choice(name, found)}
    return answers.json({**about, "pool_edited": found.edited}, headers=headers)


@api.put("/pipelines/{name}/pool", responses=gives(shapes.Thing))
def set_pool(name: Named, asked: PoolChoice, request: Request, place: Place) -> Response:
    """Its runs are for this pool from now on, also those that wait; null: the declared one."""
    with place.connection() as conn:
        before = moving.current(conn, name)
        answers.check_match(request, _choice(name, before))
        any_state = "*" in request.headers.get("if-match", "")
        expected = None if any_state else before
        try:
            found = moving.set_pool(
                conn, name, asked.pool, actor=asked.by, why=asked.why, expected=expected
            )
        except Conflict:
            raise answers.stale(_choice(name, moving.current(conn, name))) from None
        now = moving.current(conn, name)
    return answers.json(found, headers={"ETag": _choice(name, now)})


def _choice(name: str, found: moving.Choice) -> str:
    return answers.etag(["set-pool", name, found.pool, found.declared, found.edited])
