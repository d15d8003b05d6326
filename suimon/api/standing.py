"""Over HTTP: what stands still on purpose, who is told of what, secrets without their values."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from fastapi import Body, Query, Request, Response
from pydantic import Field

from suimon.api import answers, shapes
from suimon.api.common import Named, Place, gives, router
from suimon.api.shapes import Act, Name, Text
from suimon.core import secret_names, words
from suimon.db.connect import Connection, retrying, transaction
from suimon.errors import Conflict, NotThere, SecretMissing
from suimon.outbox import notify
from suimon.run import audit
from suimon.run import pause as pauses
from suimon.store import secret, secret_uses

api = router("standing")

_SHOWN = 20


# ------------------------------------------------------------------------------- pauses


class Pause(Act):
    kind: Literal["pipeline", "trigger", "pool", "destination"]
    name: Annotated[str, Field(min_length=1, max_length=500)]
    triggers_only: bool = False


@api.get("/pauses", responses=gives(shapes.Page))
def paused(place: Place) -> Response:
    """What is paused, oldest first: by whom, since when, why, and what ends it."""
    with place.connection() as conn:
        return answers.json({"items": pauses.listed(conn), "next_cursor": None})


@api.post("/pauses", responses=gives(shapes.Thing))
def pause(asked: Pause, place: Place) -> Response:
    """Let nothing of it start; what runs goes on to its end."""
    with place.connection() as conn:
        what = f"{asked.kind}:{asked.name}"
        made = pauses.pause(conn, what, asked.by, asked.why, triggers_only=asked.triggers_only)
    return answers.json(made)


@api.post("/pauses/resume", responses=gives(shapes.Thing))
def resume(asked: Pause, place: Place) -> Response:
    """Let it go on, with all that waited for it."""
    with place.connection() as conn:
        what = f"{asked.kind}:{asked.name}"
        made = pauses.resume(conn, what, asked.by, asked.why, triggers_only=asked.triggers_only)
    return answers.json(made)


# ------------------------------------------------------------------------------- channels


class Channel(Act):
    """A webhook (with a reference to the secret that signs it) or e-mail addresses."""

    name: Name
    webhook: Annotated[str | None, Field(max_length=2000)] = None
    email: Annotated[str | None, Field(max_length=2000)] = None
    secret: Annotated[str | None, Field(max_length=1000)] = None
    kinds: Annotated[list[Text], Field(max_length=50)] = Field(default_factory=lambda: ["*"])


class NoticesQuery(shapes.Paged):
    channel: Name | None = None
    state: Literal["waiting", "sent", "dead"] | None = None


@api.get("/channels", responses=gives(shapes.Page))
def channels(place: Place) -> Response:
    """Who is told when something needs people."""
    with place.connection() as conn:
        return answers.json({"items": notify.listed(conn), "next_cursor": None})


@api.post("/channels", status_code=201, responses=gives(shapes.Thing, 201))
def add(asked: Channel, place: Place) -> Response:
    """Tell somebody of what needs people from now on."""
    with place.connection() as conn:
        notify.add(
            conn,
            asked.name,
            webhook=asked.webhook,
            email=asked.email,
            secret=asked.secret,
            kinds=asked.kinds,
            actor=asked.by,
        )
        return answers.json(notify.one(conn, asked.name), 201)


@api.get("/channels/{name}", responses=gives(shapes.Thing))
def channel(name: Named, place: Place) -> Response:
    """One channel."""
    with place.connection() as conn:
        return answers.json(notify.one(conn, name))


@api.delete("/channels/{name}", responses=gives(shapes.Thing))
def remove(name: Named, place: Place) -> Response:
    """Forget a channel, with its notices."""
    with place.connection() as conn:
        notify.remove(conn, name, actor="api")
    return answers.json({"name": name, "state": "removed", "changed": True})


@api.post("/channels/{name}/{act}", responses=gives(shapes.Thing))
def act_on(
    name: Named,
    act: Literal["enable", "disable", "test"],
    place: Place,
    asked: Annotated[Act | None, Body()] = None,
) -> Response:
    """Enable, disable, or send a notice that says nothing but that it arrived (see its log)."""
    given = asked or Act()
    with place.connection() as conn:
        if act == "test":
            return answers.json({"notice": notify.test(conn, name)}, 202)
        change = notify.enable if act == "enable" else notify.disable
        changed = change(conn, name, actor=given.by)
    return answers.json({"name": name, "state": f"{act}d", "changed": changed})


@api.get("/notices", responses=gives(shapes.Page))
def notices(asked: Annotated[NoticesQuery, Query()], place: Place) -> Response:
    """What was told and what came of it, newest first."""
    question = {"of": "notices", "channel": asked.channel, "state": asked.state}
    before = answers.place_of(asked.cursor, question, answers.is_id)
    with place.connection() as conn:
        found = notify.log(
            conn, channel=asked.channel, state=asked.state, before=before, limit=asked.limit
        )
    more = found[-1]["id"] if len(found) == asked.limit else None
    return answers.page(found, question, more)


@api.post("/notices/{notice}/again", responses=gives(shapes.Thing, 202))
def again(notice: Named, place: Place, asked: Annotated[Act | None, Body()] = None) -> Response:
    """Send a notice again that is dead or was sent."""
    given = asked or Act()
    try:
        full = str(uuid.UUID(notice))
    except ValueError:
        msg = "there is no such notice"
        raise NotThere(msg, hint="List them: GET /api/v1/notices") from None
    with place.connection() as conn:
        notify.again(conn, full, actor=given.by)
    return answers.json({"id": full, "state": "waiting"}, 202)


# ------------------------------------------------------------------------------- secrets


class Value(Act):
    value: Annotated[str, Field(min_length=4, max_length=secret.VALUE_BYTES)]


class ForceQuery(shapes.Query):
    force: bool = False


@api.get("/secrets", responses=gives(shapes.Page))
def secrets(place: Place) -> Response:
    """Names, versions, who set them and when; never a value."""
    with place.connection() as conn:
        counts: dict[str, int] = {}
        for use in secret_uses.uses(conn):
            counts[use.reference] = counts.get(use.reference, 0) + 1
        items = [
            {
                "name": one.name,
                "version": one.version,
                "key": one.key_id,
                "set_by": one.set_by,
                "set_at": one.set_at,
                "uses": counts.get(secret_names.STORED + one.name, 0),
            }
            for one in secret.listed(conn)
        ]
    return answers.json({"items": items, "next_cursor": None})


@api.put("/secrets/{name}", responses=gives(shapes.Thing))
def put(name: Named, asked: Value, request: Request, place: Place) -> Response:
    """Store a value. It is never shown again."""
    ring = request.app.state.keyring
    ring.needed()
    with place.connection() as conn:

        def act() -> int:
            with transaction(conn):
                version = secret.put(conn, ring, name, asked.value, by=audit.checked(asked.by))
                detail = {"version": version}
                audit.note(conn, "secret set", [name], actor=asked.by, why=asked.why, detail=detail)
                return version

        return answers.json({"name": name, "version": retrying(act)})


@api.delete("/secrets/{name}", responses=gives(shapes.Thing))
def forget(name: Named, asked: Annotated[ForceQuery, Query()], place: Place) -> Response:
    """Forget a secret. It is refused while a pipeline refers to it, unless `force`."""
    with place.connection() as conn:
        uses = list(secret_uses.uses(conn, secret_names.STORED + name))
        if uses and not asked.force:
            listed = "; ".join(f"{one.pipeline}: {one.where}" for one in uses[:_SHOWN])
            msg = f'the secret "{name}" is used in {words.count(len(uses), "place")}'
            raise Conflict(msg, detail=listed, hint="Deploy without it first, or ?force=true")
        if not retrying(lambda: _forget(conn, name, len(uses))):
            msg = f'there is no secret "{name}"'
            raise SecretMissing(msg, hint="List them: GET /api/v1/secrets")
    return answers.json({"name": name, "removed": True})


def _forget(conn: Connection, name: str, uses: int) -> bool:
    with transaction(conn):
        gone = secret.remove(conn, name)
        if gone:
            audit.note(conn, "secret remove", [name], actor="api", detail={"uses": uses})
        return gone


@api.get("/secrets/{name}/uses", responses=gives(shapes.Page))
def uses(name: Named, place: Place) -> Response:
    """The triggers and tasks that refer to a stored secret."""
    with place.connection() as conn:
        found = list(secret_uses.uses(conn, secret_names.STORED + name))
    items: list[dict[str, Any]] = [one.to_json() for one in found]
    return answers.json({"items": items, "next_cursor": None})
