"""What operators do to runs, over HTTP: retry, cancel, rerun, skip, priority; one or many."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Body, Request, Response

from suimon.api import answers, shapes
from suimon.api.common import Named, Place, RunId, gives, router, run_of
from suimon.db.connect import Connection
from suimon.errors import Conflict, InputRefused
from suimon.run import acts, limits, many, operate, read
from suimon.run import skip as skipping

api = router("acts")


@api.post("/runs/{run_id}/retry", responses=gives(shapes.Thing))
def retry(
    run_id: RunId, place: Place, asked: Annotated[shapes.Retry | None, Body()] = None
) -> Response:
    """Run again what ended badly, or one step and all after it; merges above run again too."""
    given = asked or shapes.Retry()
    with place.connection() as conn:
        answer = acts.retry(
            conn,
            [run_of(conn, run_id)],
            actor=given.by,
            why=given.why,
            failed_children=given.failed_children,
            step=given.step,
            dry_run=given.dry_run,
        )
    return answers.json(answer)


@api.post("/runs/{run_id}/cancel", responses=gives(shapes.Thing, 202))
def cancel(
    run_id: RunId, place: Place, asked: Annotated[shapes.Cancel | None, Body()] = None
) -> Response:
    """Ask a run to stop, with all that is below it."""
    given = asked or shapes.Cancel()
    with place.connection() as conn:
        full = run_of(conn, run_id)
        answer = acts.cancel(
            conn, [full], actor=given.by, why=given.why, dry_run=given.dry_run
        )  # fmt: skip
    return answers.json(answer, 202)


@api.post("/runs/{run_id}/rerun", status_code=201, responses=gives(shapes.Run, 201))
def rerun(
    run_id: RunId, place: Place, asked: Annotated[shapes.Rerun | None, Body()] = None
) -> Response:
    """Start a new run with the input of an old one, which stays as it is."""
    given = asked or shapes.Rerun()
    with place.connection() as conn:
        full = run_of(conn, run_id)
        made = operate.rerun(
            conn, full, actor=given.by, why=given.why, same_graph=given.same_graph
        )  # fmt: skip
        about = read.run(conn, made).to_json()
    where = {"Location": f"/api/v1/runs/{made}"}
    return answers.json({**about, "rerun_of": full}, 201, where)


@api.post("/runs/{run_id}/skip", responses=gives(shapes.Thing))
def skip(
    run_id: RunId, place: Place, asked: Annotated[shapes.Act | None, Body()] = None
) -> Response:
    """Go on without a failed run: its lane opens, or its merge does not count it any more."""
    given = asked or shapes.Act()
    with place.connection() as conn:
        full = run_of(conn, run_id)
        done = skipping.skip(conn, full, actor=given.by, why=given.why)
    return answers.json({"id": full, **asdict(done)})


# ------------------------------------------------------------------------------- priority


@api.get("/runs/{run_id}/priority", responses=gives(shapes.Thing))
def priority(run_id: RunId, place: Place) -> Response:
    """The priority of a run, with the ETag that an edit needs."""
    with place.connection() as conn:
        full = run_of(conn, run_id)
        found = read.run(conn, full).priority
    mark = _mark(full, found)
    return answers.json({"id": full, "priority": found}, headers={"ETag": mark})


@api.put("/runs/{run_id}/priority", responses=gives(shapes.Thing))
def set_priority(run_id: RunId, asked: shapes.Priority, request: Request, place: Place) -> Response:
    """Move a run, with all that is below it, to the head of another priority (0 goes first)."""
    with place.connection() as conn:
        full = run_of(conn, run_id)
        before = read.run(conn, full).priority
        answers.check_match(request, _mark(full, before))
        try:
            moved = operate.set_priority(
                conn,
                full,
                asked.priority,
                actor=asked.by,
                why=asked.why,
                below=not asked.only,
                expected=None if "*" in request.headers.get("if-match", "") else before,
            )
        except Conflict:
            now = read.run(conn, full).priority
            if now == before:
                raise
            raise answers.stale(_mark(full, now)) from None
    about = {"id": full, "priority": asked.priority, "runs": moved.runs, "queued": moved.queued}
    return answers.json(about, headers={"ETag": _mark(full, asked.priority)})


@api.get("/runs/{run_id}/spawns/{vertex}/concurrency", responses=gives(shapes.Thing))
def spawn_limit(run_id: RunId, vertex: Named, place: Place) -> Response:
    """How many children of a running spawn may live at once; with the ETag that an edit needs."""
    with place.connection() as conn:
        full = run_of(conn, run_id)
        found = limits.of_spawn(conn, full, vertex)
    return _spawn_answer(full, vertex, found)


@api.put("/runs/{run_id}/spawns/{vertex}/concurrency", responses=gives(shapes.Thing))
def set_spawn_limit(
    run_id: RunId, vertex: Named, asked: shapes.SpawnLimit, request: Request, place: Place
) -> Response:
    """Change it while it runs, at once; null: any number. Lowered, it takes nobody's place."""
    with place.connection() as conn:
        full = run_of(conn, run_id)
        before = limits.of_spawn(conn, full, vertex)
        answers.check_match(request, _spawn_mark(full, vertex, before))
        expected = -1 if "*" in request.headers.get("if-match", "") else before
        limits.change_spawn(
            conn, full, vertex, asked.concurrency, actor=asked.by, why=asked.why, expected=expected
        )
    return _spawn_answer(full, vertex, asked.concurrency)


def _spawn_answer(run_id: str, vertex: str, limit: int | None) -> Response:
    about = {"id": run_id, "vertex": vertex, "concurrency": limit}
    return answers.json(about, headers={"ETag": _spawn_mark(run_id, vertex, limit)})


def _spawn_mark(run_id: str, vertex: str, limit: int | None) -> str:
    return answers.etag(["spawn", run_id, vertex, limit])


def _mark(run_id: str, priority: int) -> str:
    return answers.etag(["priority", run_id, priority])


# ------------------------------------------------------------------------------- many


@api.post("/bulk/retry", responses=gives(shapes.Thing))
def retry_many(asked: shapes.ManyRetry, place: Place) -> Response:
    """Retry many, by ids or by a filter; at most `limit` of a filter's, and `more` says so."""
    with place.connection() as conn:
        if asked.filter is None:
            return answers.json(_retry_ids(conn, asked))
        if asked.failed_children:
            msg = "a filter chooses whole runs"
            hint = "Children: parent=RUN,status=failed"
            raise InputRefused(msg, path="failed_children", hint=hint)
        return answers.json(_by_filter(conn, asked, acts.BAD, many.retry_all))


@api.post("/bulk/cancel", responses=gives(shapes.Thing, 202))
def cancel_many(asked: shapes.Many, place: Place) -> Response:
    """Ask many to stop, by ids or by a filter; at most `limit` of a filter's."""
    code = 200 if asked.dry_run else 202
    with place.connection() as conn:
        if asked.filter is not None:
            return answers.json(_by_filter(conn, asked, acts.LIVE, many.cancel_all), code)
        ids = _ids(conn, asked)
        answer = acts.cancel(conn, ids, actor=asked.by, why=asked.why, dry_run=asked.dry_run)
        return answers.json(answer, code)


def _retry_ids(conn: Connection, asked: shapes.ManyRetry) -> dict[str, Any]:
    return acts.retry(
        conn,
        _ids(conn, asked),
        actor=asked.by,
        why=asked.why,
        failed_children=asked.failed_children,
        dry_run=asked.dry_run,
    )


def _ids(conn: Connection, asked: shapes.Many) -> list[str]:
    if asked.ids is None:
        msg = "give ids, or a filter"
        raise InputRefused(msg, path="ids", hint="A filter: pipeline=nightly,since=2h")
    return acts.whole_ids(conn, asked.ids)


def _by_filter(conn: Connection, asked: shapes.Many, only: Any, act: Any) -> dict[str, Any]:
    if asked.ids is not None:
        msg = "give ids or a filter, not both"
        raise InputRefused(msg, path="filter")
    wanted = many.parse(conn, asked.filter or "")
    chosen = many.choose(conn, wanted, only=only, most=asked.limit)
    answer = {**chosen.to_json(), "dry_run": asked.dry_run}
    if not asked.dry_run:
        answer |= act(conn, chosen, actor=asked.by, why=asked.why).to_json()
    return answer
