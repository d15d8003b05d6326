"""The test kit's databases: one server for the life of this process, cloned for each use.

The server is the one that SUIMON_DATABASE_URL names, else an embedded one in a temporary folder
that ends with this process. On either, the kit works in databases of its own: it clones a migrated
template (about 50 ms) and drops the clone after use; the named database itself is never written to.
The embedded server lives as long as the *thread* that asked for it first.
"""

from __future__ import annotations

import atexit
import base64
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, LiteralString

from psycopg import sql
from psycopg.conninfo import make_conninfo

from suimon.core import secret_names
from suimon.db import migrate
from suimon.db.connect import Connection, connect, transaction
from suimon.db.embedded import EmbeddedServer
from suimon.db.statements import statements
from suimon.store import secret, secret_key

SQL = statements(__package__, "testing.sql")

#: Not durable against a power failure, which no test makes; a killed process loses nothing.
_FAST: Final = {"fsync": "off", "full_page_writes": "off"}
_SERVER_PATIENCE_SECONDS: Final = 10.0

_ending = ExitStack()
_numbers = itertools.count(1)
_templates: dict[str, str] = {}
_embedded: EmbeddedServer | None = None


@contextmanager
def database() -> Iterator[str]:
    """The URL of a fresh database with Suimon's schema, dropped afterwards."""
    server = os.environ.get("SUIMON_DATABASE_URL") or _embedded_url()
    name = f"suimon_kit_{os.getpid()}_{next(_numbers)}"
    _run(server, SQL.create_database, name=name, template=_template(server))
    try:
        yield make_conninfo(server, dbname=name)
    finally:
        _run(server, SQL.drop_database, name=name)


def _template(server: str) -> str:
    """A database with the whole schema, made at the first use and dropped when we end."""
    if server not in _templates:
        name = f"suimon_kit_{os.getpid()}_{next(_numbers)}_template"
        _run(server, SQL.create_database, name=name, template="template0")
        _on_exit().callback(_run, server, SQL.drop_database, name=name)
        with connect(make_conninfo(server, dbname=name), name="testing") as conn:
            migrate.migrate(conn)
        _templates[server] = name
    return _templates[server]


def _embedded_url() -> str:
    global _embedded
    if _embedded is None or not _embedded.running:
        _templates.clear()
        folder = Path(tempfile.mkdtemp(prefix="suimon-testing-"))
        folder.chmod(0o711)
        _on_exit().callback(shutil.rmtree, folder, ignore_errors=True)
        _embedded = _on_exit().enter_context(EmbeddedServer(folder / "pg", settings=_FAST))
    return _embedded.url


def _on_exit() -> ExitStack:
    atexit.unregister(_ending.close)
    atexit.register(_ending.close)
    return _ending


def _run(server: str, text: LiteralString, **names: str) -> None:
    statement = sql.SQL(text).format(**{k: sql.Identifier(v) for k, v in names.items()})
    with connect(server, name="testing", patience_seconds=_SERVER_PATIENCE_SECONDS) as conn:
        conn.execute(statement)


def keep_secrets(conn: Connection, secrets: Mapping[str, str]) -> dict[str, str]:
    """Store a test's secrets under a key of its own; the environment that resolves them all."""
    environment = {
        name.removeprefix(secret_names.ENV): value
        for name, value in secrets.items()
        if name.startswith(secret_names.ENV)
    }
    key = base64.b64encode(os.urandom(32)).decode()
    ring = secret_key.KeyRing.of({secret_key.KEY: key})
    for name, value in secrets.items():
        if not name.startswith((secret_names.ENV, secret_names.FILE)):
            with transaction(conn):
                secret.put(conn, ring, name, value, by="test")
    return {**environment, secret_key.KEY: key}
