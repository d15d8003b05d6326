"""People's words over HTTP: approvals and signals."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Query, Response

from suimon.api import answers, shapes
from suimon.api.common import Named, Place, RunId, gives, router, run_of
from suimon.api.pool import Pool
from suimon.core import jsonsafe
from suimon.errors import Conflict
from suimon.run import approvals, operate, read

api = router("people")


@api.get("/approvals", responses=gives(shapes.Page))
def listed(asked: Annotated[shapes.ApprovalsQuery, Query()], place: Place) -> Response:
    """What waits for somebody to decide, oldest first; at most 500."""
    with place.connection() as conn:
        full = run_of(conn, asked.run) if asked.run else None
        found = approvals.listed(conn, run_id=full, all_=asked.all)
    listed = [{name: read.as_json(value) for name, value in one.items()} for one in found]
    return answers.json({"items": listed, "next_cursor": None})


@api.post("/approvals/{run_id}/{vertex}/approve", responses=gives(shapes.Thing))
def approve(
    run_id: RunId,
    vertex: Named,
    place: Place,
    asked: Annotated[shapes.Vote | None, Body()] = None,
) -> Response:
    """Approve; the vote that completes the quorum decides."""
    return _decide(place, run_id, vertex, asked or shapes.Vote(), approve=True)


@api.post("/approvals/{run_id}/{vertex}/reject", responses=gives(shapes.Thing))
def reject(
    run_id: RunId,
    vertex: Named,
    place: Place,
    asked: Annotated[shapes.Vote | None, Body()] = None,
) -> Response:
    """Reject; one rejection decides."""
    return _decide(place, run_id, vertex, asked or shapes.Vote(), approve=False)


def _decide(
    place: Pool, run_id: str, vertex: str, given: shapes.Vote, *, approve: bool
) -> Response:
    with place.connection() as conn:
        full = run_of(conn, run_id)
        decision, votes = operate.decide(
            conn, full, vertex, approve=approve, actor=given.by, comment=given.comment
        )
    about: dict[str, Any] = {"run": full, "vertex": vertex}
    return answers.json({**about, "decision": decision, "votes": votes})


@api.post("/runs/{run_id}/signals/{name}", responses=gives(shapes.Thing))
def signal(
    run_id: RunId,
    name: Named,
    place: Place,
    asked: Annotated[shapes.Signal | None, Body()] = None,
) -> Response:
    """Send a run a named message; one that comes early is kept, the first of a name wins."""
    given = asked or shapes.Signal()
    data = jsonsafe.dumps(given.data, what="signal")
    with place.connection() as conn:
        full = run_of(conn, run_id)
        if not operate.signal(conn, full, name, data, actor=given.by):
            msg = f'run {full} had a signal "{name}" before; the first one stays'
            raise Conflict(msg, run_id=full)
    return answers.json({"run": full, "name": name, "kept": True})
