"""Files and the database: what is known, what has arrived, what a run is given.

The key of a run is the version of its file (path, size, time, inode), or, for ``dedupe="content"``,
the hash of what is in it: then the same content is the same run of the pipeline under any name and
at any of its FILE triggers. Known is what has such a key in ``idempotency_keys`` (they outlive
their runs) or a delivery. Whether two processes store the same file at once does not matter.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from suimon.core import jsonsafe
from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.read.names import path_text, shown
from suimon.triggers import file_rules, fire
from suimon.triggers.file_rules import Rules
from suimon.triggers.fire import Arrival, Trigger
from suimon.triggers.listing import Seen
from suimon.triggers.settling import mark_of

SQL = statements(__package__, "files.sql")

CONTENT: Final = "content:"
#: Files of one statement.
BATCH: Final = fire.BATCH
SOURCE_CHARACTERS: Final = 500
NOTE_CHARACTERS: Final = 2_000
_PIECE: Final = 1024 * 1024
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def known(
    conn: Connection, trigger: Trigger, seen: Sequence[Seen], *, by_content: bool
) -> set[Seen]:
    """Those of at most ``BATCH`` files that were taken already."""
    where: dict[str, Any] = {"trigger": trigger.id, "pipeline": trigger.pipeline}
    if by_content:
        marks = {mark_of(each): each for each in seen}
        rows = conn.execute(SQL.known_marks, {**where, "marks": list(marks)}).fetchall()
        return {marks[bytes(row[0])] for row in rows}
    keys = {each.version: each for each in seen}
    rows = conn.execute(SQL.known_keys, {**where, "keys": list(keys)}).fetchall()
    return {keys[row[0]] for row in rows}


def take(
    conn: Connection,
    trigger: Trigger,
    rules: Rules,
    found: Sequence[tuple[Seen, str]],
    *,
    host: str,
) -> int:
    """Store the arrivals of these (file, key), in this order; returns how many are new."""
    if (rules.done is not None or rules.failed is not None) and found:
        keep_moves(conn, trigger, found, host=host)
    new = fire.arrive(conn, trigger, [arrival(seen, key) for seen, key in found])
    if rules.by_content and found:
        marks = {
            "trigger": trigger.id,
            "marks": [mark_of(seen) for seen, _ in found],
            "keys": [key for _, key in found],
        }
        conn.execute(SQL.keep_marks, marks)
    return new


def keep_moves(
    conn: Connection, trigger: Trigger, found: Iterable[tuple[Seen, str]], *, host: str
) -> None:
    """These files are to be moved when their runs have ended."""
    rows = [(key, s.path, s.size, s.mtime_ns, s.inode, s.version) for s, key in found]
    columns = map(list, zip(*rows, strict=True))
    names = ("keys", "paths", "sizes", "mtimes", "inodes", "versions")
    params = dict(zip(names, columns, strict=True))
    conn.execute(SQL.keep_moves, {"trigger": trigger.id, "host": host, **params})


def arrival(seen: Seen, key: str) -> Arrival:
    return Arrival(
        input=jsonsafe.dumps(given(seen), what="the file's input"),
        source=source(seen.path),
        key=key,
        detail={"version": seen.version},
    )


def given(seen: Seen) -> dict[str, Any]:
    """The input of a run that a file started."""
    folder, _, name = seen.path.rpartition(b"/")
    return {
        "path": _place(seen.path),
        "folder": _place(folder or b"/"),
        "name": shown(name),
        "size": seen.size,
        "mtime": _time(seen.mtime_ns),
        "event_id": seen.version,
    }


def _place(path: bytes) -> str:
    """A path as text that leads back to it; the URL of an object is text already."""
    return path_text(path) if path.startswith(b"/") else path.decode()


def source(path: bytes) -> str:
    """The path for people; of a long one the end, which tells files apart."""
    text = shown(path)
    return text if len(text) <= SOURCE_CHARACTERS else "…" + text[1 - SOURCE_CHARACTERS :]


def again_key(key: str) -> str:
    """The key of one more run for the same file."""
    return f"{key}:again:{uuid.uuid4()}"


def content_key(seen: Seen) -> str | None:
    """The key of what is in the file; None when it is not that version any more.

    Raises OSError. Read in pieces, so that its size does not matter.
    """
    digest = hashlib.sha256()
    fd = os.open(seen.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
        status = os.fstat(file.fileno())
    same = (status.st_size, status.st_mtime_ns) == (seen.size, seen.mtime_ns)
    same = same and status.st_ctime_ns == seen.changed_ns
    return CONTENT + digest.hexdigest() if same else None


def set_note(conn: Connection, trigger: Trigger, note: str | None) -> None:
    text = None if note is None else note[:NOTE_CHARACTERS]
    conn.execute(SQL.note, {"trigger": trigger.id, "note": text})


def listed(
    conn: Connection,
    *,
    pipeline: str | None = None,
    trigger: int | None = None,
    retired: bool = False,
) -> list[dict[str, Any]]:
    """Triggers of all kinds for people; at most 1,000."""
    where = {"pipeline": pipeline, "id": trigger, "all": retired}
    cursor = conn.execute(SQL.listed, where)
    return _rows(cursor)


def latest(conn: Connection, trigger: int) -> list[dict[str, Any]]:
    """The last 20 deliveries of one trigger."""
    return _rows(conn.execute(SQL.latest, {"id": trigger}))


def folders(conn: Connection) -> list[str]:
    """The folders that FILE triggers watch or watched; at most 1,000."""
    paths = conn.execute(SQL.paths).fetchall()
    found = {file_rules.folder_of({"path": row[0]}) for row in paths}
    return sorted(folder for folder in found if folder is not None)


def _rows(cursor: Any) -> list[dict[str, Any]]:
    names = [column.name for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def rows_of(conn: Connection, statement: Any, where: Mapping[str, Any]) -> list[dict[str, Any]]:
    return _rows(conn.execute(statement, where))


def _time(ns: int) -> str:
    moment = _EPOCH + timedelta(microseconds=ns // 1000)
    return moment.isoformat(timespec="microseconds")
