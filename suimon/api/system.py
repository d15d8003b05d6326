"""The system over HTTP: status, doctor, storage, prune, audit, migrations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Query, Response

from suimon.api import answers, shapes
from suimon.api.common import Place, gives, router
from suimon.db import migrate
from suimon.duties import prune as pruning
from suimon.run import audit, doctor, health, storage, submit

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


@api.get("/storage", responses=gives(shapes.Thing))
def stored(place: Place) -> Response:
    """Where the bytes are, and what a prune would remove."""
    with place.connection() as conn:
        found = storage.overview(conn)
        found["prune"] = pruning.preview(conn)
        found["kept_for_ever"] = pruning.unlimited(conn)
    return answers.json(found)


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
