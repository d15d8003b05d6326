"""Migrations lead to schema.sql, one at a time, whole or not at all."""

from __future__ import annotations

import threading
from importlib import resources

import psycopg
import pytest
from support.catalog import catalog, seed_rows
from support.database import Databases
from support.wait import wait_until

from suimon.db import migrate
from suimon.db.connect import Connection, connect
from suimon.errors import SchemaMismatch

SCHEMA = resources.files("suimon.db").joinpath("schema.sql")


def test_all_migrations_give_schema_sql(conn: Connection, databases: Databases) -> None:
    """Both ways end in the same columns, constraints, indexes, functions, triggers and options."""
    with databases.fresh(migrated=False) as url, connect(url, name="schema") as other:
        other.execute(SCHEMA.read_bytes())
        said = "the migrations and schema.sql differ; before a release `make schema` copies it"
        assert catalog(conn) == catalog(other), said
        assert seed_rows(conn) == seed_rows(other), said


def test_a_second_migrate_has_nothing_to_do(conn: Connection) -> None:
    """And changes nothing, not even a time."""
    before = conn.execute("select changed_at from suimon.meta").fetchall()
    assert migrate.migrate(conn) == []
    assert conn.execute("select changed_at from suimon.meta").fetchall() == before
    migrate.check_version(conn)


def test_status_tells_pending_from_applied(empty_db_url: str) -> None:
    """Before and after."""
    with connect(empty_db_url, name="test") as conn:
        assert all(one.applied_at is None for one in migrate.status(conn))
        with pytest.raises(SchemaMismatch, match="lacks schema version") as caught:
            migrate.check_version(conn)
        assert caught.value.exit_code == 78
        migrate.migrate(conn)
        assert all(one.applied_at for one in migrate.status(conn))


def test_of_two_that_start_at_once_one_waits(empty_db_url: str) -> None:
    """The second finds the work done."""
    with connect(empty_db_url, name="holder") as holder, connect(empty_db_url, name="b") as second:
        holder.execute(migrate.SQL.lock)
        applied: list[list[migrate.Migration]] = []
        thread = threading.Thread(target=lambda: applied.append(migrate.migrate(second)))
        thread.start()
        wait_until(
            lambda: (
                holder.execute(
                    "select from pg_stat_activity where application_name = 'suimon:b'"
                    " and wait_event_type = 'Lock'"
                ).fetchone()
                is not None
            ),
            10,
            "waiting for the lock",
        )
        first = migrate.migrate(holder)
        holder.execute(migrate.SQL.unlock)
        thread.join(20)
        assert first == list(migrate.migrations())
        assert applied == [[]]


def test_killed_in_the_middle_leaves_nothing(
    empty_db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration that fails half-way can be run again as if it never had been."""
    broken = migrate.Migration(1, "initial", "create schema suimon; select 1 / 0;")
    with connect(empty_db_url, name="test") as conn:
        with monkeypatch.context() as patch:
            patch.setattr(migrate, "migrations", lambda: (broken,))
            with pytest.raises(psycopg.errors.DivisionByZero) as caught:
                migrate.migrate(conn)
        assert "in migration 0001_initial" in caught.value.__notes__[0]
        assert conn.execute("select to_regnamespace('suimon')").fetchone() == (None,)
        migrate.migrate(conn)
        migrate.check_version(conn)


def test_a_backend_killed_in_the_middle_leaves_nothing(empty_db_url: str) -> None:
    """The connection dies inside the transaction; the lock goes with it."""
    with connect(empty_db_url, name="a") as conn, connect(empty_db_url, name="killer") as killer:
        conn.execute(migrate.SQL.lock)
        conn.execute("begin")
        conn.execute(migrate.migrations()[0].text.encode())
        killer.execute("select pg_terminate_backend(%s)", [conn.info.backend_pid])
        with pytest.raises(psycopg.OperationalError):
            conn.execute("commit")
        assert migrate.migrate(killer) == list(migrate.migrations())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("update suimon.migrations set sha256 = 'other'", "differs from the one that made"),
        ("update suimon.meta set package_version = '99.0'", "by another version of Suimon"),
        (
            "insert into suimon.migrations (number, name, sha256) values (9999, 'later', 'x')",
            "ahead of this Suimon",
        ),
        ("drop table suimon.migrations", "that Suimon did not make"),
    ],
)
def test_a_database_of_another_version_is_refused(
    conn: Connection, change: str, message: str
) -> None:
    """Each with its own sentence, and the exit code that is not restarted."""
    conn.execute(change)
    with pytest.raises(SchemaMismatch, match=message) as caught:
        migrate.check_version(conn)
    assert caught.value.hint


def test_a_pooler_is_refused(conn: Connection) -> None:
    """Its lock would belong to somebody else's session."""
    conn.pooled = True
    with pytest.raises(SchemaMismatch, match="pooler"):
        migrate.migrate(conn)
