"""`suimon pause|resume|paused|status` as people meet them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Cli
from suimon.db.connect import Connection
from suimon.errors import EXIT_NOT_FOUND, EXIT_UNREACHABLE, EXIT_USAGE


def test_pause_list_and_resume(cli: Cli, deployed: Path) -> None:
    """Who, since when and why; and the words that end it are a command that works."""
    made = cli("pause", "pipeline", "free", "--why", "the ledger moves", "--as", "ada")
    assert made.code == 0
    assert "free is paused; resume it: suimon resume pipeline free" in made.out
    (one,) = cli("paused", "--json").json["paused"]
    assert (one["what"], one["by"], one["why"]) == ("pipeline:free", "ada", "the ledger moves")
    assert "the ledger moves" in cli("paused").out
    run = cli("run", "free", "--input", '{"n": 1}').out.strip()
    assert cli("runs", "show", run, "--json").json["reason"] == "paused:pipeline:free"
    assert "paused by ada" in cli("runs", "why", run).out
    assert "is paused already" in cli("pause", "pipeline", "free").out
    again = cli(*one["resume"].split()[1:], "--json")
    assert again.json == {"resumed": ["pipeline:free"], "let_in": 0}
    assert "was not paused" in cli("resume", "pipeline", "free").out
    shown = cli("audit", "list", "--json").json["audit"]
    assert [(r["actor"], r["action"]) for r in shown if r["target"] == "pipeline:free"][-1] == (
        "ada",
        "pause",
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("pause", "pipeline", "nope"), EXIT_NOT_FOUND),
        (("pause", "pool", "nope"), EXIT_NOT_FOUND),
        (("resume", "trigger", "nope"), EXIT_NOT_FOUND),
        (("pause", "lane", "free"), EXIT_USAGE),
        (("pause", "pool", "default", "--triggers-only"), EXIT_USAGE),
        (("pause", "pipeline"), EXIT_USAGE),
    ],
)
def test_what_cannot_be_paused_is_one_error(
    cli: Cli, deployed: Path, arguments: tuple[str, ...], code: int
) -> None:
    answer = cli(*arguments)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith("error: ")
    assert cli("paused", "--json").json == {"paused": []}


def test_status_opens_with_its_verdict(cli: Cli, deployed: Path, conn: Connection) -> None:
    """The sentence first; a pause is held on purpose and no alarm."""
    assert cli("status").out.startswith("IDLE  nothing is queued and nothing runs\n")
    cli("run", "free", "--input", '{"n": 1}')
    conn.execute("update suimon.runs set created_at = created_at - interval '5 m'")
    stopped = cli("status")
    assert stopped.code == 1
    assert stopped.out.startswith(
        "STOPPED  pool default has 1 run ready and no live worker for 5 m"
    )
    assert "suimon worker PATH --pool default" in stopped.out
    cli("pause", "pool", "default")
    conn.execute("update suimon.duties set last_at = now()")  # as if a serve kept them
    held = cli("status")
    assert held.code == 0
    assert held.out.startswith("HELD  on purpose: 1 paused:pool:default\n")
    document = cli("status", "--json").json
    assert document["verdict"]["level"] == "held"
    assert document["counts"]["running"] == 0


def test_status_of_a_database_that_is_away(tmp_path: Path) -> None:
    """The verdict is said, and the error with its exit code as everywhere."""
    answer = Cli("postgresql://127.0.0.1:9/none?connect_timeout=1", tmp_path)("status")
    assert answer.code == EXIT_UNREACHABLE
    assert answer.out.startswith("STOPPED  the database cannot be reached: ")
    assert answer.err.startswith("error: ")
