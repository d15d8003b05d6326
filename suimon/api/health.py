"""For balancers and monitoring: is the process alive, is it ready, what are the numbers?

``/healthz`` answers without the database; ``/readyz`` asks it and compares versions. Both need no
token and say nothing about anybody's runs. ``/metrics`` is read from PostgreSQL: every process
gives the same, and says so while the database is away.
"""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from suimon.api import answers
from suimon.api import metrics as metrics_of
from suimon.api.common import REFUSED, Place
from suimon.db import migrate
from suimon.errors import DatabaseUnavailable

api = APIRouter(tags=["health"], responses=REFUSED)


@api.get("/healthz")
async def alive() -> Response:
    """The process answers."""
    return answers.json({"ok": True, "version": migrate.package_version()})


@api.get("/readyz")
def ready(place: Place) -> Response:
    """The database answers, and its schema and version are this process's; else 503."""
    with place.connection() as conn:
        migrate.check_version(conn)
    return answers.json({"ok": True, "schema_version": migrate.schema_version()})


@api.get("/metrics", response_class=PlainTextResponse)
def metrics(place: Place) -> Response:
    """Everything worth an alarm, for Prometheus."""
    try:
        with place.connection() as conn:
            text = metrics_of.metrics_text(conn)
    except DatabaseUnavailable as error:
        text = metrics_of.unreachable_text(error)
    return Response(text, media_type=metrics_of.MEDIA, headers={"Cache-Control": "no-store"})
