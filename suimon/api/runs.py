"""Runs over HTTP: start, list, look, wait, read their children and their log text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Final

import orjson
from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse

from suimon.api import answers, problems, shapes
from suimon.api.common import Place, RunId, Waits, gives, router, run_of
from suimon.api.guard import Headers
from suimon.api.pool import Pool
from suimon.api.refusals import FullForNow, Malformed
from suimon.api.shapes import ChildrenQuery, LogsQuery, RunQuery, RunsQuery
from suimon.api.waiting import Waiting, ask, until
from suimon.db.connect import Connection
from suimon.errors import Conflict, InputRefused, QueueFull, QuotaExceeded
from suimon.run import by_reason, doors, logs, pages, read, submit, why
from suimon.triggers import fire

api = router("runs")

FOLLOW_LOOK_SECONDS: Final = 0.5
_FIRST: Final = logs.FROM_THE_START


@api.post("/runs", status_code=201, responses=gives(shapes.Started, 200, 201))
def start(asked: shapes.Start, request: Request, place: Place) -> Response:
    """Start a run. The header `Idempotency-Key` is the run's key: the same again, the same run."""
    key = key_of(request)
    with place.connection() as conn:
        try:
            made = doors.start(
                conn,
                asked.pipeline,
                asked.input,
                key=key,
                queue=asked.queue,
                labels=asked.labels,
            )
        except Conflict as error:
            hint = f'Start it behind that one: "queue": true. Or look: {where_of(error.run_id)}/why'
            raise Conflict(error.message, run_id=error.run_id, hint=hint) from None
        except QuotaExceeded:  # it knows itself when to ask again
            raise
        except QueueFull as error:
            raise FullForNow(error, fire.retry_after(conn, asked.pipeline)) from None
        about: dict[str, Any] = {"id": made.id, "pipeline": asked.pipeline, "status": "pruned"}
        if not made.pruned:
            about = read.run(conn, made.id).to_json()
    about |= {"duplicate": made.duplicate, "same_input": made.same_input, "pruned": made.pruned}
    where = {"Location": where_of(made.id)}
    return answers.json(about, 200 if made.duplicate else 201, where)


def where_of(run_id: str | None) -> str:
    return f"/api/v1/runs/{run_id}"


def key_of(request: Request) -> str | None:
    """The header ``Idempotency-Key`` as UTF-8. Raises Malformed."""
    found = Headers(request.scope["headers"]).all("idempotency-key")
    try:
        if len(found) > 1:
            raise ValueError
        return found[0].decode() if found else None
    except ValueError:
        msg = "the header Idempotency-Key cannot be read"
        raise Malformed(msg, hint="Once, in UTF-8.") from None


@api.get("/runs", responses=gives(shapes.Page))
def listed(asked: Annotated[RunsQuery, Query()], place: Place) -> Response:
    """Runs that nobody spawned, newest first; with `reason` all that wait for it, children too."""
    question: dict[str, Any] = {
        "of": "runs",
        "pipeline": asked.pipeline,
        "status": sorted(asked.status),
        "reason": asked.reason,
    }
    if asked.label:
        question["label"] = sorted(asked.label)
    before = answers.place_of(asked.cursor, question, answers.is_id)
    with place.connection() as conn:
        if asked.pipeline is not None:
            submit.target(conn, asked.pipeline)  # a misspelt name is told, not an empty list
        if asked.reason is not None and (asked.status or asked.label):
            msg = "reason does not go together with status or label"
            raise InputRefused(msg, path="reason", hint="A run with a reason is queued or waiting.")
        if asked.reason is not None:
            found = by_reason.runs(
                conn, asked.reason, pipeline=asked.pipeline, before=before, limit=asked.limit
            )
        else:
            found = pages.runs(
                conn,
                pipeline=asked.pipeline,
                statuses=asked.status,
                labels=asked.label,
                before=before,
                limit=asked.limit,
            )
    more = found[-1]["id"] if len(found) == asked.limit else None
    return answers.page(found, question, more)


@api.get("/reasons", responses=gives(shapes.Page))
def waiting(place: Place) -> Response:
    """Why runs wait: how many for each reason, the most frequent first."""
    with place.connection() as conn:
        return answers.json({"items": by_reason.groups(conn), "next_cursor": None})


@api.get("/runs/{run_id}", responses=gives(shapes.Run))
async def one(
    run_id: RunId, asked: Annotated[RunQuery, Query()], place: Place, waits: Waits
) -> Response:
    """One run. With `wait` the answer comes when it has ended, or after so many seconds."""
    about = await ask(place, partial(_run, run_id))
    if asked.wait and about.ended is False:
        await waits.until_ended(about.id, asked.wait)
        about = await ask(place, partial(_run, about.id))
    return answers.json(about.to_json())


def _run(run_id: str, conn: Connection) -> read.Run:
    return read.run(conn, run_of(conn, run_id))


@api.get("/runs/{run_id}/details", responses=gives(shapes.Run))
def details(run_id: RunId, place: Place) -> Response:
    """One run with its steps, tries, grouped errors, durations and slowest children."""
    with place.connection() as conn:
        return answers.json(read.show(conn, run_of(conn, run_id)))


@api.get("/runs/{run_id}/why", responses=gives(shapes.Thing))
def why_(run_id: RunId, place: Place) -> Response:
    """Why a run does not run, or how it ended."""
    with place.connection() as conn:
        return answers.json(why.why(conn, run_of(conn, run_id)))


@api.get("/runs/{run_id}/children", responses=gives(shapes.Page))
def children(run_id: RunId, asked: Annotated[ChildrenQuery, Query()], place: Place) -> Response:
    """The children of a run's fan-out, in item order.

    Of inputs and results above 8 KB a page has the size (`input_bytes`, `output_bytes`); with
    `position`, one child, all is there.
    """
    with place.connection() as conn:
        full = run_of(conn, run_id)
        question = {"of": full, "vertex": asked.vertex, "status": sorted(asked.status)}
        first = answers.place_of(asked.cursor, question, _is_position) or 0
        limit = asked.limit
        if asked.position is not None:
            first, limit = asked.position, 1
        fanout = pages.fanout_of(conn, full, asked.vertex)
        found = pages.children(
            conn,
            fanout,
            first=first,
            statuses=asked.status,
            limit=limit,
            whole=asked.position is not None,
        )
    rows = [one for one in found.rows if asked.position in (None, one["position"])]
    more = found.next if asked.position is None else None
    return answers.page(rows, question, more, counts=fanout.counts.to_json())


def _is_position(place: Any) -> bool:
    return type(place) is int and 0 <= place <= pages.LAST_POSITION


# ------------------------------------------------------------------------------- log text


@api.get("/runs/{run_id}/logs", responses=gives(shapes.LogPage))
async def text(
    run_id: RunId,
    asked: Annotated[LogsQuery, Query()],
    request: Request,
    place: Place,
    waits: Waits,
) -> Response:
    """Log text in its order. `after` goes on behind a piece, `wait` waits for the next one.

    With `follow` the pieces come as they are written, a line of JSON each (or as server-sent events
    where they are accepted), until the run has ended or `seconds` are over; the last line says
    where to go on.
    """
    reader = Reader(place, asked)
    over, found = await reader.begin(run_id)
    if asked.follow:
        events = "text/event-stream" in request.headers.get("accept", "")
        media = "text/event-stream" if events else "application/x-ndjson"
        stream = _followed(reader, waits, over, found, asked.seconds, events=events)
        return StreamingResponse(stream, media_type=media, headers={"Cache-Control": "no-store"})
    left = until(asked.wait)
    if not found and not over and asked.wait:
        async with waits.follower():
            while not found and not over and left() and await waits.pause(FOLLOW_LOOK_SECONDS):
                over, found = await reader.more()
    return answers.json({"items": found, "next_after": reader.place, "over": over})


class Reader:
    """Reads a run's text piece by piece; holds nothing between two looks."""

    def __init__(self, pool: Pool, asked: LogsQuery) -> None:
        self._pool, self._asked = pool, asked
        self._id = ""
        self._claims: list[int] | None = None
        claim, _, number = (asked.after or "-1:-1").partition(":")
        self._after = (int(claim), int(number))

    @property
    def place(self) -> str | None:
        """Where the next look goes on."""
        return None if self._after == _FIRST else f"{self._after[0]}:{self._after[1]}"

    async def begin(self, run_id: str) -> tuple[bool, list[dict[str, Any]]]:
        def first(conn: Connection) -> tuple[str, list[int] | None]:
            full = run_of(conn, run_id)
            if self._asked.try_ is None:
                return full, None
            return full, logs.claims_of(full, logs.tries(conn, full), self._asked.try_)

        self._id, self._claims = await ask(self._pool, first)
        return await self.more()

    async def more(self) -> tuple[bool, list[dict[str, Any]]]:
        """(Is the run over and all its text read?, the next pieces)."""

        def look(conn: Connection) -> tuple[bool, list[dict[str, Any]]]:
            return logs.look(
                conn,
                self._id,
                after=self._after,
                claims=self._claims,
                stream=self._asked.stream,
                limit=self._asked.limit,
            )

        over, found = await ask(self._pool, look)
        if found:
            self._after = (found[-1]["claim_no"], found[-1]["seq"])
        return over and len(found) < self._asked.limit, found


async def _followed(
    reader: Reader,
    waits: Waiting,
    over: bool,
    found: list[dict[str, Any]],
    seconds: float,
    *,
    events: bool,
) -> AsyncIterator[bytes]:
    """Pieces until the run is over, and a moment longer: subprocesses may be stored last."""
    left, last_looks = until(seconds), logs.LAST_LOOKS
    try:
        async with waits.follower():
            while True:  # bounded by `seconds`
                for piece in found:
                    yield _line("piece", piece, events=events)
                if over:
                    last_looks -= 1
                if last_looks < 0 or not left() or not await waits.pause(FOLLOW_LOOK_SECONDS):
                    break
                over, found = await reader.more()
        end: dict[str, Any] = {"end": True, "over": over, "next_after": reader.place}
    except Exception as error:  # noqa: BLE001 - the status is sent: it is told in the stream
        problem = problems.document(problems.known(error))
        end = {"end": True, "over": False, "next_after": reader.place, "problem": problem}
    yield _line("end", end, events=events)


def _line(kind: str, value: dict[str, Any], *, events: bool) -> bytes:
    text = orjson.dumps(value)
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), text) if events else text + b"\n"
