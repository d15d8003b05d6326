"""The frame: light start, clear errors, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Cli, environment

HEAVY = ("psycopg", "rich", "fastapi", "starlette", "pydantic", "orjson", "suimon.db", "suimon.run")

LOOK = """
import sys
from suimon.cli import main
code = main.run(sys.argv[1:])
print("loaded:", *sorted(m for m in sys.modules if m.split(".")[0] in %r or m in %r))
sys.exit(code)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["worker", "--help"]])
def test_help_loads_no_driver_and_no_table_library(arguments: list[str]) -> None:
    """What a shell's completion or a newcomer asks for first is answered at once."""
    heavy = [name for name in HEAVY if "pydantic" not in name and "orjson" not in name]
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOOK % (heavy, heavy), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=environment(None),
    )
    assert done.stdout.splitlines()[-1].strip() == "loaded:"


def test_a_misspelt_command_is_usage_and_gets_a_suggestion(tmp_path: Path) -> None:
    """Exit code 2, and what was probably meant."""
    answer = Cli(None, tmp_path)("wrker")
    assert answer.code == 2
    assert "worker" in answer.err
    assert answer.out == ""


@pytest.mark.parametrize("arguments", [[], ["runs"]])
def test_a_group_alone_shows_its_commands_and_no_error(
    tmp_path: Path, arguments: list[str]
) -> None:
    answer = Cli(None, tmp_path)(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("Usage: suimon")
    assert "Commands:" in answer.err


def test_without_a_database_it_says_what_to_do(tmp_path: Path) -> None:
    """Exit code 6, one error, and the ways to have a database."""
    answer = Cli(None, tmp_path)("runs", "list")
    assert answer.code == 6
    assert "SUIMON_DATABASE_URL" in answer.err
    assert f"its folder: {tmp_path / '.suimon'} (SUIMON_HOME" in answer.err
    assert "Traceback" not in answer.err


def test_an_unreachable_database_is_named_without_its_password(tmp_path: Path) -> None:
    """Exit code 6; the password appears nowhere."""
    url = "postgresql://me:s3cret@127.0.0.1:1/none"
    for arguments in (["status"], ["run", "x"], ["worker", "."], ["deploy", "."]):
        answer = Cli(url, tmp_path)(*arguments)
        assert answer.code == 6, answer
        assert "127.0.0.1" in answer.err
        assert "s3cret" not in answer.err + answer.out
        assert "Traceback" not in answer.err


def test_with_json_an_error_is_a_problem_object(tmp_path: Path) -> None:
    """Programs get code, message, hint and exit code on standard error."""
    answer = Cli("postgresql://127.0.0.1:1/none", tmp_path)("runs", "list", "--json")
    assert answer.code == 6
    assert answer.problem["code"] == "SUI-1001"
    assert answer.problem["exit_code"] == 6
    assert answer.problem["title"] == "DatabaseUnavailable"
    assert answer.out == ""


def test_wrong_usage_with_json_is_a_problem_object(tmp_path: Path) -> None:
    """Also what the parser refuses."""
    answer = Cli(None, tmp_path)("runs", "list", "--limit", "0", "--json")
    assert answer.code == 2
    assert answer.problem["exit_code"] == 2


@pytest.mark.parametrize(
    ("written", "meant"),
    [("SUIMON_DATABASE_URI", "SUIMON_DATABASE_URL"), ("SUIMON_SLOT", "SUIMON_SLOTS")],
)
def test_a_misspelt_setting_is_refused(tmp_path: Path, written: str, meant: str) -> None:
    """A typing error in a variable must not start anything with defaults."""
    answer = Cli(None, tmp_path)("status", env={written: "3"})
    assert answer.code == 2
    assert meant in answer.err


def test_a_database_without_the_schema_is_refused(empty_db_url: str, tmp_path: Path) -> None:
    """Exit code 78 and the command that repairs it; db status says it with exit code 1."""
    cli = Cli(empty_db_url, tmp_path)
    for arguments in (["runs", "list"], ["run", "x"], ["status"], ["pipelines", "list"]):
        answer = cli(*arguments)
        assert answer.code == 78
        assert "suimon db migrate" in answer.err
    assert cli("db", "status").code == 1
    assert cli("db", "migrate").code == 0
    assert cli("db", "status").code == 0
    assert cli("db", "migrate", "--json").json == {"applied": [], "schema_version": 1}


def test_a_reader_that_leaves_early_is_no_defect(cli: Cli) -> None:
    """`suimon ... | head -0` shows no traceback."""
    shell = f"{' '.join(cli.command('pipelines', 'list'))} | true"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, check=False, env=environment(cli.url)
    )
    assert b"Traceback" not in done.stderr
