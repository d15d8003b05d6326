"""Pipelines over HTTP: what is deployed, its graph, its limits; deploying canonical JSON.

A server never reads anybody's code: what it deploys is the JSON that ``suimon pipelines graph PATH
--json`` prints, checked here as ``suimon deploy`` checks it, except that only a worker knows
whether the named functions exist.
"""

from __future__ import annotations

import dataclasses
import os.path
import re
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final

import orjson
from fastapi import Query, Request, Response

from suimon import draw, graph, graph_set
from suimon.api import answers, shapes
from suimon.api.common import Named, Place, gives, router
from suimon.errors import Conflict, DefinitionError, Mistake
from suimon.run import deploy, limits, pages
from suimon.run.deploy import Definition

api = router("pipelines")

_ADDRESS: Final = re.compile(r"^[a-z][a-z0-9+.-]*://")
_UNKNOWN: Final = re.compile(r'there is no pipeline "(.*)"')
#: A drawing holds names of somebody else; nothing in it is ever run.
_STILL: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


@api.get("/pipelines", responses=gives(shapes.Page))
def listed(asked: Annotated[shapes.Paged, Query()], place: Place) -> Response:
    """What is deployed, by name."""
    question = {"of": "pipelines"}
    after = answers.place_of(asked.cursor, question, lambda name: isinstance(name, str))
    with place.connection() as conn:
        found = pages.pipelines(conn, after=after or "", limit=asked.limit)
    more = found[-1]["name"] if len(found) == asked.limit else None
    return answers.page(found, question, more)


@api.get("/pipelines/{name}", responses=gives(shapes.Thing))
def one(name: Named, place: Place) -> Response:
    """One pipeline with its graph."""
    with place.connection() as conn:
        return answers.json(pages.pipeline(conn, name))


_DRAWN: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "model": shapes.Thing,
        "description": "The graph.",
        "content": {"text/plain": {}, "image/svg+xml": {}},
    }
}


@api.get("/pipelines/{name}/graph", responses=_DRAWN)
def drawn(name: Named, asked: Annotated[shapes.GraphQuery, Query()], place: Place) -> Response:
    """The graph as canonical JSON, as text, or drawn as SVG."""
    with place.connection() as conn:
        found = pages.pipeline(conn, name)["graph"]
    if asked.form == "text":
        return Response(draw.text(found), media_type="text/plain; charset=utf-8")
    if asked.form == "svg":
        return Response(draw.svg(found), media_type="image/svg+xml", headers=_STILL)
    return answers.json(found)


# ------------------------------------------------------------------------------- limits


@api.get("/pipelines/{name}/limits", responses=gives(shapes.Thing))
def bounds(name: Named, place: Place) -> Response:
    """Runs at a time, runs that may wait, bad ends that pause; with the ETag an edit needs."""
    with place.connection() as conn:
        found = limits.current(conn, name)
    return answers.json({"name": name, **found.to_json()}, headers={"ETag": _mark(name, found)})


@api.patch("/pipelines/{name}/limits", responses=gives(shapes.Thing))
def change(name: Named, asked: shapes.Limits, request: Request, place: Place) -> Response:
    """Change limits live. Fields left out stay; null is unlimited, or never."""
    wanted: dict[str, int | None] = {
        one: getattr(asked, one) for one in limits.NAMES if one in asked.model_fields_set
    }
    with place.connection() as conn:
        before = limits.current(conn, name)
        answers.check_match(request, _mark(name, before))
        any_state = "*" in request.headers.get("if-match", "")
        try:
            after = limits.change(
                conn,
                name,
                wanted,
                actor=asked.by,
                why=asked.why,
                expected=None if any_state else before,
            )
        except Conflict:
            raise answers.stale(_mark(name, limits.current(conn, name))) from None
    return answers.json({"name": name, **after.to_json()}, headers={"ETag": _mark(name, after)})


def _mark(name: str, found: limits.Limits) -> str:
    return answers.etag(["limits", name, found.to_json()])


# ------------------------------------------------------------------------------- deploying


@api.post("/deployments", responses=gives(shapes.Thing))
def deployed(asked: shapes.Deployment, place: Place) -> Response:
    """Make these graphs what new runs use, all of them or none; `dry_run` only checks them."""
    try:
        made = definitions(asked.pipelines)
    except DefinitionError as error:
        with place.connection() as conn:
            known = {one["name"] for one in pages.pipelines(conn)}
        raise DefinitionError(_of_deployed(error.mistakes, known)) from None
    if asked.dry_run:
        found = [{"name": one.name, "hash": one.hash, "what": "checked"} for one in made]
    else:
        with place.connection() as conn:
            answers_ = deploy.deploy(conn, made)
        found = [{"name": one.name, "hash": one.hash, "what": one.what} for one in answers_]
    return answers.json({"pipelines": found, "dry_run": asked.dry_run})


def definitions(given: Sequence[dict[str, Any]]) -> list[Definition]:
    """Checked definitions. Raises DefinitionError with every mistake of all of them."""
    graphs: list[dict[str, Any]] = []
    declared: dict[str, Any] = {}
    mistakes: list[Mistake] = []
    for raw in given:
        found, wrong = graph.read_all(orjson.dumps(raw))
        graphs += [one.graph for one in found]
        for name, beside in ((n, b) for one in found for n, b in one.destinations.items()):
            if declared.setdefault(name, beside) != beside:
                place = f"destinations.{name}"
                mistakes.append(Mistake(None, place, f'"{name}" is declared otherwise before'))
        mistakes += wrong
    mistakes += graph_set.check_together(graphs) if not mistakes else []
    names = [one["pipeline"] for one in graphs]
    mistakes += [
        Mistake(None, "pipeline", "is there twice", pipeline=name)
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    mistakes += [
        Mistake(None, "path", "must be absolute here", "Nobody's folder is known.", one["pipeline"])
        for one in graphs
        for trigger in one.get("triggers", [])
        if trigger["type"] == "FILE" and _is_relative(trigger.get("path", ""))
    ]
    if mistakes:
        raise DefinitionError(mistakes)
    return [Definition(one["pipeline"], graph.graph_hash(one), one, declared) for one in graphs]


def _of_deployed(mistakes: Sequence[Mistake], known: Collection[str]) -> list[Mistake]:
    """Who names a pipeline that is deployed has to send it along; else all there are are named."""
    found = []
    for one in mistakes:
        target = _UNKNOWN.fullmatch(one.message) if one.field == "config.pipeline" else None
        if target is None or not known:
            found.append(one)
            continue
        hint = f"deployed: {', '.join(sorted(known)[:20])}; send the one you mean along"
        if target[1] in known:
            hint = "it is deployed; send its graph along, so that both are checked together"
        found.append(dataclasses.replace(one, hint=hint))
    return found


def _is_relative(path: str) -> bool:
    return not os.path.isabs(path) and not _ADDRESS.match(path)  # noqa: PTH117  (no file of ours)
