"""The database goes away and returns: 503 with Retry-After within five seconds, then as before."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest
from support.database import Databases
from support.lab import Lab
from support.serving import ServeProcess, serving
from support.wait import wait_until

from suimon.db.connect import connect
from suimon.db.embedded import EmbeddedServer

pytestmark = [pytest.mark.slow, pytest.mark.acceptance]

RUNS = "/api/v1/runs"
#: What is promised, and what a busy machine may add to it before it is broken.
PROMISED_SECONDS = 5.0
CLIENTS = 40


@pytest.fixture
def on_own_server(own_server: EmbeddedServer, tmp_path: Path) -> Iterator[ServeProcess]:
    own_server.ensure_running()
    databases = Databases(own_server.url)
    with databases.fresh() as url:
        with connect(url, name="test") as conn:
            Lab(conn).pipeline("free")
        with serving(url, tmp_path, "--connections", "4") as server:
            yield server
        own_server.ensure_running()
    databases.close()


def refusals(server: ServeProcess, path: str = RUNS) -> list[tuple[float, httpx.Response]]:
    """What 40 clients at once are told, and how long each waited."""

    def ask(_: int) -> tuple[float, httpx.Response]:
        began = time.monotonic()
        answer = httpx.get(f"{server.base}{path}", timeout=60)
        return time.monotonic() - began, answer

    with ThreadPoolExecutor(CLIENTS) as threads:
        return list(threads.map(ask, range(CLIENTS)))


def check(told: list[tuple[float, httpx.Response]]) -> None:
    assert {answer.status_code for _, answer in told} == {503}
    assert all(int(answer.headers["retry-after"]) >= 1 for _, answer in told)
    assert {answer.json()["code"] for _, answer in told} == {"SUI-1001"}
    for _, answer in told:
        tells_nothing_of_the_way_there(answer)
    assert max(seconds for seconds, _ in told) < PROMISED_SECONDS


def tells_nothing_of_the_way_there(answer: httpx.Response) -> None:
    """Strangers are answered too: neither host nor user nor the driver's words are for them."""
    assert "the database" in answer.json()["detail"]
    for word in ("host", "port=", "user", "socket", "connection failed", "FATAL"):
        assert word not in answer.text, answer.text


def test_a_database_that_stops_is_503_and_one_that_returns_is_used_again(
    on_own_server: ServeProcess, own_server: EmbeddedServer
) -> None:
    """Stopped and killed; no answer afterwards is spoiled by a connection of the time before."""
    server = on_own_server
    assert {answer.status_code for _, answer in refusals(server)} == {200}
    for end in (own_server.stop, own_server.kill9):
        end()
        check(refusals(server))
        check(refusals(server, "/readyz"))
        tells_nothing_of_the_way_there(server.post("/webhooks/none", {}))
        assert server.get("/healthz").status_code == 200
        own_server.start() if end == own_server.stop else own_server.ensure_running()
        wait_until(lambda: server.get("/readyz").status_code == 200, 40, "it is ready again")
        assert {answer.status_code for _, answer in refusals(server)} == {200}
    assert server.post(RUNS, {"pipeline": "free"}).status_code == 201
    assert "a defect" not in server.log


def test_those_that_wait_are_told_too(
    on_own_server: ServeProcess, own_server: EmbeddedServer
) -> None:
    """A long-poll and a followed log that the database's end meets: a 503, and a last line."""
    server = on_own_server
    run = server.post(RUNS, {"pipeline": "free"}).json()["id"]
    url = f"{server.base}{RUNS}/{run}"
    follow = {"follow": "true", "seconds": "60"}
    with ThreadPoolExecutor(2) as threads:
        poll = threads.submit(httpx.get, url, params={"wait": "60"}, timeout=60)
        with httpx.stream("GET", f"{url}/logs", params=follow, timeout=60) as stream:
            assert stream.status_code == 200
            looks = "select 1 from pg_stat_activity where query like '%any ($1::uuid[])%'"
            with connect(own_server.url, name="test") as conn:
                wait_until(lambda: conn.execute(looks.encode()).fetchone(), 20, "it waits")
            own_server.stop()
            last = json.loads(list(stream.iter_lines())[-1])
        assert (last["end"], last["problem"]["code"]) == (True, "SUI-1001")
        answer = poll.result()
    assert (answer.status_code, answer.json()["code"]) == (503, "SUI-1001")
    own_server.start()


def test_a_database_that_is_frozen_is_503_too(
    on_own_server: ServeProcess, own_server: EmbeddedServer
) -> None:
    """Every process of it stopped by SIGSTOP: connections stand, and nothing answers on them."""
    server = on_own_server
    assert {answer.status_code for _, answer in refusals(server)} == {200}
    pids = [own_server.pid, *children(own_server.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        check(refusals(server))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: server.get("/readyz").status_code == 200, 40, "it is ready again")
    assert {answer.status_code for _, answer in refusals(server)} == {200}


def test_a_slow_statement_is_not_taken_for_an_absent_database(
    on_own_server: ServeProcess, own_server: EmbeddedServer
) -> None:
    """Somebody locks what a request needs for longer than the pulse waits: it is answered yet."""
    server = on_own_server
    run = server.post(RUNS, {"pipeline": "free"}).json()["id"]
    url = connected_database(server, own_server)
    with connect(url, name="holder") as conn, ThreadPoolExecutor(1) as threads:
        with conn.transaction():
            conn.execute(b"select from suimon.runs for update")
            asked = threads.submit(server.post, f"{RUNS}/{run}/cancel", {})
            threads_wait = b"select 1 from pg_stat_activity where wait_event_type = 'Lock'"
            wait_until(lambda: conn.execute(threads_wait).fetchone(), 20, "it waits for the lock")
            time.sleep(4)  # longer than the pulse's patience: this is what is tested
            assert not asked.done()
        assert asked.result().status_code == 202


def connected_database(server: ServeProcess, own_server: EmbeddedServer) -> str:
    with connect(own_server.url, name="test") as conn:
        row = conn.execute(
            b"select datname from pg_stat_activity where application_name = 'suimon:serve'"
        ).fetchone()
    assert row is not None
    return own_server.url_for(str(row[0]))


def children(pid: int | None) -> list[int]:
    assert pid is not None
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
