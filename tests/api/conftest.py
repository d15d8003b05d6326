"""A real server process over a database of its own, with a few pipelines in it.

One for a file of tests: starting it takes longer than most of them. Between two tests everything
that is not a pipeline is taken away.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.database import Databases
from support.engine_fixtures import engine, own_engine, own_server
from support.lab import Lab
from support.serving import ServeProcess, serving

from suimon.db.connect import connect

__all__ = ["engine", "own_engine", "own_server"]

_KEPT = (
    "pipelines",
    "graphs",
    "meta",
    "migrations",
    "duties",
    "pools",
    "run_edges",
    "lanes",
)
_EMPTY = """
do $$ declare names text; begin
  select string_agg(format('suimon.%I', tablename), ', ') into names
  from pg_tables where schemaname = 'suimon' and tablename <> all ('{KEPT}');
  execute 'truncate ' || names || ' restart identity cascade';
  insert into suimon.store default values;
end $$"""


@pytest.fixture(scope="module")
def api_url(databases: Databases) -> Iterator[str]:
    """The database of this file's server."""
    with databases.fresh() as url:
        yield url


@pytest.fixture(scope="module")
def shared_server(api_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """Without duties: a test sees only what it does itself."""
    with serving(api_url, tmp_path_factory.mktemp("serve"), "--no-duties") as made:
        yield made


@pytest.fixture
def lab(api_url: str) -> Iterator[Lab]:
    """`free` has no limit, `one` runs one at a time, one run of `full` may wait."""
    with connect(api_url, name="test") as conn:
        conn.execute(_EMPTY.replace("KEPT", ",".join(_KEPT)).encode())
        conn.execute(b"delete from suimon.pipelines")
        made = Lab(conn)
        made.pipeline("free")
        made.pipeline("one", concurrency=1)
        made.pipeline("full", maxQueued=1)
        yield made


@pytest.fixture
def server(shared_server: ServeProcess, lab: Lab) -> ServeProcess:
    return shared_server
