"""The files that tasks published (``ctx.artifact``), as people and programs get them out.

An artifact is seen once the try that wrote it has ended its step well. It is read part by part, at
most 1 MiB at a time, so nobody holds a whole file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.errors import Conflict, InputRefused, NotThere
from suimon.run.read import as_json
from suimon.store import payload

SQL = statements(__package__, "artifacts.sql")


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file of a run; ``size`` in bytes."""

    run_id: str
    vertex: str
    name: str
    claim_no: int
    parts: int
    size: int
    at: datetime

    def to_json(self) -> dict[str, Any]:
        names = ("run_id", "vertex", "name", "size", "at")
        return {name: as_json(getattr(self, name)) for name in names}


def listed(conn: Connection, run_id: str) -> list[Artifact]:
    """What this run (not its children) has published, at most 1,000, by vertex and name."""
    return _visible(conn, run_id, None, None)


def one(conn: Connection, run_id: str, name: str, vertex: str | None = None) -> Artifact:
    """The artifact of that name. Raises NotThere; InputRefused when several vertices have it."""
    found = _visible(conn, run_id, name, vertex)
    if len(found) == 1:
        return found[0]
    if found:
        msg = f'several vertices of run {run_id} have an artifact "{name}"'
        names = ", ".join(artifact.vertex for artifact in found)
        raise InputRefused(msg, path="vertex", hint=f"Name one of: {names}.")
    msg = f'run {run_id} has no artifact "{name}"' + (f' of vertex "{vertex}"' if vertex else "")
    hint = f"List them: suimon runs artifacts {run_id}"
    raise NotThere(msg, detail="It is there once its step has succeeded.", hint=hint)


def part(conn: Connection, artifact: Artifact, number: int) -> bytes:
    """Its part with this number, from 0 to ``parts`` - 1.

    Raises Conflict when it is not there any more, and StoreUnavailable.
    """
    where = {
        "run": artifact.run_id,
        "vertex": artifact.vertex,
        "name": artifact.name,
        "claim_no": artifact.claim_no,
        "part": number,
    }
    row = conn.execute(SQL.part, where).fetchone()
    found = None if row is None else payload.read(conn, [row[0]]).get(row[0])
    if found is None:
        msg = f'artifact "{artifact.name}" of run {artifact.run_id} went while it was read'
        raise Conflict(msg, hint="Its run was pruned, or its step is being done again.")
    return found


def pieces(conn: Connection, artifact: Artifact) -> Iterator[bytes]:
    """All its parts in order. Raises as ``part`` does."""
    for number in range(artifact.parts):
        yield part(conn, artifact, number)


def _visible(conn: Connection, run_id: str, name: str | None, vertex: str | None) -> list[Artifact]:
    where = {"run": run_id, "name": name, "vertex": vertex}
    rows = conn.execute(SQL.visible, where).fetchall()
    return [Artifact(run_id, *row) for row in rows]
