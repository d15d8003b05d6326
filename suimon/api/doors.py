"""The doors over HTTP: triggers and their schedules, deliveries and dead letters, events."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Body, Path, Query, Response
from pydantic import Field

from suimon.api import answers, shapes
from suimon.api.common import Place, gives, router
from suimon.api.shapes import Act, Asked, Name, Text
from suimon.db.connect import Connection
from suimon.errors import InputRefused, NotThere
from suimon.outbox import dead_letter
from suimon.outbox import emit as events
from suimon.run import submit
from suimon.run.read import as_json
from suimon.triggers import again as once_more
from suimon.triggers import file_explain, files, schedules

api = router("doors")

TriggerId = Annotated[int, Path(ge=1, le=shapes.HIGHEST_ID)]
DeliveryId = Annotated[str, Path(max_length=64)]
State = Literal["waiting", "delivered", "folded", "missed", "refused", "dead", "discarded"]


# ------------------------------------------------------------------------------- triggers


class TriggersQuery(shapes.Query):
    pipeline: Name | None = None
    all: bool = False


class NextQuery(shapes.Query):
    pipeline: Name | None = None
    count: Annotated[int, Field(ge=1, le=100)] = 5


class RunNow(Asked):
    queue: bool = False


class OneFile(Act):
    """An absolute path as the server sees it, or the URL of an object."""

    file: Annotated[str, Field(min_length=1, max_length=4096)]
    trigger: Annotated[int | None, Field(ge=1, le=shapes.HIGHEST_ID)] = None


@api.get("/triggers", responses=gives(shapes.Page))
def triggers(asked: Annotated[TriggersQuery, Query()], place: Place) -> Response:
    """Triggers with what waits at each, and what hinders it; at most 1,000."""
    with place.connection() as conn:
        found = files.listed(conn, pipeline=asked.pipeline, retired=asked.all)
    return answers.json({"items": [_plain(one) for one in found], "next_cursor": None})


@api.get("/triggers/{trigger}", responses=gives(shapes.Thing))
def trigger_(trigger: TriggerId, place: Place) -> Response:
    """One trigger with its last 20 deliveries."""
    with place.connection() as conn:
        found = files.listed(conn, trigger=trigger)
        if not found:
            msg = f"there is no trigger {trigger}"
            raise NotThere(msg, hint="List them: GET /api/v1/triggers")
        latest = files.latest(conn, trigger)
    return answers.json({**_plain(found[0]), "deliveries": [_plain(one) for one in latest]})


@api.get("/schedules", responses=gives(shapes.Page))
def planned(asked: Annotated[NextQuery, Query()], place: Place) -> Response:
    """The next instants of each schedule."""
    with place.connection() as conn:
        if asked.pipeline is not None:
            submit.target(conn, asked.pipeline)
        found = schedules.planned(conn, asked.pipeline, count=asked.count)
    return answers.json({"items": [one.to_json() for one in found], "next_cursor": None})


@api.post("/triggers/{trigger}/run", status_code=201, responses=gives(shapes.Thing, 201))
def run_now(
    trigger: TriggerId, place: Place, asked: Annotated[RunNow | None, Body()] = None
) -> Response:
    """Start the pipeline of a schedule now, as if its instant had come."""
    given = asked or RunNow()
    with place.connection() as conn:
        run = schedules.start_now(conn, trigger, queue=given.queue)
    if run is None:
        msg = f"there is no schedule {trigger}"
        raise NotThere(msg, hint="List them: GET /api/v1/schedules")
    return answers.json({"id": run}, 201, {"Location": f"/api/v1/runs/{run}"})


@api.post("/files/explain", responses=gives(shapes.Page))
def explain(asked: OneFile, place: Place) -> Response:
    """Why a file was taken, or why not, at each FILE trigger; as this server sees it."""
    with place.connection() as conn:
        found = file_explain.explain(conn, _absolute(asked.file), trigger=asked.trigger)
    items = [
        {
            "trigger": one.trigger.id,
            "pipeline": one.trigger.pipeline,
            "name": one.trigger.name,
            "code": one.code,
            "why": one.why,
            "key": one.key,
            "note": one.trigger.note,
            "deliveries": [_plain(each) for each in one.deliveries],
        }
        for one in found
    ]
    return answers.json({"items": items, "next_cursor": None})


@api.post("/files/again", responses=gives(shapes.Thing, 202))
def file_again(asked: OneFile, place: Place) -> Response:
    """Process a file again, as it is now: a new delivery at each trigger that means it."""
    with place.connection() as conn:
        made = file_explain.again(
            conn, _absolute(asked.file), trigger=asked.trigger, actor=asked.by, why=asked.why
        )
    items = [
        {"trigger": one.trigger.id, "pipeline": one.trigger.pipeline, "key": one.key}
        for one in made
    ]
    return answers.json({"items": items, "next_cursor": None}, 202)


def _absolute(path: str) -> str:
    if not path.startswith("/") and "://" not in path:
        msg = "the path is not absolute"
        raise InputRefused(msg, path="file", hint="/srv/inbox/a.csv, or the URL of an object.")
    return path


# ------------------------------------------------------------------------------- deliveries


class DeliveriesQuery(shapes.Paged):
    state: list[State] = Field(default_factory=list, max_length=7)
    pipeline: Name | None = None
    trigger: Text | None = None
    since_s: Annotated[float | None, Field(ge=0, le=10_000_000_000)] = None


class GroupsQuery(shapes.Query):
    pipeline: Name | None = None


class Chosen(Act):
    ids: Annotated[list[Text], Field(min_length=1, max_length=dead_letter.IDS)]


class Requeue(Act):
    """Ids (one of them may have another ``input``), or all of a ``code`` or a pipeline."""

    ids: Annotated[list[Text] | None, Field(min_length=1, max_length=dead_letter.IDS)] = None
    code: Text | None = None
    pipeline: Name | None = None
    all: bool = False
    input: Any = None
    dry_run: bool = False


@api.get("/deliveries", responses=gives(shapes.Page))
def deliveries(asked: Annotated[DeliveriesQuery, Query()], place: Place) -> Response:
    """What arrived at the doors, newest first."""
    question = asked.model_dump(mode="json", exclude={"limit", "cursor"}) | {"of": "deliveries"}
    before = answers.place_of(asked.cursor, question, answers.is_id)
    with place.connection() as conn:
        found = dead_letter.listed(
            conn,
            states=asked.state,
            pipeline=asked.pipeline,
            trigger=asked.trigger,
            since_s=asked.since_s,
            before=before,
            limit=asked.limit,
        )
    more = found[-1]["id"] if len(found) == asked.limit else None
    return answers.page(found, question, more)


@api.get("/dead-letters/groups", responses=gives(shapes.Page))
def groups(asked: Annotated[GroupsQuery, Query()], place: Place) -> Response:
    """Dead letters by cause, the largest group first."""
    with place.connection() as conn:
        found = dead_letter.groups(conn, pipeline=asked.pipeline)
    return answers.json({"items": [one.to_json() for one in found], "next_cursor": None})


@api.get("/deliveries/{delivery}", responses=gives(shapes.Thing))
def delivery_(delivery: DeliveryId, place: Place) -> Response:
    """One delivery, with what it brought and why it waits or died."""
    with place.connection() as conn:
        return answers.json(dead_letter.show(conn, dead_letter.resolve(conn, delivery)))


@api.post("/deliveries/{delivery}/again", status_code=201, responses=gives(shapes.Thing, 201))
def again(
    delivery: DeliveryId, place: Place, asked: Annotated[Act | None, Body()] = None
) -> Response:
    """Process a delivered or refused one once more: a new delivery, with a run of its own."""
    given = asked or Act()
    with place.connection() as conn:
        full = dead_letter.resolve(conn, delivery)
        new = once_more.again(conn, full, actor=given.by, why=given.why)
    return answers.json({"id": new, "again_of": full}, 201)


@api.post("/dead-letters/requeue", responses=gives(shapes.Thing))
def requeue(asked: Requeue, place: Place) -> Response:
    """Try dead letters again, each at the place of its arrival."""
    by_cause = asked.all or asked.code is not None
    edited = "input" in asked.model_fields_set
    if (asked.ids is not None) == by_cause or (edited and len(asked.ids or ()) != 1):
        msg = "give ids, or a code, or all; an input goes with one id"
        raise InputRefused(msg, path="ids", hint="The causes: GET /api/v1/dead-letters/groups")
    with place.connection() as conn:
        if asked.ids is None:
            return answers.json(_requeue_all(conn, asked))
        full = [dead_letter.resolve(conn, one) for one in asked.ids]
        if not asked.dry_run and edited:
            dead_letter.requeue_edited(conn, full[0], asked.input, actor=asked.by, why=asked.why)
        elif not asked.dry_run:
            dead_letter.requeue(conn, full, actor=asked.by, why=asked.why)
    done = 0 if asked.dry_run else len(full)
    return answers.json({"requeued": done, "dry_run": asked.dry_run, "ids": full})


def _requeue_all(conn: Connection, asked: Requeue) -> dict[str, Any]:
    count = dead_letter.count_dead(conn, code=asked.code, pipeline=asked.pipeline)
    done = 0
    if not asked.dry_run and count:
        done = dead_letter.requeue_all(
            conn, code=asked.code, pipeline=asked.pipeline, actor=asked.by, why=asked.why
        )
    more = count >= dead_letter.MANY
    return {"requeued": done, "dry_run": asked.dry_run, "dead": count, "more": more}


@api.post("/dead-letters/discard", responses=gives(shapes.Thing))
def discard(asked: Chosen, place: Place) -> Response:
    """Give dead letters up; for seven days they can be restored."""
    with place.connection() as conn:
        full = [dead_letter.resolve(conn, one) for one in asked.ids]
        done = dead_letter.discard(conn, full, actor=asked.by, why=asked.why)
    return answers.json({"discarded": done})


@api.post("/dead-letters/restore", responses=gives(shapes.Thing))
def restore(asked: Chosen, place: Place) -> Response:
    """Take a discard back."""
    with place.connection() as conn:
        full = [dead_letter.resolve(conn, one) for one in asked.ids]
        done = dead_letter.restore(conn, full, actor=asked.by, why=asked.why)
    return answers.json({"restored": done})


# ------------------------------------------------------------------------------- events


class Event(Asked):
    type: Annotated[str, Field(min_length=1, max_length=200)]
    payload: Any = Field(default_factory=dict)
    key: Annotated[str | None, Field(min_length=1, max_length=1024)] = None


@api.post("/events", status_code=202, responses=gives(shapes.Thing, 202))
def emit(asked: Event, place: Place) -> Response:
    """Tell of an event; pipelines that listen start. The same key again is the same event."""
    with place.connection() as conn:
        event = events.emit(conn, asked.type, asked.payload, key=asked.key)
        listeners = events.listeners(conn, asked.type)
    told = [{"pipeline": pipeline, "trigger": name} for pipeline, name in listeners]
    return answers.json({"event_id": event, "listeners": told}, 202)


def _plain(one: dict[str, Any]) -> dict[str, Any]:
    return {name: as_json(value) for name, value in one.items()}
