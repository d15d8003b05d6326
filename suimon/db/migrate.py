"""Brings a database to the schema of this version, and says whether it is there.

Migrations are the files `migrations/NNNN_name.sql`, numbered from 0001 without a gap. Each runs in
one transaction together with its row in `suimon.migrations`, so a migration that is killed in the
middle has done nothing. It waits at most two seconds for each lock, so that it never holds up the
workers behind it for long, and begins again when it got none or lost a deadlock. One advisory lock
covers the whole call: of two that start at once, the second waits and then finds nothing to do. A
file never changes once it was released; a database that was made by another text of the same file
is refused, because nobody knows what it holds.

`suimon.meta` keeps the one row that workers compare with themselves (`check_version`): the schema's
number and the version of the package that migrated last. A worker of another version claims nothing
and leaves with exit code 78, which the shipped unit does not restart. A worker that runs meets the
new number in the answer to its next heartbeat, writes nothing more and leaves in the same way.
Until then it uses the old statements: a migration may not break those of the version before it.

The advisory lock belongs to a session: run migrations over a direct connection, not through a
pooler in transaction mode.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import metadata, resources
from typing import Final

import psycopg
from psycopg.rows import TupleRow

from suimon.db.connect import Connection
from suimon.db.statements import statements
from suimon.errors import SchemaMismatch

SQL = statements(__package__, "migrate.sql")

LOCK_TRIES: Final = 30
LOCK_PAUSE_SECONDS: Final = 0.5

_FILE = re.compile(r"^(?P<number>\d{4})_(?P<name>[a-z0-9_]+)\.sql$")


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file of the package."""

    number: int
    name: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def title(self) -> str:
        return f"{self.number:04}_{self.name}"


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """One migration as the database knows it; `applied_at` is None while it is pending."""

    number: int
    name: str
    applied_at: datetime | None


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations of this package, in order."""
    found = []
    for entry in resources.files(__package__).joinpath("migrations").iterdir():
        if entry.name.endswith(".sql"):
            parts = _FILE.match(entry.name)
            assert parts, f"{entry.name}: a migration is named NNNN_name.sql"
            found.append(Migration(int(parts["number"]), parts["name"], entry.read_text("utf-8")))
    found.sort(key=lambda migration: migration.number)
    numbers = [migration.number for migration in found]
    assert numbers == list(range(1, len(found) + 1)), f"migrations have a gap: {numbers}"
    return tuple(found)


def schema_version() -> int:
    """The number of the last migration: what a database of this package must have."""
    return len(migrations())


@cache
def package_version() -> str:
    """The version of the installed package."""
    return metadata.version("suimon")


def migrate(conn: Connection) -> list[Migration]:
    """Apply what is missing, in order, and record this package's version.

    Returns what was applied now; an empty list means the database was already there. Raises
    SchemaMismatch when the database is ahead of this package or was made by other files.
    """
    assert conn.autocommit, "each migration is a transaction of its own"
    if conn.pooled:
        msg = "migrations cannot run through a connection pooler"
        raise SchemaMismatch(msg, hint="Give `suimon db migrate` the server's own address.")
    conn.execute(SQL.lock)
    try:
        done = _checked(conn)
        pending = migrations()[len(done) :]
        for migration in pending:
            _patiently(conn, migration)
        with conn.transaction():
            _set_version(conn)
        return list(pending)
    finally:
        if not conn.closed:
            conn.execute(SQL.unlock)


def _patiently(conn: Connection, migration: Migration) -> None:
    """Apply one, in one transaction; again when running workers did not let it in."""
    for left in range(LOCK_TRIES - 1, -1, -1):
        try:
            with conn.transaction():
                conn.execute(SQL.lock_timeout)
                _apply(conn, migration)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            if left == 0:
                raise
            time.sleep(LOCK_PAUSE_SECONDS)
        else:
            return


def _apply(conn: Connection, migration: Migration) -> None:
    try:
        # A file of the package, as fixed as a literal; as it has no parameters, it may be long.
        conn.execute(migration.text.encode())
    except psycopg.Error as error:
        error.add_note(f"in migration {migration.title}; nothing of it was kept")
        raise
    if migration.number == 1:
        conn.execute(SQL.create_bookkeeping)
    conn.execute(
        SQL.record,
        {"number": migration.number, "name": migration.name, "sha256": migration.sha256},
    )
    _set_version(conn, migration.number)


def _set_version(conn: Connection, number: int | None = None) -> None:
    version = number or schema_version()
    conn.execute(SQL.set_version, {"schema_version": version, "package_version": package_version()})


def status(conn: Connection) -> list[MigrationStatus]:
    """Every migration this package or the database knows, applied or pending."""
    applied = {row[0]: row for row in _applied(conn)}
    known = {migration.number: migration.name for migration in migrations()}
    numbers = sorted(known.keys() | applied.keys())
    return [
        MigrationStatus(
            number,
            applied[number][1] if number in applied else known[number],
            applied[number][3] if number in applied else None,
        )
        for number in numbers
    ]


def check_version(conn: Connection) -> None:
    """Raise SchemaMismatch unless the database is exactly at this package's schema and version."""
    if len(_checked(conn)) < schema_version():
        msg = f"the database lacks schema version {schema_version()} of Suimon"
        raise SchemaMismatch(msg, hint="Run `suimon db migrate`.")
    row = conn.execute(SQL.version).fetchone()
    if row is None or row[1] != package_version():
        found = row[1] if row else "none"
        msg = "the database was migrated by another version of Suimon"
        raise SchemaMismatch(
            msg,
            detail=f"the database says {found}, this is {package_version()}",
            hint="Upgrade what is older; `suimon db migrate` moves the database forward.",
        )


def _checked(conn: Connection) -> list[TupleRow]:
    """The migrations that were applied, after comparing them with this package's files."""
    applied = _applied(conn)
    if len(applied) > schema_version():
        msg = f"the database is at schema version {len(applied)}, ahead of this Suimon"
        detail = f"Suimon {package_version()} knows {schema_version()}"
        raise SchemaMismatch(msg, detail=detail, hint="Upgrade Suimon on this machine.")
    for row, migration in zip(applied, migrations(), strict=False):
        if (row[0], row[2]) != (migration.number, migration.sha256):
            msg = f"migration {migration.title} differs from the one that made this database"
            raise SchemaMismatch(
                msg,
                detail="its text has changed since it was applied",
                hint="Use the release that made the database, or a new database "
                "(of `suimon dev`: another --home, or remove its folder).",
            )
    return applied


def _applied(conn: Connection) -> list[TupleRow]:
    row = conn.execute(SQL.present).fetchone()
    assert row is not None
    has_schema, has_migrations = row
    if has_migrations:
        return conn.execute(SQL.applied).fetchall()
    if has_schema:
        msg = 'the database has a schema "suimon" that Suimon did not make'
        raise SchemaMismatch(msg, hint="Rename or drop that schema, or use another database.")
    return []
