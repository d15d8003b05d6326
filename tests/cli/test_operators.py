"""The commands of operators: approvals, signals, many runs, logs live, doctor, storage, audit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.lab import Lab
from support.storage import fill
from support.wait import wait_until

from cli.conftest import Cli, StartWorker
from suimon.db.connect import Connection

ASKING = """
from suimon import Pipeline, task

@task
def done(word) -> dict:
    return {"word": word}

p = Pipeline("asks", concurrency=None)
ok = p.approve("ok", show={"plan": 1}, title="Go on?")
p.run("after", done, "gone on", after=[ok])

w = Pipeline("listens", concurrency=None)
heard = w.wait("heard", signal="go")
w.run("after", done, heard)
"""


@pytest.fixture
def asking(deployed: Path, cli: Cli) -> Path:
    (deployed / "asking.py").write_text(ASKING, encoding="utf-8")
    assert cli("deploy", str(deployed)).code == 0
    return deployed


def run_of(cli: Cli, pipeline: str, given: str = "{}") -> str:
    return cli("run", pipeline, "--input", given).out.strip()


def reason(conn: Connection, run: str) -> Any:
    row = conn.execute("select reason from suimon.runs where id = %s", (run,)).fetchone()
    return row and row[0]


def status(cli: Cli, run: str) -> str:
    return str(cli("runs", "show", run, "--json").json["status"])


def test_approve_and_reject(cli: Cli, asking: Path, worker: StartWorker, conn: Connection) -> None:
    """Listed with who is asked what; the answer goes on, or fails the run; once."""
    worker()
    runs = [run_of(cli, "asks") for _ in range(2)]
    wait_until(lambda: all(reason(conn, run) == "approval:ok" for run in runs), 30, "they ask")
    assert "waiting" in next(
        line for line in cli("runs", "show", runs[0]).out.splitlines() if line.startswith("ok\t")
    )
    listed = cli("approvals", "list", "--json").json["approvals"]
    assert [(one["run_id"], one["vertex"], one["title"]) for one in listed] == [
        (run, "ok", "Go on?") for run in runs
    ]
    said = cli("approvals", "approve", runs[0], "ok", "--as", "ada", "--comment", "fine")
    assert (said.code, said.out) == (0, f'"ok" of run {runs[0]} is approved\n')
    again = cli("approvals", "reject", runs[0], "ok", "--as", "bob")
    assert again.code == 5
    assert "was approved by ada" in again.err
    assert cli("approvals", "reject", runs[1], "ok", "--as", "bob").code == 0
    wait_until(lambda: status(cli, runs[0]) == "succeeded", 30, "the approved one")
    wait_until(lambda: status(cli, runs[1]) == "failed", 30, "the rejected one")
    assert cli("approvals", "list", "--json").json["approvals"] == []
    decided = cli("approvals", "list", "--all", "--run", runs[0], "--json").json["approvals"]
    assert (decided[0]["decided_by"], decided[0]["comment"]) == ("ada", "fine")
    records = cli("audit", "list", "--run", runs[0], "--json").json["audit"]
    assert [(one["actor"], one["action"]) for one in records] == [("ada", "approve")]
    assert cli("approvals", "approve", runs[0], "other").code == 3


def test_signal(cli: Cli, asking: Path, worker: StartWorker) -> None:
    """An early one is kept, the first of a name wins, an unknown name is refused."""
    run = run_of(cli, "listens")
    assert cli("signal", run, "go", "--data", '{"n": 1}', "--as", "ada").code == 0
    second = cli("signal", run, "go", "--data", "-", stdin=b'{"n": 2}')
    assert second.code == 5
    assert "the first one stays" in second.out
    wrong = cli("signal", run, "goo")
    assert wrong.code == 2
    assert 'did you mean "go"' in wrong.err
    assert cli("signal", run, "go", "--data", "{nothing").code == 2
    worker()
    wait_until(lambda: status(cli, run) == "succeeded", 30, "it heard")
    assert cli("runs", "show", run, "--json").json["output"] == {"word": {"n": 1}}
    assert cli("signal", run, "go").code == 5


def test_rerun_skip_priority(cli: Cli, deployed: Path, conn: Connection) -> None:
    """Each with who and why in the record."""
    old = run_of(cli, "free", '{"n": 4}')
    new = cli("runs", "rerun", old, "--as", "ada", "--why", "once more").out.strip()
    assert cli("runs", "show", new, "--json").json["input"] == {"n": 4}
    assert cli("runs", "rerun", old, "--same-graph", "--json").json["rerun_of"] == old
    moved = cli("runs", "priority", new, "0", "--as", "ada", "--json").json
    assert moved == {"id": new, "priority": 0, "runs": 1, "queued": 1}
    assert cli("runs", "priority", new, "7").code == 2
    assert cli("runs", "skip", new).code == 5
    listed = cli("audit", "list", "--as", "ada", "--json").json["audit"]
    assert [(one["action"], one["detail"]["why"]) for one in listed if one["target"] == new] == [
        ("priority", ""), ("rerun", "once more"),
    ]  # fmt: skip
    assert cli("audit", "list", "--limit", "1").out.count("\n") == 2
    table = cli("audit", "list", "--as", "ada").out
    assert "\t2 -> 0, was queued, 1 run, below, queued 1\n" in table, "no JSON in a table"
    assert "{" not in table


def test_many_by_filter(cli: Cli, deployed: Path, conn: Connection) -> None:
    """A preview that changes nothing; an empty filter is refused; 8 when some were left out."""
    lab = Lab(conn)
    worker = lab.worker()
    runs = [run_of(cli, "free", f'{{"n": {n}}}') for n in range(4)]
    lab.end(worker, lab.claim(worker, 3), "failed")
    assert cli("runs", "retry", "--filter", "").code == 2
    assert cli("runs", "retry").code == 2
    assert cli("runs", "retry", runs[0], "--filter", "status=failed").code == 2
    shown = cli("runs", "retry", "--filter", "pipeline=free", "--dry-run", "--json").json
    assert (shown["runs"], shown["dry_run"]) == (3, True)
    assert lab.statuses() == {"failed": 3, "queued": 1}
    done = cli("runs", "retry", "--filter", "pipeline=free,status=failed", "--as", "ada")
    assert done.code == 0
    assert "3 retried" in done.out
    assert lab.statuses() == {"queued": 4}
    stopped = cli("runs", "cancel", "--filter", "pipeline=free", "--why", "enough", "--json")
    assert (stopped.code, stopped.json["done"]) == (0, 4)
    assert lab.statuses() == {"cancelled": 4}
    records = cli("audit", "list", "--action", "cancel_many", "--json").json["audit"]
    assert records[0]["target"] == "filter:pipeline=free"
    none = cli("runs", "cancel", "--filter", "pipeline=free", "--json").json
    assert none["runs"] == 0


def test_retry_of_a_step(cli: Cli, worker: StartWorker) -> None:
    """The plan is shown first; then it and what follows run again."""
    worker()
    run = cli("run", "fan", "--input", '{"n": 4, "bad": 9}', "--wait", "--json").json["id"]
    plan = cli("runs", "retry", run, "--step", "outcome", "--dry-run", "--json").json
    assert (plan["steps"], plan["lists_read_again"]) == (["outcome", "report"], [])
    assert cli("runs", "retry", run, "--step", "outcom").code == 2
    again = cli("runs", "retry", run, "--step", "kids", "--wait")
    assert again.code == 0
    assert 'the children of "kids" are made anew' in again.out
    shown = cli("runs", "show", run, "--json").json
    assert shown["output"] == {"sum": 6, "bad": 0}
    assert [one["counts"]["total"] for one in shown["fanouts"]] == [4]


def test_logs_live(cli: Cli, worker: StartWorker, tmp_path: Path, conn: Connection) -> None:
    """Text appears while the run goes on, and the follower ends with the run."""
    worker()
    run = run_of(cli, "chatty", json.dumps({"folder": str(tmp_path)}))
    wait_until((tmp_path / "begun").exists, 30, "it runs")
    with cli.started("runs", "logs", run, "-f") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"first\n"
        assert follower.poll() is None
        (tmp_path / "open").touch()
        rest = follower.stdout.read()
        assert rest.decode() == "second\n"
        assert follower.wait(20) == 0


def test_logs_by_try(cli: Cli, deployed: Path, conn: Connection) -> None:
    """Each try says which it is; one may be asked for; lines stay lines over pieces."""
    lab = Lab(conn)
    worker = lab.worker()
    run = run_of(cli, "free", '{"n": 1}')

    def says(claim: int, stream: str, text: str) -> None:
        lab.sql("insert into suimon.logs (run_id, claim_no, stream, body) values (%s, %s, %s, %s)",
                run, claim, stream, text)  # fmt: skip

    first = lab.claim_run(worker, run)
    says(first.claim_no, "stdout", "one li")
    says(first.claim_no, "stdout", "ne\nopen")
    says(first.claim_no, "log", "logged\n")
    lab.again(worker, first)
    lab.sql("update suimon.runs set status = 'queued', reason = null, wake_at = null,"
            " rank = suimon.head_of(pool, priority) where id = %s", run)  # fmt: skip
    second = lab.claim_run(worker, run)
    says(second.claim_no, "stdout", "once more\n")
    lab.end(worker, second)
    assert cli("runs", "logs", run).out.splitlines() == [
        "--- try 1, failed, on w1", "one line", "open", "logged",
        "--- try 2, succeeded", "once more",
    ]  # fmt: skip
    assert cli("runs", "logs", run, "--try", "2").out == "once more\n"
    assert cli("runs", "logs", run, "--try", "3").code == 2
    assert cli("runs", "logs", run, "--stream", "log").out.endswith("logged\n")
    shown = cli("runs", "logs", run, "--json").json
    assert [one["attempt"] for one in shown["tries"]] == [1, 2]


def test_doctor(cli: Cli, deployed: Path, conn: Connection) -> None:
    """1 with names and hints while something is wrong; also where the schema is another one."""
    conn.execute("drop index suimon.runs_timer")
    found = cli("doctor")
    assert found.code == 1
    assert "index suimon.runs_timer is missing" in found.out
    assert cli("doctor", "--json").json["ok"] is False
    conn.execute("update suimon.meta set package_version = '0.0.0'")
    assert "0.0.0" in cli("doctor").out


def test_the_marks_of_the_store(cli: Cli, deployed: Path, conn: Connection) -> None:
    """Set, shown, refused when they changed meanwhile, and a run that waits says so in the list."""
    lab = Lab(conn)
    assert re.search(r"marks +none", cli("storage").out)
    done = cli("storage", "set", "--high", "10MB", "--json", "--as", "ann").json
    assert (done["high_bytes"], done["low_bytes"], done["edited_by"]) == (10**7, 8 * 10**6, "ann")
    assert cli("storage", "set", "--high", "20MB", "--expect", "1").code != 0
    assert cli("storage", "set", "--high", "much").code == 2
    assert cli("storage", "set").code == 2
    fill(lab, 10000000)
    shown = cli("storage").out
    assert "10 MB, 100 % of 10 MB" in shown
    assert "10 MB, over below 8 MB" in shown
    refused = cli("run", "free", "--input", json.dumps({"text": "x" * 9000}))
    assert "SUI-3009" in refused.err or "storage pressure: 100 % of 10 MB" in refused.err
    run = lab.submit("free", {"text": "x"})
    row = lab.claim_run(lab.worker(), run)
    lab.sql("update suimon.runs set status = 'waiting', reason = 'storage', worker_id = null"
            " where id = %s", row.id)  # fmt: skip
    assert "100 % of 10 MB" in cli("runs", "list").out
    assert cli("storage", "set", "--high", "none", "--json").json["high_bytes"] is None


def test_storage_and_prune(cli: Cli, deployed: Path, conn: Connection) -> None:
    """Silence about retention is told; what would go is told before it goes."""
    lab = Lab(conn)
    worker = lab.worker()
    for _ in range(3):
        run = lab.submit("free", {"text": "x" * 9000})
        lab.end(worker, lab.claim_run(worker, run))
    assert "nothing is pruned" in cli("storage").out
    found = cli("storage", "--json").json
    assert "runs" in {one["name"] for one in found["tables"]}
    (free,) = [one for one in found["pipelines"] if one["pipeline"] == "free"]
    assert free["payloads"] == 3
    assert free["payloads_bytes"] > 0
    assert "free" in found["kept_for_ever"]
    assert "nothing is pruned" in cli("prune").out
    lab.pipeline("free", keep={"age": "30d", "count": 1})
    assert "free\t30d\t1\t2\t0" in cli("prune", "--dry-run").out
    assert lab.statuses() == {"succeeded": 3}
    assert cli("prune", "--json").json["by_pipeline"] == {"free": 2}
    assert cli("prune", "--pipeline", "fre").code == 3
