"""Contents as tests look at them: what a payload holds, and whether every count is true."""

from __future__ import annotations

from typing import Any

from suimon.db.connect import Connection
from suimon.store import payload

_REFERENCES = """
select c.sha256, c.refs, coalesce(r.n, 0) as true_refs from suimon.contents c
full join (select sha256, count(*) as n from (select sha256 from suimon.payloads
           union all select sha256 from suimon.artifacts) x group by sha256) r
  on r.sha256 = c.sha256
where c.refs is distinct from coalesce(r.n, 0)"""
_USAGE = """
select (select sum(db_bytes) from suimon.store_usage),
       (select sum(object_bytes) from suimon.store_usage), suimon.store_bytes()"""
_TRUE_USAGE = """
select coalesce(sum(stored) filter (where body is not null), 0),
       coalesce(sum(stored) filter (where body is null), 0), coalesce(sum(stored), 0)
from suimon.contents"""


def read_payload(conn: Connection, run: str, name: str) -> bytes | None:
    """The raw bytes of one payload, wherever they are."""
    row = conn.execute(
        "select sha256 from suimon.payloads where run_id = %s and name = %s", (run, name)
    ).fetchone()
    return None if row is None else payload.read(conn, [row[0]])[row[0]]


def wrong_counts(conn: Connection) -> list[Any]:
    """Contents whose counter is not the number of their references, and sums that are not true."""
    found: list[Any] = conn.execute(_REFERENCES).fetchall()
    said, true = conn.execute(_USAGE).fetchone(), conn.execute(_TRUE_USAGE).fetchone()
    if said != true:
        found.append((said, true))
    short = "select sha256 from suimon.contents where body is not null and stored <> length(body)"
    return found + conn.execute(short).fetchall()
