"""Starting runs by hand: what is in the way, keys, waiting, and what the exit code says."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.wait import wait_until

from suimon.cli import follow
from suimon.db.connect import Connection

from .conftest import Cli, StartWorker, count_runs

pytestmark = pytest.mark.usefixtures("deployed")


def test_an_unfinished_run_of_a_limited_pipeline_is_in_the_way(cli: Cli, conn: Connection) -> None:
    """Exit 5, naming it; nothing stored; --queue starts another behind it."""
    first = cli("run", "limited").out.strip()
    answer = cli("run", "limited", "--json")
    assert answer.code == 5
    assert answer.problem["run_id"] == first
    assert count_runs(conn) == 1
    second = cli("run", "limited", "--queue").out.strip()
    assert second != first
    answer = cli("runs", "why", second, "--json")
    assert answer.json["reason"] == "lane"
    assert answer.json["holders"][0]["id"] == first
    assert first in answer.json["text"]


def test_nothing_is_in_the_way_of_a_pipeline_without_a_limit(cli: Cli, conn: Connection) -> None:
    """It starts always."""
    for _ in range(3):
        assert cli("run", "free", "--input", '{"n": 1}').code == 0
    assert count_runs(conn) == 3


def test_the_same_key_gives_the_same_run(cli: Cli, conn: Connection) -> None:
    """Also of a limited pipeline: the run that has the key is the answer, not in the way."""
    first = cli("run", "limited", "--idempotency-key", "k").out.strip()
    again = cli("run", "limited", "--idempotency-key", "k", "--json").json
    assert (again["id"], again["duplicate"], again["same_input"]) == (first, True, True)
    other = cli("run", "limited", "--idempotency-key", "k", "--input", '{"n": 5}', "--json").json
    assert (other["id"], other["duplicate"], other["same_input"]) == (first, True, False)
    assert count_runs(conn) == 1


def test_wait_tells_how_it_ended(cli: Cli, worker: StartWorker) -> None:
    """0 succeeded, 1 failed; the output is there."""
    worker()
    good = cli("run", "free", "--input", '{"n": 41}', "--wait", "--json")
    assert (good.code, good.json["status"], good.json["output"]) == (0, "succeeded", 42)
    bad = cli("run", "broken", "--input", '{"n": 7}', "--wait")
    assert bad.code == 1
    assert "7 is not my number" in bad.out
    fan = cli("run", "fan", "--input", '{"n": 40, "bad": 10}', "--wait", "--json")
    assert (fan.code, fan.json["output"]["bad"]) == (0, 4)
    assert fan.json["counts"]["failed"] == 4


def test_the_hint_of_an_error_is_shown_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    error = {"type": "FileRefused", "message": "no such file", "hint": "looked for /a/b.csv"}
    follow.result({"status": "failed", "id": "1", "pipeline": "p", "counts": None, "error": error})
    assert capsys.readouterr().out.splitlines()[1:] == [
        "error  FileRefused: no such file",
        "hint  looked for /a/b.csv",
    ]


def test_a_timeout_gives_up_waiting_and_leaves_the_run(cli: Cli) -> None:
    """Exit 7; the run is still queued."""
    answer = cli("run", "free", "--input", '{"n": 1}', "--wait", "--timeout", "200ms", "--json")
    assert answer.code == 7
    assert answer.json["status"] == "queued"
    assert "goes on" in answer.err


def test_a_cancelled_run_has_its_own_code(cli: Cli, worker: StartWorker, tmp_path: Path) -> None:
    """Exit 9."""
    worker("--slots", "1")
    given = f'{{"folder": "{tmp_path}"}}'
    with cli.started("run", "gate", "--input", given, "--wait", "--idempotency-key", "g") as one:
        wait_until((tmp_path / "begun").exists, 60, "begun")
        run = cli("run", "gate", "--input", given, "--idempotency-key", "g", "--json").json["id"]
        assert cli("runs", "cancel", run).code == 0
        assert one.wait(60) == 9


def test_ctrl_c_leaves_the_run_running(cli: Cli, conn: Connection) -> None:
    """Exit 130, and how to look at it."""
    with cli.started("run", "free", "--input", '{"n": 1}', "--wait") as one:
        wait_until(lambda: count_runs(conn) == 1, 60, "stored")
        assert one.stderr is not None
        wait_until(lambda: _waits(conn), 60, "waiting")
        one.send_signal(signal.SIGINT)
        assert one.wait(60) == 130
        said = one.stderr.read().decode()
    row = conn.execute("select id::text, status::text from suimon.runs").fetchone()
    assert row is not None
    assert row[1] == "queued"
    assert f"suimon runs show {row[0]}" in said


def _waits(conn: Connection) -> bool:
    """The command has begun to look at the run's state."""
    rows = conn.execute(
        "select 1 from pg_stat_activity where datname = current_database()"
        " and application_name = 'suimon:cli' and query like '%from suimon.runs r where r.id%'"
    ).fetchall()
    return bool(rows)
