"""The only place that opens connections to PostgreSQL.

All connections of the engine share a name scheme (`suimon:worker` in `pg_stat_activity`), isolation
level, time zone, keep-alives and timeouts, and fail with the same words. Nothing here or above
prints a URL without `redacted`: a password never reaches an error, a log or a traceback.

A pooler in transaction mode (PgBouncer) may stand in between: the connection notices it, prepares
no statements and keeps settings inside transactions (`transaction`). Only LISTEN has to be direct.

What may go wrong: a connection can break at any statement, and a broken COMMIT may or may not have
happened. `retrying` repeats only what PostgreSQL itself rolled back (serialization failure,
deadlock), never a lost answer.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import IsolationLevel, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from suimon.core import clock
from suimon.db.statements import statements
from suimon.errors import DatabaseUnavailable

SQL = statements(__package__, "connect.sql")
T = TypeVar("T")

OLDEST_SERVER = 150000  # as server_version_num: PostgreSQL 15 is promised
_MAX_TRIES = 10  # of one transaction that the server rolled back
_FIRST_PAUSE_SECONDS = 0.005

# Used where the URL does not say otherwise. A dead peer is noticed after about a minute.
_DEFAULTS: dict[str, str] = {
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


class Connection(psycopg.Connection[TupleRow]):
    """A connection that knows whether a pooler stands in between, and whether it was made `hot`."""

    pooled: bool = False
    hot: bool = False
    server_version: int = 0


class AsyncConnection(psycopg.AsyncConnection[TupleRow]):
    """The same for the asynchronous client."""

    pooled: bool = False
    server_version: int = 0


def connect(
    url: str, *, name: str, autocommit: bool = True, patience_seconds: float = 0.0
) -> Connection:
    """Open a connection named `suimon:<name>`.

    With `patience_seconds` a server that cannot be reached yet (starting, recovering) is asked
    again until that much time has passed. Raises DatabaseUnavailable, with what to do.
    """
    give_up_at = clock.boottime() + patience_seconds
    conninfo = _conninfo(url, name)
    pause = 0.05
    while True:  # bounded by give_up_at
        try:
            conn = Connection.connect(conninfo, autocommit=True)
        except psycopg.OperationalError as error:
            if clock.boottime() + pause > give_up_at or not _may_pass(error):
                raise _unavailable(url, error) from None
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)
            continue
        try:
            row = conn.execute(SQL.session).fetchone()
            _adopt(conn, row, url)
            conn.isolation_level = IsolationLevel.READ_COMMITTED  # in each BEGIN: pooler or not
            conn.autocommit = autocommit
        except BaseException as error:
            conn.close()
            if isinstance(error, psycopg.OperationalError):
                raise _unavailable(url, error) from None
            raise
        return conn


async def connect_async(url: str, *, name: str, autocommit: bool = True) -> AsyncConnection:
    """`connect` for asyncio; it does not wait for a server that is not there."""
    try:
        conn = await AsyncConnection.connect(_conninfo(url, name), autocommit=True)
    except psycopg.OperationalError as error:
        raise _unavailable(url, error) from None
    try:
        row = await (await conn.execute(SQL.session)).fetchone()
        _adopt(conn, row, url)
        await conn.set_isolation_level(IsolationLevel.READ_COMMITTED)
        await conn.set_autocommit(autocommit)
    except BaseException as error:
        await conn.close()
        if isinstance(error, psycopg.OperationalError):
            raise _unavailable(url, error) from None
        raise
    return conn


def _adopt(conn: Connection | AsyncConnection, row: TupleRow | None, url: str) -> None:
    """Judge the server by its answer to the first statement."""
    assert row is not None
    backend_pid, version = int(row[0]), int(row[1])
    if version < OLDEST_SERVER:
        msg = f"PostgreSQL {version // 10000} at {redacted(url)} is too old"
        raise DatabaseUnavailable(msg, hint="Suimon needs PostgreSQL 15 or newer.")
    conn.server_version = version
    conn.pooled = backend_pid != conn.info.backend_pid
    if conn.pooled:
        conn.prepare_threshold = None  # the next transaction may meet another backend


def hot(conn: Connection) -> None:
    """Hold the plans of the worker's connection; see connect.sql for what and why.

    Behind a pooler nothing is set now: `transaction` sets it in each transaction instead.
    """
    conn.hot = True
    if not conn.pooled:
        conn.execute(SQL.hot, {"local": False})


@contextmanager
def transaction(conn: Connection) -> Iterator[Connection]:
    """One transaction, with the hot settings inside it where they cannot be the session's."""
    with conn.transaction():
        if conn.hot and conn.pooled:
            conn.execute(SQL.hot, {"local": True})
        yield conn


def retrying(act: Callable[[], T], *, tries: int = _MAX_TRIES) -> T:
    """Call `act` (a whole transaction) again when PostgreSQL rolled it back, at most `tries` times.

    The last failure is raised as it is. A broken connection is never retried here: nobody knows
    whether its last COMMIT happened, and only the caller can find out.
    """
    pause = _FIRST_PAUSE_SECONDS
    for left in range(tries - 1, -1, -1):
        try:
            return act()
        except (errors.SerializationFailure, errors.DeadlockDetected):
            if left == 0:
                raise
        time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  (no secret, only jitter)
        pause = min(pause * 2, 0.5)
    msg = f"tries must be at least 1, not {tries}"
    raise ValueError(msg)


# --------------------------------------------------------------------------- words and passwords


def redacted(url: str) -> str:
    """The URL as it may be shown: without its password, whatever form it has."""
    shown = re.sub(r"(?<=://)([^/@:?#]*):[^/?#]*(?=@)", r"\1:***", url)
    shown = re.sub(r"(?i)(\b(?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&]+)", r"\1***", shown)
    return shown if "://" not in shown or "@" not in shown else _after_last_at(shown)


def _after_last_at(url: str) -> str:
    """A password with a bare `/`, `?` or `@` survives the pattern: keep only the user's name."""
    scheme, _, rest = url.partition("://")
    account, place = rest.rsplit("@", 1)
    user, colon, _ = account.partition(":")
    return f"{scheme}://{user}{':***' if colon else ''}@{place}"


def without_password(text: str, url: str) -> str:
    """`text` (a driver's message) with the URL's password taken out of it."""
    try:
        password = conninfo_to_dict(url).get("password")
    except psycopg.ProgrammingError:
        password = None
    if password:
        text = text.replace(str(password), "***")
    return redacted(text.replace(url, redacted(url)))


def _conninfo(url: str, name: str) -> str:
    try:
        given: dict[str, Any] = conninfo_to_dict(url)
        # An @ in a password would make half of it a host's name, to be shown in the next error.
        readable = "://" not in url or url.partition("?")[0].count("@") <= 1
    except psycopg.ProgrammingError:
        readable = False
    if not readable:
        # Nothing of it is shown, nor the driver's words: either may hold the whole password.
        msg = "the database URL cannot be read"
        hint = (
            "It looks like postgresql://user:password@host:5432/database; "
            "write / ? # @ : % inside a password as %2F %3F %23 %40 %3A %25."
        )
        raise DatabaseUnavailable(msg, hint=hint)
    return make_conninfo("", **{**_DEFAULTS, **given, "application_name": f"suimon:{name}"[:63]})


def _may_pass(error: psycopg.OperationalError) -> bool:
    """Whether waiting can help: not for a wrong password or a database that does not exist."""
    text = str(error)
    lasting = ("password authentication failed", "does not exist", "no pg_hba.conf entry")
    return not any(words in text for words in lasting)


def _unavailable(url: str, error: psycopg.OperationalError) -> DatabaseUnavailable:
    text = without_password(str(error), url)
    if "password authentication failed" in text or "no password supplied" in text:
        hint = "Check user and password in SUIMON_DATABASE_URL."
    elif "does not exist" in text:
        hint = "Create it (createdb NAME), or correct SUIMON_DATABASE_URL."
    elif "too many clients" in text or "remaining connection slots" in text:
        hint = "Raise max_connections of the server, or put PgBouncer in front of it."
    elif "starting up" in text or "recovery" in text:
        hint = "The server is starting; try again in a moment."
    else:
        hint = (
            "Is the server running? Check SUIMON_DATABASE_URL; "
            "`suimon dev` starts a server of its own."
        )
    lines = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
    return DatabaseUnavailable(
        f"cannot connect to PostgreSQL at {redacted(url)}", detail="; ".join(lines[:6]), hint=hint
    )
