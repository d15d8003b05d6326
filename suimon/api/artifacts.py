"""Artifacts over HTTP: the files that a run's tasks have published, listed and got out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated
from urllib.parse import quote

from fastapi import Query, Response
from fastapi.responses import StreamingResponse

from suimon.api import answers, shapes
from suimon.api.common import Place, RunId, gives, router, run_of
from suimon.api.pool import Pool
from suimon.api.shapes import ArtifactQuery
from suimon.api.waiting import ask
from suimon.db.connect import Connection
from suimon.run import artifacts
from suimon.run.artifacts import Artifact

api = router("runs")


@api.get("/runs/{run_id}/artifacts", responses=gives(shapes.Page))
def listed(run_id: RunId, place: Place) -> Response:
    """The files that a run's tasks have published, at most 1,000."""
    with place.connection() as conn:
        found = artifacts.listed(conn, run_of(conn, run_id))
    items = [one.to_json() for one in found]
    return answers.json({"items": items, "next_cursor": None})


@api.get("/runs/{run_id}/artifact", responses=gives(shapes.Thing))
async def one(run_id: RunId, asked: Annotated[ArtifactQuery, Query()], place: Place) -> Response:
    """One of them, as its bytes; `vertex` says whose, when several have one of this name.

    It comes part by part; where it cannot be read to its end, it ends before its `Content-Length`.
    """

    def begin(conn: Connection) -> tuple[Artifact, bytes]:
        found = artifacts.one(conn, run_of(conn, run_id), asked.name, asked.vertex)
        return found, artifacts.part(conn, found, 0)

    found, first = await ask(place, begin)
    headers = {
        "Content-Length": str(found.size),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(found.name, safe='')}",
        "Cache-Control": "no-store",
    }
    media = "application/octet-stream"
    return StreamingResponse(_parts(place, found, first), media_type=media, headers=headers)


async def _parts(place: Pool, found: Artifact, first: bytes) -> AsyncIterator[bytes]:
    yield first
    for number in range(1, found.parts):
        yield await ask(place, partial(artifacts.part, artifact=found, number=number))
