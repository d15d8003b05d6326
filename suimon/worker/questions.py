"""What a task asks its worker for while it runs: pages of a merge, checkpoints, parts of artifacts.

The slot has no database; it asks over its pipe and the worker answers for this one run, under its
fence. A run sees the fan-outs that are its own (or its parent's, for a child that was given a
merge) and nothing else.

    children        a page of a merge's children
    checkpoint_get  what a part of this task left in an earlier try
    checkpoint_put  remember a part; answered only after it is stored
    artifact_part   one part of a file, at most 1 MiB
    turn            the right to call a destination (and turn_over, turn_held: `turns`)
    folders         where a path of an input may lead
"""

from __future__ import annotations

import base64
import functools
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import orjson

from suimon.db.connect import Connection
from suimon.read.fence import is_within
from suimon.run import step, stream
from suimon.triggers import files
from suimon.worker import wire

if TYPE_CHECKING:
    from suimon.worker.held import Held
    from suimon.worker.worker import Worker

log = logging.getLogger("suimon.worker")

PART_BYTES: Final = 1024 * 1024
PARTS: Final = 256
NAME_CHARS: Final = 200
TURNS: Final = ("turn", "turn_over", "turn_held")


class NotYoursError(Exception):
    """A run asked for what is not its own, or in words that nobody knows."""


class Questions:
    """Answers the questions of one worker's slots."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def ask(self, token: int, body: dict[str, Any]) -> None:
        """Look it up on the desk's connection, and answer the slot."""
        held = self._worker.tokens.get(token)
        if held is None:
            return
        if body.get("op") in TURNS:
            self._turn(held, body)
            return
        if held.gone:
            return
        number = body["q"]
        try:
            work = self._work(held, body)
        except (NotYoursError, KeyError, ValueError, TypeError) as error:
            self._worker.send_to_slot(held, wire.refuse(number, "Refused", str(error)))
            return

        def refuse(error: Exception) -> None:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            self._worker.send_to_slot(held, wire.refuse(number, type(error).__name__, text))

        self._worker.desk.ask(
            work, lambda found: self._worker.send_to_slot(held, wire.answer(number, found)), refuse
        )

    def _turn(self, held: Held, body: dict[str, Any]) -> None:
        """At a destination: what is told is heard of a lost run too, for it frees a place."""
        held.asks_turns = True
        if not held.gone or body["op"] != "turn":
            self._worker.turns.asked(held, body)

    def _work(self, held: Held, body: dict[str, Any]) -> Callable[[Connection], Any]:
        match body.get("op"):
            case "children":
                return functools.partial(
                    _children,
                    run_id=held.run.id,
                    own_fanout=held.run.fanout_id,
                    fanout=int(body["fanout"]),
                    which=str(body["which"]),
                    after=int(body["after"]),
                    limit=int(body["limit"]),
                )
            case "checkpoint_get":
                return functools.partial(
                    _checkpoint, run_id=held.run.id, vertex=_vertex(held), name=_name(body)
                )
            case "checkpoint_put":
                return functools.partial(
                    step.keep_checkpoint,
                    holder=self._worker.holder(held),
                    vertex=_vertex(held),
                    name=_name(body),
                    value=orjson.dumps(body["value"]).decode(),
                )
            case "artifact_part":
                part, data = int(body["part"]), base64.b64decode(body["data"])
                if not 0 <= part < PARTS or len(data) > PART_BYTES:
                    msg = f"an artifact has at most {PARTS} parts of 1 MiB"
                    raise NotYoursError(msg)
                return functools.partial(
                    step.keep_part,
                    holder=self._worker.holder(held),
                    vertex=_vertex(held),
                    name=_name(body),
                    part=part,
                    body=data,
                    last=bool(body["last"]),
                )
            case "folders":
                return functools.partial(
                    _folders,
                    path=str(body["path"]),
                    run=f"run {held.run.id} of {held.run.pipeline}",
                    allowed=self._worker.options.read_folders,
                )
            case other:
                msg = f"nobody knows the question {other!r}"
                raise NotYoursError(msg)


def _vertex(held: Held) -> str:
    assert held.program is not None
    return str(held.program.definition["vertex"])


def _name(body: dict[str, Any]) -> str:
    name = body["name"]
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS or "\0" in name:
        msg = f"a name is text of 1 to {NAME_CHARS} characters"
        raise NotYoursError(msg)
    return name


def _checkpoint(conn: Connection, *, run_id: str, vertex: str, name: str) -> dict[str, Any]:
    value = step.checkpoint(conn, run_id, vertex, name)
    return {"found": value is not None, "value": None if value is None else orjson.Fragment(value)}


def _children(
    conn: Connection,
    *,
    run_id: str,
    own_fanout: int | None,
    fanout: int,
    which: str,
    after: int,
    limit: int,
) -> list[list[Any]]:
    """One page of a fan-out that this run may see."""
    mine = stream.visible_to(conn, run_id, own_fanout, fanout)
    if mine is None:
        msg = "this run has no such fan-out"
        raise NotYoursError(msg)
    rows = stream.page(conn, fanout, mine, which, after, limit)
    return [[p, k, s, _json(value), _json(error), i] for p, k, s, value, error, i in rows]


def _folders(conn: Connection, *, path: str, run: str, allowed: tuple[str, ...]) -> list[str]:
    """The operator's folders and those of FILE triggers; who asks for another one is logged."""
    found = [*allowed, *files.folders(conn)]
    if not is_within(path, [os.path.realpath(folder) for folder in found]):
        log.warning('%s may not read "%s"', run, path.encode("utf-8", "backslashreplace").decode())
    return found


def _json(text: str | None) -> Any:
    return None if text is None else orjson.Fragment(text)
