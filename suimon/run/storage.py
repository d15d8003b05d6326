"""Where the bytes are: tables, and what each pipeline's payloads, logs and artifacts take; and
the object store for the largest of them.

Sizes of tables are exact. Those of pipelines are exact for small tables; of a table with more than
about 100,000 rows a sample is read and scaled up, and the answer says so.
"""

from __future__ import annotations

from typing import Any, Final

from suimon.db.connect import Connection, retrying, transaction
from suimon.db.statements import statements
from suimon.run import audit, pressure
from suimon.run.read import named
from suimon.store import objects

SQL = statements(__package__, "storage.sql")

LARGE: Final = ("payloads", "logs", "artifacts")


def overview(conn: Connection) -> dict[str, Any]:
    """``{database, tables, pipelines, estimated, store}``, sizes in bytes."""
    names = ("name", "total", "rows", "indexes", "large", "live", "dead")
    row = conn.execute(SQL.database).fetchone()
    assert row is not None
    pipelines, estimated = _by_pipeline(conn)
    return {
        "database": int(row[0]),
        "tables": [named(names, one) for one in conn.execute(SQL.tables).fetchall()],
        "pipelines": pipelines,
        "contents": contents(conn),
        "estimated": estimated,
        "store": pressure.state(conn),
    }


def contents(conn: Connection) -> dict[str, Any]:
    """What payloads and artifacts take, once for all that refer to them; sizes in bytes.

    The two sums and ``objects`` (the URL where large ones go) are exact, the rest is scaled up from
    a sample of a large table.
    """
    percent = _percent(conn, "contents")
    row = conn.execute(SQL.contents, {"percent": percent}).fetchone()
    usage = conn.execute(SQL.usage).fetchone()
    assert row is not None
    assert usage is not None
    names = ("count", "raw_bytes", "stored_bytes", "references", "in_objects")
    found = {name: int(value) for name, value in zip(names, row, strict=True)}
    raw, stored, count = found["raw_bytes"], found["stored_bytes"], found["count"]
    return {
        **found,
        "ratio": round(raw / stored, 2) if stored else None,
        "shared": round(found["references"] / count, 2) if count else None,
        "db_bytes": int(usage[0]),
        "object_bytes": int(usage[1]),
        "objects": usage[2],
        "estimated": percent < 100,
    }


def set_objects(conn: Connection, url: str | None, *, actor: str, why: str = "") -> dict[str, Any]:
    """Name the object store for contents of 64 KiB and more; None: they stay in the database.

    What is stored stays where it is, and readable. Raises InputRefused for a URL that cannot be
    used, StoreUnavailable for a store that this process cannot write to.
    """
    plain = None if url is None else objects.checked(url)

    def act() -> None:
        with transaction(conn):
            before = conn.execute(SQL.objects).fetchone()
            assert before is not None
            conn.execute(SQL.set_objects, {"url": plain})
            detail = {"before": before[0], "after": plain}
            audit.note(conn, "storage", ["objects"], actor=actor, why=why, detail=detail)

    retrying(act)
    return contents(conn)


def _percent(conn: Connection, table: str) -> float:
    """How much of a table a sample may read."""
    row = conn.execute(SQL.portion, {"name": table}).fetchone()
    return float(row[0]) if row else 100.0


def _by_pipeline(conn: Connection) -> tuple[list[dict[str, Any]], list[str]]:
    found: dict[str, dict[str, Any]] = {}
    estimated = []
    for table in LARGE:
        percent = _percent(conn, table)
        if percent < 100:
            estimated.append(table)
        for pipeline, count, size in conn.execute(SQL[table], {"percent": percent}).fetchall():
            nothing = {f"{name}_bytes": 0 for name in LARGE} | dict.fromkeys(LARGE, 0)
            one = found.setdefault(pipeline, {"pipeline": pipeline, **nothing})
            one[table], one[f"{table}_bytes"] = int(count), int(size)

    def whole(one: dict[str, Any]) -> int:
        return -sum(int(one[f"{name}_bytes"]) for name in LARGE)

    return sorted(found.values(), key=whole), estimated
