"""The process: two of them over one database, signals, the port, versions, what it never does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
from support.lab import Lab
from support.serving import ServeProcess, serving
from support.wait import wait_until

RUNS = "/api/v1/runs"
CODE = """
from suimon import pipeline

@pipeline
def deployed(n: int = 0) -> int:
    return n
"""


def test_two_servers_answer_alike(
    server: ServeProcess, api_url: str, lab: Lab, tmp_path: Path
) -> None:
    """What one has started the other shows, cursors too; one killed, the other goes on."""
    with serving(api_url, tmp_path, "--no-duties") as other:
        ids = sorted(server.post(RUNS, {"pipeline": "free"}).json()["id"] for _ in range(5))
        cursor = server.get(RUNS, params={"limit": 2}).json()["next_cursor"]
        rest = other.get(RUNS, params={"limit": 100, "cursor": cursor}).json()["items"]
        assert [one["id"] for one in rest] == ids[:3][::-1]
        key = {"Idempotency-Key": "both"}
        with ThreadPoolExecutor(16) as threads:
            found = list(
                threads.map(
                    lambda n: (server, other)[n % 2].post(RUNS, {"pipeline": "one"}, headers=key),
                    range(32),
                )
            )
        assert sorted(one.status_code for one in found) == [200] * 31 + [201]
        other.kill9()
        assert server.get(f"{RUNS}/{ids[0]}").status_code == 200
    with serving(api_url, tmp_path, "--no-duties", "--port", str(other.address[1])) as again:
        assert again.get(f"{RUNS}/{ids[0]}").status_code == 200


def test_it_ends_with_0_and_answers_those_that_wait(api_url: str, lab: Lab, tmp_path: Path) -> None:
    """SIGTERM: long-polls and followers get what is, now; nobody is cut off."""
    run = lab.submit("free")
    with serving(api_url, tmp_path, "--no-duties") as server:
        url = f"{server.base}{RUNS}/{run}"
        with ThreadPoolExecutor(2) as threads:
            poll = threads.submit(httpx.get, url, params={"wait": "60"}, timeout=60)
            follow = threads.submit(
                httpx.get, f"{url}/logs", params={"follow": "true", "seconds": "60"}, timeout=60
            )
            wait_until(lambda: looks(lab) >= 2, 20, "both wait")
            assert server.stop() == 0
            assert poll.result().json()["status"] == "queued"
            assert json.loads(follow.result().text.splitlines()[-1])["over"] is False


def looks(lab: Lab) -> int:
    """How many kinds of looks a server has sent: for ends, and for log text."""
    return int(
        lab.one(
            "select count(distinct q) from (select case when query like '%%any ($1::uuid[])%%'"
            " then 1 when query like '%%suimon.logs%%' then 2 end as q from pg_stat_activity"
            " where application_name = 'suimon:serve' and datname = current_database()) s"
        )
    )


def test_sigint_ends_it_too(api_url: str, tmp_path: Path) -> None:
    with serving(api_url, tmp_path, "--no-duties") as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 0


def test_a_port_that_is_taken_is_one_clear_error(
    server: ServeProcess, api_url: str, tmp_path: Path
) -> None:
    refused = ServeProcess(api_url, tmp_path, "--no-duties", "--port", str(server.address[1]))
    assert refused.process.wait(30) == 2
    assert "cannot be bound: Address already in use [SUI-1003]\n  hint: Choose" in refused.log
    assert "Traceback" not in refused.log
    refused.close()


def test_with_a_path_it_deploys_what_is_new_and_imports_nothing(
    api_url: str, lab: Lab, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "m.py").write_text(
        CODE + "\nopen('pids', 'a').write(f'{__import__(\"os\").getpid()}\\n')"
    )
    with serving(api_url, tmp_path / "code", str(code), "--no-duties") as server:
        assert server.get("/api/v1/pipelines/deployed").status_code == 200
        pids = {line for f in tmp_path.rglob("pids") for line in f.read_text().split()}
        assert pids
        assert str(server.pid) not in pids
        assert server.post(RUNS, {"pipeline": "deployed"}).status_code == 201


def test_a_database_of_another_version_is_not_ready_and_ends_it_with_78(
    databases: object, tmp_path: Path, empty_db_url: str
) -> None:
    refused = ServeProcess(empty_db_url, tmp_path, "--no-duties")
    assert refused.process.wait(30) == 78
    assert "suimon db migrate" in refused.log
    refused.close()


def test_a_migration_under_way_ends_it_with_78(db_url: str, conn: object, tmp_path: Path) -> None:
    """Seen by the watch of a server that keeps duties, within one look."""
    lab = Lab(conn)  # type: ignore[arg-type]
    with serving(db_url, tmp_path, "--heartbeat", "200ms") as server:
        lab.sql("update suimon.meta set schema_version = schema_version + 1")
        assert server.process.wait(30) == 78


def test_readiness_tells_the_versions(db_url: str, conn: object, tmp_path: Path) -> None:
    lab = Lab(conn)  # type: ignore[arg-type]
    with serving(db_url, tmp_path, "--no-duties") as server:
        assert server.get("/readyz").json()["ok"] is True
        lab.sql("update suimon.meta set package_version = '9.9.9'")
        answer = server.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "SUI-1002")
        assert answer.headers["retry-after"]
        assert server.get("/healthz").status_code == 200


def test_without_a_database_it_does_not_start(tmp_path: Path) -> None:
    """One clear error and an exit code of its own; the password is not in it."""
    url = "postgresql://somebody:pass-word-1@127.0.0.1:1/nothing"
    refused = ServeProcess(url, tmp_path, "--no-duties")
    assert refused.process.wait(30) == 6
    assert "cannot connect to PostgreSQL" in refused.log
    assert "pass-word-1" not in refused.log
    assert "Traceback" not in refused.log
    refused.close()


def test_a_worker_never_imports_the_web_framework() -> None:
    """Nor does `suimon --help`: what a server alone needs costs nobody else anything."""
    code = (
        "import sys, suimon.worker.worker, suimon.cli.worker, suimon.cli.main, suimon.client;"
        "print(*({'fastapi', 'starlette', 'uvicorn', 'suimon.api'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_logs_are_json_lines_without_queries(api_url: str, lab: Lab, tmp_path: Path) -> None:
    more = ("--log-format", "json", "--access-log")
    with serving(api_url, tmp_path, "--no-duties", *more) as server:
        server.get(RUNS, params={"pipeline": "free"}, headers={"x-request-id": "r-1"})
        server.get(f"{RUNS}/{'1' * 32}/why")
        wait_until(lambda: "/why" in server.log, 10, "the second line")
        lines = [json.loads(line) for line in server.log.splitlines() if line.startswith("{")]
    asked = [line for line in lines if line["logger"] == "suimon.access"]
    assert [(one["route"], one["status"]) for one in asked] == [
        (RUNS, 200), (f"{RUNS}/{{run_id}}/why", 404)
    ]  # fmt: skip
    assert asked[0]["request_id"] == "r-1"
    assert "pipeline=free" not in server.log
