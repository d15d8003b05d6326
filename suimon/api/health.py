"""For balancers and monitoring: is the process alive, is it ready, what are the numbers?

``/healthz`` answers without the database; ``/readyz`` asks it and compares versions. Both need no
token and say nothing about anybody's runs. ``/metrics`` is read from PostgreSQL: every process
gives the same.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Final

from fastapi import APIRouter, Response

from suimon.api import answers
from suimon.api.common import Place
from suimon.api.refusals import NoSuchPath
from suimon.db import migrate

api = APIRouter(tags=["health"])

METRICS: Final = "suimon.api.metrics"
_PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"


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


@api.get("/metrics")
def metrics(place: Place) -> Response:
    """Everything worth an alarm, for Prometheus."""
    if importlib.util.find_spec(METRICS) is None:
        msg = "this version has no metrics"
        raise NoSuchPath(msg)
    with place.connection() as conn:
        text = importlib.import_module(METRICS).metrics_text(conn)
    return Response(text, media_type=_PLAIN, headers={"Cache-Control": "no-store"})
