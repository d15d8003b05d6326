"""Looking at runs and acting on them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.wait import wait_until

from suimon.db.connect import Connection

from .conftest import Cli, StartWorker

pytestmark = pytest.mark.usefixtures("deployed")


@pytest.fixture
def fan(cli: Cli, worker: StartWorker) -> str:
    """A run with 40 children, 4 of them failed, merged."""
    worker()
    answer = cli("run", "fan", "--input", '{"n": 40, "bad": 10}', "--wait", "--json")
    assert answer.code == 0
    return str(answer.json["id"])


def test_show_has_counts_errors_durations_and_steps(cli: Cli, fan: str) -> None:
    """Everything at top level; errors that differ only in numbers are one."""
    found = cli("runs", "show", fan, "--json").json
    assert {"id", "pipeline", "status", "reason", "attempt", "input", "output", "error"} <= set(
        found
    )
    assert {"counts", "created_at", "started_at", "finished_at", "parent_id", "error"} <= set(found)
    assert found["counts"]["total"] == 40
    assert (found["counts"]["succeeded"], found["counts"]["failed"]) == (36, 4)
    fanout = found["fanouts"][0]
    (error,) = fanout["errors"]
    assert (error["count"], error["type"], error["first_position"]) == (4, "ValueError", 9)
    assert error["first_key"] == "k9"
    times = fanout["durations"]
    assert 0 <= times["p50_us"] <= times["p95_us"] <= times["p99_us"] <= times["max_us"]
    assert times["measured"] == 40
    assert [step["vertex"] for step in found["steps"]][-2:] == ["outcome", "report"]
    measured = {step["vertex"]: step["duration_us"] is not None for step in found["steps"]}
    assert measured == {"items": True, "kids": False, "outcome": False, "report": True}
    assert found["duration_us"] is None, "it was in no slot itself"
    text = cli("runs", "show", fan).out
    assert "36 of 40 succeeded, 4 failed" in text
    assert "ValueError" in text
    assert "in all" in text
    assert " 0 us" not in text


def test_children_by_status_position_and_page(cli: Cli, fan: str) -> None:
    """Pages go on where the last one ended."""
    bad = cli("runs", "children", fan, "--status", "failed", "--json").json
    assert [one["position"] for one in bad["children"]] == [9, 19, 29, 39]
    assert bad["children"][0]["input"] == {"n": 9, "key": "k9"}
    one = cli("runs", "children", fan, "--position", "12", "--json").json
    assert [(c["position"], c["output"]) for c in one["children"]] == [(12, 12)]
    page = cli("runs", "children", fan, "--limit", "15", "--json").json
    assert page["next"] == 15
    rest = cli("runs", "children", fan, "--from", "15", "--limit", "100", "--json").json
    assert len(page["children"]) + len(rest["children"]) == 40
    assert rest["next"] is None
    well = cli("runs", "children", fan, "--status", "succeeded", "--limit", "1000", "--json").json
    assert len(well["children"]) == 36


def test_a_child_is_shown_by_its_own_id(cli: Cli, fan: str) -> None:
    """With parent, position and key."""
    child = cli("runs", "children", fan, "--position", "9", "--json").json["children"][0]["id"]
    found = cli("runs", "show", child, "--json").json
    assert (found["parent_id"], found["root_id"], found["position"]) == (fan, fan, 9)
    assert found["item_key"] == "k9"
    assert list(found["vertices"]) == [found["vertex"]], "not its parent's"
    text = cli("runs", "show", child).out
    assert ["vertex", found["vertex"]] in [line.split() for line in text.splitlines()]
    assert "STEP" not in text
    why = cli("runs", "why", child).out
    assert "item 9 is not to my taste" in why


def test_retry_of_failed_children(cli: Cli, fan: str, conn: Connection) -> None:
    """The dry run changes nothing; the retry runs the four again, then merge and report."""
    before = conn.execute("select id, xmin::text from suimon.runs order by id").fetchall()
    dry = cli("runs", "retry", fan, "--failed-children", "--dry-run", "--json").json
    assert dry["children"] == 4
    assert sorted(dry["merges_again"][0]["steps"]) == ["outcome", "report"]
    after = conn.execute("select id, xmin::text from suimon.runs order by id").fetchall()
    assert before == after
    answer = cli("runs", "retry", fan, "--failed-children", "--wait", "--why", "again")
    assert answer.code == 0, answer
    rows = conn.execute(
        "select attempt, status::text, claim_no from suimon.runs where position = 9"
    )
    assert rows.fetchone() == (1, "failed", 2)
    assert conn.execute("select detail->>'why' from suimon.audit limit 1").fetchone() == ("again",)


def test_what_needs_no_retry_is_a_conflict(cli: Cli, fan: str) -> None:
    """Exit 5, and what to do instead."""
    answer = cli("runs", "retry", fan)
    assert answer.code == 5
    assert "nothing to retry" in answer.err


def test_list_filters_and_pages(cli: Cli, conn: Connection) -> None:
    """Newest first; by pipeline and state; the next page begins after the last id."""
    made = [cli("run", "free", "--input", '{"n": 1}').out.strip() for _ in range(3)]
    other = cli("run", "limited").out.strip()
    found = cli("runs", "list", "--json").json["runs"]
    assert [one["id"] for one in found] == [other, *reversed(made)]
    assert [
        one["id"] for one in cli("runs", "list", "--pipeline", "limited", "--json").json["runs"]
    ] == [other]
    page = cli("runs", "list", "--limit", "2", "--json").json
    assert page["next"] == made[2]
    rest = cli("runs", "list", "--before", page["next"], "--json").json
    assert [one["id"] for one in rest["runs"]] == [made[1], made[0]]
    assert cli("runs", "cancel", made[0], "--json").json["runs"][0]["status"] == "cancelled"
    found = cli("runs", "list", "--status", "cancelled", "--json").json["runs"]
    assert [one["id"] for one in found] == [made[0]]
    assert cli("runs", "list", "--status", "failed", "--json").json["runs"] == []
    answer = cli("runs", "list", "--pipeline", "fre")
    assert answer.code == 3
    text = cli("runs", "list").out.splitlines()
    assert text[0].split("\t")[:3] == ["ID", "PIPELINE", "STATUS"]
    assert len(text) == 5


def test_ids_may_be_shortened(cli: Cli, conn: Connection) -> None:
    """A unique beginning of six digits; an ambiguous or unknown one is told apart."""
    run = cli("run", "free", "--input", '{"n": 1}').out.strip()
    assert cli("runs", "show", run[:6], "--json").json["id"] == run
    assert cli("runs", "show", run.replace("-", "")[:20].upper(), "--json").json["id"] == run
    assert cli("runs", "show", run[:5]).code == 2
    assert cli("runs", "show", "what?!").code == 2
    assert cli("runs", "show", "ffffffff").code == 3
    cli("run", "free", "--input", '{"n": 1}')
    answer = cli("runs", "show", run[:6])
    assert answer.code == 3
    assert run in answer.err


def test_why_names_the_missing_worker(cli: Cli) -> None:
    """And the command that starts one."""
    run = cli("run", "free", "--input", '{"n": 1}').out.strip()
    answer = cli("runs", "why", run)
    assert "no_worker:default" in answer.out
    assert "suimon worker PATH --pool default" in answer.out


def test_logs_in_order(cli: Cli, worker: StartWorker) -> None:
    """What was logged and what was printed."""
    worker()
    run = cli("run", "talkative", "--input", '{"words": "two words"}', "--wait", "--json").json[
        "id"
    ]
    out = wait_until(lambda: _whole(cli, run), 60, "all log text")
    assert "two words" in out
    streams = {piece["stream"] for piece in cli("runs", "logs", run, "--json").json["logs"]}
    assert {"log", "stdout"} <= streams
    assert cli("runs", "logs", run, "--follow").out == out


def _whole(cli: Cli, run: str) -> str | None:
    out = cli("runs", "logs", run).out
    return out if "logged" in out and "printed" in out else None


def test_cancel_of_what_is_over(cli: Cli) -> None:
    """A conflict when all are over; partly done (8) when some are."""
    made = [cli("run", "free", "--input", '{"n": 1}').out.strip() for _ in range(2)]
    assert cli("runs", "cancel", made[0]).code == 0
    answer = cli("runs", "cancel", made[0])
    assert answer.code == 5
    assert "cancelled" in answer.err
    assert cli("runs", "cancel", *made).code == 8


def test_status_says_what_is_wrong(cli: Cli, worker: StartWorker, conn: Connection) -> None:
    """Exit 1 while runs are ready and nobody claims them, 0 with a worker."""
    assert cli("status").code == 0
    cli("run", "free", "--input", '{"n": 1}')
    answer = cli("status", "--json")
    assert answer.code == 1
    assert answer.json["pools"][0]["ready"] == 1
    assert "no live worker" in answer.json["problems"][0]
    process = worker()
    wait_until(lambda: cli("status").code == 0, 60, "OK with a worker")
    process.kill()
    process.wait()
    text = wait_until(lambda: cli("status").out if cli("status").code == 1 else "", 60, "NOT OK")
    assert "heartbeat" in text


def test_pipelines_are_shown(cli: Cli) -> None:
    """list, show, graph; an unknown one with a suggestion."""
    names = {one["name"] for one in cli("pipelines", "list", "--json").json["pipelines"]}
    assert {"fan", "free", "limited"} <= names
    found = cli("pipelines", "show", "fan", "--json").json
    assert found["concurrency"] is None
    assert found["graph"]["pipeline"] == "fan"
    graph = cli("pipelines", "graph", "fan").out.splitlines()
    assert graph[1].split() == ["kids", "SPAWNER", "work:odd", "<-", "items"]
    assert cli("pipelines", "graph", "fan", "--json").json == found["graph"]
    answer = cli("pipelines", "show", "fann")
    assert answer.code == 3
    assert "fan" in answer.err


def test_deploy_says_what_changed(cli: Cli, deployed: Path) -> None:
    """new, unchanged, changed; pinned runs keep their graph."""
    answer = cli("deploy", str(deployed), "--json")
    assert {one["what"] for one in answer.json["pipelines"]} == {"unchanged"}
    file = deployed / "work.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("@pipeline\ndef limited", "@pipeline(concurrency=2)\ndef limited"))
    found = {
        one["name"]: one["what"] for one in cli("deploy", str(deployed), "--json").json["pipelines"]
    }
    assert found["limited"] == "changed"
    assert found["free"] == "unchanged"


def test_the_database_shell_gets_the_url_by_environment(cli: Cli, tmp_path: Path) -> None:
    """psql's command line shows no password."""
    fake = tmp_path / "bin"
    fake.mkdir()
    script = fake / "psql"
    script.write_text('#!/bin/sh\necho "args:$*"\nenv | grep ^PG | sort\n', encoding="utf-8")
    script.chmod(0o755)
    answer = cli("db", "shell", "--", "-c", "select 1", env={"PATH": f"{fake}:/usr/bin:/bin"})
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0] == "args:-c select 1"
    assert any(line.startswith("PGPASSWORD=") for line in lines)
    assert any(line.startswith("PGDATABASE=suimon_test") for line in lines)
    assert cli.url is not None
    assert cli.url not in answer.out
