"""Where the bytes are: tables, and what each pipeline's payloads, logs and artifacts take.

Sizes of tables are exact. Those of pipelines are exact for small tables; of a table with more than
about 100,000 rows a sample is read and scaled up, and the answer says so.
"""

from __future__ import annotations

from typing import Any, Final

from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.run import pressure
from suimon.run.read import named

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
        "estimated": estimated,
        "store": pressure.state(conn),
    }


def _by_pipeline(conn: Connection) -> tuple[list[dict[str, Any]], list[str]]:
    found: dict[str, dict[str, Any]] = {}
    estimated = []
    for table in LARGE:
        row = conn.execute(SQL.portion, {"name": table}).fetchone()
        percent = float(row[0]) if row else 100.0
        if percent < 100:
            estimated.append(table)
        for pipeline, count, size in conn.execute(SQL[table], {"percent": percent}).fetchall():
            nothing = {f"{name}_bytes": 0 for name in LARGE} | dict.fromkeys(LARGE, 0)
            one = found.setdefault(pipeline, {"pipeline": pipeline, **nothing})
            one[table], one[f"{table}_bytes"] = int(count), int(size)

    def whole(one: dict[str, Any]) -> int:
        return -sum(int(one[f"{name}_bytes"]) for name in LARGE)

    return sorted(found.values(), key=whole), estimated
