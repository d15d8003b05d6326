"""Connections are made alike, fail with a hint, and never show a password."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import IsolationLevel, errors

from suimon.db.connect import (
    Connection,
    connect,
    connect_async,
    hot,
    redacted,
    retrying,
    transaction,
    without_password,
)
from suimon.errors import DatabaseUnavailable


def setting(conn: Connection, name: str) -> str:
    row = conn.execute("select current_setting(%s)", [name]).fetchone()
    assert row is not None
    return str(row[0])


def test_a_connection_has_its_name_time_zone_and_isolation(conn: Connection) -> None:
    """Whatever the server's defaults are."""
    assert setting(conn, "application_name") == "suimon:test"
    assert setting(conn, "TimeZone") == "UTC"
    assert conn.isolation_level is IsolationLevel.READ_COMMITTED
    assert not conn.pooled


def test_a_changed_default_isolation_level_is_undone(conn: Connection, db_url: str) -> None:
    """A database whose owner made serializable the default still gives read committed."""
    row = conn.execute("select current_database()").fetchone()
    assert row is not None
    conn.execute(f'alter database "{row[0]}" set default_transaction_isolation = serializable')
    with connect(db_url, name="other") as other:
        assert setting(other, "transaction_isolation") == "read committed"
        with transaction(other):
            assert setting(other, "transaction_isolation") == "read committed"


def test_hot_settings_hold_for_the_session(conn: Connection) -> None:
    """On a direct connection they are set once."""
    hot(conn)
    assert setting(conn, "plan_cache_mode") == "force_generic_plan"
    assert setting(conn, "enable_seqscan") == "off"


def test_hot_settings_stay_inside_transactions_behind_a_pooler(conn: Connection) -> None:
    """Another client may get the same backend next, so nothing is left on it."""
    conn.pooled = True
    hot(conn)
    with transaction(conn):
        assert setting(conn, "enable_hashjoin") == "off"
    assert setting(conn, "enable_hashjoin") == "on"


def test_a_victim_is_tried_again_and_bounded() -> None:
    """Two failures of the server's choosing are survived; an endless one is raised."""
    calls: list[int] = []

    def third_time_lucky() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise errors.DeadlockDetected
        return "done"

    assert retrying(third_time_lucky) == "done"

    def never() -> None:
        raise errors.SerializationFailure

    with pytest.raises(errors.SerializationFailure):
        retrying(never, tries=2)


def test_no_server_says_where_and_what_to_do() -> None:
    """The address is shown, the password is not."""
    with pytest.raises(DatabaseUnavailable) as caught:
        connect("postgresql://ann:s3cret@127.0.0.1:1/db", name="x")
    text = caught.value.render()
    assert "postgresql://ann:***@127.0.0.1:1/db" in text
    assert "refused" in text
    assert "suimon dev" in text
    assert "s3cret" not in text


def test_an_unknown_database_says_so_at_once(db_url: str) -> None:
    """Patience is for servers that are starting, not for mistakes."""
    with pytest.raises(DatabaseUnavailable, match="cannot connect") as caught:
        connect(db_url.replace("suimon_test_", "no_such_"), name="x", patience_seconds=60)
    assert "does not exist" in str(caught.value.detail)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@h/db",
        "postgresql://ann:s3/c?r#e@t-s3cret@h/db",
        "postgresql://h/db?user=ann&password=s3cret",
        "host=h password=s3cret user=ann",
        "host=h password = 's3cret two' user=ann",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    """In any of the forms that libpq understands."""
    assert "s3cret" not in redacted(url)
    assert "two" not in redacted(url)


@pytest.mark.parametrize("url", ["postgres//ann:s3cret@h", "postgresql://ann:s3@cret@h/db", "::"])
def test_an_unreadable_url_is_not_repeated(url: str) -> None:
    """Nobody knows which part of it is the password."""
    with pytest.raises(DatabaseUnavailable) as caught:
        connect(url, name="x")
    assert "s3" not in caught.value.render()
    assert "postgresql://user:password@host" in caught.value.render()


@given(st.from_regex(r"[a-z0-9%/?#:@]{1,12}", fullmatch=True))
def test_redacted_leaves_no_part_of_any_password(tail: str) -> None:
    """Also of one that should have been escaped."""
    assert "qqq" not in redacted(f"postgresql://ann:qqq{tail}@h/db")


def test_messages_lose_the_password() -> None:
    """A driver's text that repeats the URL or the password is cleaned."""
    url = "postgresql://ann:s3cret@h/db"
    assert "s3cret" not in without_password(f"bad: {url} (s3cret)", url)


def test_the_async_connection_is_the_same(db_url: str) -> None:
    """For the asynchronous client."""

    async def name() -> str:
        conn = await connect_async(db_url, name="async")
        async with conn:
            cursor = await conn.execute("show application_name")
            row = await cursor.fetchone()
            assert row is not None
            return str(row[0])

    assert asyncio.run(name()) == "suimon:async"
    assert os.environ.get("PGOPTIONS") is None
