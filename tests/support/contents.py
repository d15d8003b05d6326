"""Contents as tests look at them: what a payload holds, and whether every count is true."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from suimon.db.connect import Connection, transaction
from suimon.store import objects, payload
from suimon.store.payload import Kept

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
       coalesce(sum(stored) filter (where body is null and refs > 0), 0),
       coalesce(sum(stored) filter (where body is not null or refs > 0), 0)
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


def text_of(seed: int, size: int) -> str:
    """JSON text of that many characters which hardly gets smaller; the same for the same seed."""
    return (
        '"' + random.Random(seed).randbytes(size // 2).hex()[: size - 2].ljust(size - 2, "0") + '"'
    )


def keep(conn: Connection, *given: tuple[str, str, str]) -> None:
    """References (run, name, text) in one transaction of their own, as every writer does it."""

    def act(kept: Kept) -> None:
        with transaction(conn):
            kept.write(conn)
            payload.refer(conn, [(run, name, kept[text]) for run, name, text in given])

    payload.keeping(conn, [text for _, _, text in given], act)


class ObjectStore:
    """A folder that is an object store; it can go away and come back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"file://{folder}"
        self._gone = folder.with_name(folder.name + "-gone")
        folder.mkdir()
        (folder / objects.MARK).touch()

    def use(self, conn: Connection) -> None:
        """Large contents go here from now on, as the operator's command does it."""
        conn.execute("update suimon.store set object_url = %s", (self.url,))

    def names(self) -> set[str]:
        return {file.name for file in self.folder.iterdir()} - {objects.MARK}

    def go(self) -> None:
        """Its share is not mounted any more: there is an empty folder in its place."""
        self.folder.rename(self._gone)
        self.folder.mkdir()

    def come_back(self) -> None:
        """Nothing was put beneath the mount meanwhile; this process asks it again at once."""
        self.folder.rmdir()
        self._gone.rename(self.folder)
        objects._away.clear()
