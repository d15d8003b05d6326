"""The system over HTTP: status, doctor, storage, prune, audit, migrations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Query, Request, Response
from pydantic import Field

from suimon.api import answers, shapes
from suimon.api.common import Place, gives, router
from suimon.db import migrate
from suimon.duties import prune as pruning
from suimon.errors import Conflict
from suimon.run import audit, doctor, health, pressure, storage, submit

api = router("system")


@api.get("/status", responses=gives(shapes.Thing))
def status(place: Place) -> Response:
    """Does it move? Pools, workers, duties, and what is wrong."""
    with place.connection() as conn:
        return answers.json(health.overall(conn))


@api.get("/doctor", responses=gives(shapes.Thing))
def examined(asked: Annotated[shapes.DoctorQuery, Query()], place: Place) -> Response:
    """What is wrong with database, server and queue."""
    with place.connection() as conn:
        return answers.json(doctor.report(conn, held_s=asked.held_s))


class Marks(shapes.Act):
    """Bytes. Fields that are left out stay; null is no mark."""

    high_bytes: Annotated[int | None, Field(ge=1, le=pressure.MOST_BYTES)] = None
    low_bytes: Annotated[int | None, Field(ge=1, le=pressure.MOST_BYTES)] = None
    disk_min_bytes: Annotated[int, Field(ge=0, le=pressure.MOST_BYTES)] = 0


@api.get("/storage", responses=gives(shapes.Thing))
def stored(place: Place) -> Response:
    """Where the bytes are, the store's marks and what a prune would remove; with the ETag that an
    edit of the marks needs.
    """
    with place.connection() as conn:
        found = storage.overview(conn)
        found["prune"] = pruning.preview(conn)
        found["kept_for_ever"] = pruning.unlimited(conn)
    return answers.json(found, headers={"ETag": _mark(found["store"])})


@api.patch("/storage", responses=gives(shapes.Thing))
def change(asked: Marks, request: Request, place: Place) -> Response:
    """Change the marks, at once: fan-outs are deferred from the high one until below the low."""
    fields = asked.model_fields_set
    wanted: dict[str, Any] = {n: getattr(asked, n) for n in pressure.NAMES if n in fields}
    with place.connection() as conn:
        before = pressure.state(conn)
        answers.check_match(request, _mark(before))
        any_state = "*" in request.headers.get("if-match", "")
        try:
            found = pressure.change(
                conn,
                wanted,
                actor=asked.by,
                why=asked.why,
                expected=None if any_state else before["version"],
            )
        except Conflict:
            raise answers.stale(_mark(pressure.state(conn))) from None
    return answers.json(found, headers={"ETag": _mark(found)})


def _mark(found: dict[str, Any]) -> str:
    return f'"storage-{found["version"]}"'


@api.put("/storage/objects", responses=gives(shapes.Thing))
def objects(asked: shapes.Objects, place: Place) -> Response:
    """Name the object store for contents of 64 KiB and more; null: they stay in the database.

    It is tried from here first. What is stored stays where it is.
    """
    with place.connection() as conn:
        found = storage.set_objects(conn, asked.url, actor=asked.by, why=asked.why)
    return answers.json(found)


@api.post("/prune", responses=gives(shapes.Thing))
def prune(place: Place, asked: Annotated[shapes.Prune | None, Body()] = None) -> Response:
    """Remove finished runs that their pipeline does not keep; `left`: ask again, time was up."""
    given = asked or shapes.Prune()
    with place.connection() as conn:
        if given.pipeline is not None:
            submit.target(conn, given.pipeline)  # a misspelt name is told
        if given.dry_run:
            found = pruning.preview(conn, given.pipeline)
            return answers.json({"prune": found, "dry_run": True})
        done = pruning.prune(conn, pipeline=given.pipeline, seconds=given.seconds)
    parts: dict[str, Any] = {"roots": done.roots, "runs": done.runs, "waits": done.waits}
    return answers.json({**parts, "left": done.left, "by_pipeline": done.by_pipeline})


@api.get("/audit", responses=gives(shapes.Page))
def audited(asked: Annotated[shapes.AuditQuery, Query()], place: Place) -> Response:
    """Who did what by hand, when and why; newest first."""
    question = {"of": "audit", "run": asked.run, "by": asked.by, "action": asked.action}
    before = answers.place_of(asked.cursor, question, lambda place: type(place) is int)
    with place.connection() as conn:
        target = None if asked.run is None else audit.target_of(conn, asked.run)
        found = audit.listed(
            conn,
            target=target,
            actor=asked.by,
            action=asked.action,
            before=before,
            limit=asked.limit,
        )
    more = found[-1]["id"] if len(found) == asked.limit else None
    return answers.page(found, question, more)


@api.get("/migrations", responses=gives(shapes.Thing))
def migrations(place: Place) -> Response:
    """Every migration with when it was applied."""
    with place.connection() as conn:
        found = migrate.status(conn)
    listed = [
        {
            "number": one.number,
            "name": one.name,
            "applied_at": one.applied_at.isoformat() if one.applied_at else None,
        }
        for one in found
    ]
    pending = sum(one.applied_at is None for one in found)
    return answers.json({"migrations": listed, "pending": pending})
