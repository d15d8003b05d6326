"""The client, sync and async, against a real database; with a worker where something must run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.wait import wait_until

from suimon import (
    AsyncClient,
    Client,
    Conflict,
    DatabaseUnavailable,
    InputRefused,
    InvalidJson,
    PayloadTooLarge,
    RunNotFound,
    UnknownPipeline,
)
from suimon.db.connect import Connection
from suimon.run import deploy

CODE = '''
"""What the client's tests run."""

from __future__ import annotations

from suimon import Pipeline, pipeline, task


@pipeline(concurrency=None)
def double(n: int) -> int:
    return 2 * n


@task
def items(n: int) -> list:
    return list(range(n))


@task
def even(n: int) -> int:
    if n % 2:
        raise ValueError(f"{n} is odd")
    return n


p = Pipeline("fan", concurrency=None)
kids = p.spawn("kids", even, p.run("items", items, p.input.n))
p.returns(p.merge("outcome", kids, tolerate=["FAILED"]).counts)
'''


@pytest.fixture
def project(tmp_path: Path, conn: Connection) -> Path:
    from suimon.load import load_path

    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "work.py").write_text(CODE, encoding="utf-8")
    loaded = load_path(folder).check()
    made = [deploy.Definition(one.name, one.hash, one.graph) for one in loaded.pipelines]
    deploy.deploy(conn, made)
    return folder


@pytest.fixture
def worker(project: Path, db_url: str, conn: Connection) -> Iterator[None]:
    """One worker, drained at the end."""
    command = [sys.executable, "-P", "-m", "suimon.cli.main", "worker", str(project)]
    process = subprocess.Popen(
        [*command, "--heartbeat", "200ms", "--sweep", "500ms"],
        env={**os.environ, "SUIMON_DATABASE_URL": db_url},
        start_new_session=True,
    )
    rows = "select 1 from suimon.workers where not dead"
    try:
        wait_until(lambda: conn.execute(rows).fetchall(), 60, "a worker that claims")
        yield
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()  # does nothing to one that has left
        process.wait()


@pytest.mark.usefixtures("worker")
def test_submit_wait_children_retry(db_url: str) -> None:
    """The whole way: start, wait, read results, walk children, retry."""
    with Client(db_url) as client:
        run = client.submit("double", {"n": 21})
        done = client.wait(run.id, timeout=30)
        assert (done.status, done.output) == ("succeeded", 42)
        fan = client.wait(client.submit("fan", {"n": 1200}).id, timeout=60)
        assert fan.output["failed"] == 600
        positions = [child["position"] for child in client.children(fan.id)]
        assert positions == list(range(1200))
        bad = list(client.children(fan.id, status="failed"))
        assert [child["position"] for child in bad] == list(range(1, 1200, 2))
        assert bad[0]["error"]["message"] == "1 is odd"
        with pytest.raises(Conflict):
            client.retry(fan.id)
        assert client.retry(fan.id, failed_children=True) == 600
        assert client.wait(fan.id, timeout=60).output["failed"] == 600


@pytest.mark.usefixtures("worker")
def test_the_same_with_await(db_url: str) -> None:
    """AsyncClient: several waits at once, children as an asynchronous stream."""

    async def play() -> None:
        async with AsyncClient(db_url) as client:
            answers = await client.submit_many("double", [{"n": n} for n in range(20)])
            ended = await asyncio.gather(*(client.wait(a.id, timeout=30) for a in answers))
            assert [run.output for run in ended] == [2 * n for n in range(20)]
            fan = await client.submit("fan", {"n": 10})
            assert (await client.wait(fan.id, timeout=30)).status == "succeeded"
            found = [child["position"] async for child in client.children(fan.id, status="failed")]
            assert found == [1, 3, 5, 7, 9]
            assert await client.retry(fan.id, failed_children=True) == 5

    asyncio.run(play())


@pytest.mark.usefixtures("project")
class TestWithoutWorker:
    def test_one_key_one_run(self, db_url: str, conn: Connection) -> None:
        """The same key again is the same run; another input is told."""
        with Client(db_url) as client:
            first = client.submit("double", {"n": 1}, key="k")
            again = client.submit("double", {"n": 1}, key="k")
            other = client.submit("double", {"n": 2}, key="k")
        assert (again.id, again.duplicate, again.same_input) == (first.id, True, True)
        assert (other.id, other.duplicate, other.same_input) == (first.id, True, False)
        assert conn.execute("select count(*) from suimon.runs").fetchone() == (1,)

    def test_many_keep_their_order_and_their_keys(self, db_url: str, conn: Connection) -> None:
        """Each answer stands at its input's place; a key twice in one call is one run."""
        with Client(db_url) as client:
            keys = ["a", None, "b", "a"]
            answers = client.submit_many("double", [{"n": n} for n in range(4)], keys=keys)
        assert answers[0].id == answers[3].id
        assert len({one.id for one in answers}) == 3
        rows = conn.execute("select input->>'n' from suimon.runs order by id").fetchall()
        assert [row[0] for row in rows] == ["0", "1", "2"]

    def test_what_cannot_be_stored_is_refused_whole(self, db_url: str, conn: Connection) -> None:
        """One bad input among many: nothing of the call is stored."""
        with Client(db_url) as client:
            with pytest.raises(InvalidJson):
                client.submit_many("double", [{"n": 1}, {"n": float("nan")}])
            with pytest.raises(InvalidJson):
                client.submit("double", {"n": "\x00"})
            with pytest.raises(PayloadTooLarge):
                client.submit("double", {"n": "x" * 17_000_000})
            with pytest.raises(InputRefused):
                client.submit("fan", {})
            with pytest.raises(InputRefused):
                client.submit("double", {"n": 1}, key="\ud800")
            with pytest.raises(InputRefused):
                client.submit_many("double", [{"n": 1}], keys=[])
            with pytest.raises(UnknownPipeline):
                client.submit("dubble", {"n": 1})
        assert conn.execute("select count(*) from suimon.runs").fetchone() == (0,)
        assert conn.execute("select count(*) from suimon.idempotency_keys").fetchone() == (0,)

    def test_wait_gives_up_and_the_run_goes_on(self, db_url: str) -> None:
        """The answer says that it has not ended."""
        with Client(db_url) as client:
            run = client.submit("double", {"n": 1})
            assert not client.wait(run.id, timeout=0.05).ended
            assert client.cancel(run.id)
            assert client.wait(run.id, timeout=10).status == "cancelled"
            assert not client.cancel(run.id)

    def test_a_lost_connection_is_told_and_opened_again(
        self, db_url: str, conn: Connection
    ) -> None:
        """The call that met it raises; the next one works."""
        with Client(db_url) as client:
            run = client.submit("double", {"n": 1}, key="k")
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'suimon:client' and datname = current_database()"
            )
            with pytest.raises(DatabaseUnavailable, match="lost"):
                client.get(run.id)
            assert client.submit("double", {"n": 1}, key="k").duplicate


def test_no_database_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With both ways to name one."""
    monkeypatch.delenv("SUIMON_DATABASE_URL", raising=False)
    with pytest.raises(DatabaseUnavailable, match="no database"):
        Client()
    with pytest.raises(DatabaseUnavailable), Client("postgresql://127.0.0.1:1/x") as client:
        client.get("0" * 32)


def test_an_unknown_run(db_url: str) -> None:
    """RunNotFound for an id, InputRefused for what is none."""
    with Client(db_url) as client:
        with pytest.raises(RunNotFound):
            client.get("01a00000-0000-7000-8000-000000000000")
        with pytest.raises(InputRefused):
            client.get("first")


def test_an_event_is_told_once_by_both_clients(db_url: str, conn: Connection) -> None:
    with Client(db_url) as client:
        first = client.emit("order.paid", {"n": 1}, key="17")
        assert client.emit("order.paid", {"n": 2}, key="17") == first
        assert client.emit("order.paid") != first
        with pytest.raises(InputRefused):
            client.emit("no type")
        with pytest.raises(InvalidJson):
            client.emit("order.paid", {"n": float("nan")})

    async def tell() -> str:
        async with AsyncClient(db_url) as client:
            return await client.emit("order.paid", {"n": 3}, key="17")

    assert asyncio.run(tell()) == first
    row = conn.execute("select count(*) from suimon.events").fetchone()
    assert row == (2,)
