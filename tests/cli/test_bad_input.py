"""What cannot be run is refused at the door: one clear error, an exit code, and nothing stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suimon.db.connect import Connection

from .conftest import Cli, count_runs

HANDED = Path(__file__).parents[1] / "data" / "handed"


def refused(cli: Cli, conn: Connection, *arguments: str, stdin: bytes = b"") -> str:
    """The error of a `run` that stores nothing; its code must be 2."""
    answer = cli("run", "free", *arguments, stdin=stdin)
    assert answer.code == 2, answer
    assert answer.err.startswith("error: ")
    assert "Traceback" not in answer.err
    assert answer.out == ""
    assert count_runs(conn) == 0
    keys = conn.execute("select count(*) from suimon.idempotency_keys").fetchone()
    assert keys == (0,)
    return answer.err


@pytest.mark.usefixtures("deployed")
class TestInput:
    @pytest.mark.parametrize(
        "text",
        [
            '{"n": NaN}',
            '{"n": Infinity}',
            '{"n": "\\u0000"}',
            '{"n": "\\ud800"}',
            '{"n": 1',
            "n=1",
            "",
            '{"n": 123456789012345678901234567890}',
        ],
    )
    def test_text_that_is_no_storable_json(self, cli: Cli, conn: Connection, text: str) -> None:
        """NaN, NUL, half a character, broken JSON, a number too large."""
        assert "input" in refused(cli, conn, "--input", text)

    def test_the_handed_files(self, cli: Cli, conn: Connection) -> None:
        """NaN, NUL and a lone surrogate as they came in files."""
        for name in ("json_nan.json", "json_nul.json", "json_lone_surrogate.json"):
            refused(cli, conn, "--input", f"@{HANDED / name}")

    def test_a_file_that_is_not_utf8(self, cli: Cli, conn: Connection, tmp_path: Path) -> None:
        """Bytes are never repaired."""
        file = tmp_path / "latin.json"
        file.write_bytes(b'{"n": "caf\xe9"}')
        refused(cli, conn, "--input", f"@{file}")
        refused(cli, conn, "--input", "-", stdin=file.read_bytes())

    def test_fifty_megabytes(self, cli: Cli, conn: Connection, tmp_path: Path) -> None:
        """Refused with both sizes, before it is read into memory."""
        file = tmp_path / "large.json"
        file.write_bytes(json.dumps({"n": "x" * 50_000_000}).encode())
        text = refused(cli, conn, "--input", f"@{file}")
        assert "16,777,216" in text
        refused(cli, conn, "--input", "-", stdin=file.read_bytes())

    def test_a_file_that_is_not_there(self, cli: Cli, conn: Connection) -> None:
        """Named as the input file."""
        assert "nowhere.json" in refused(cli, conn, "--input", "@nowhere.json")

    def test_a_key_that_is_no_key(self, cli: Cli, conn: Connection) -> None:
        """Empty or longer than a key may be."""
        refused(cli, conn, "--idempotency-key", "")
        refused(cli, conn, "--idempotency-key", "k" * 1025)

    def test_a_field_that_the_graph_reads_is_missing(self, cli: Cli, conn: Connection) -> None:
        """Told with the field and the vertex that needs it, before anything runs."""
        answer = cli("run", "fan", "--input", '{"n": 3}')
        assert answer.code == 2
        assert '"bad"' in answer.err
        assert '"kids"' in answer.err
        answer = cli("run", "fan", "--input", "[1, 2]")
        assert answer.code == 2
        assert "object" in answer.err
        assert count_runs(conn) == 0

    def test_an_unknown_pipeline_gets_a_suggestion(self, cli: Cli, conn: Connection) -> None:
        """Exit code 3, and the name that was probably meant."""
        answer = cli("run", "limted")
        assert answer.code == 3
        assert "limited" in answer.err
        assert count_runs(conn) == 0


@pytest.mark.usefixtures("deployed")
def test_input_of_the_wrong_type_fails_with_the_field(cli: Cli, worker, conn: Connection) -> None:
    """What only the task's annotations know is told by the run's error, without a retry."""
    worker()
    answer = cli("run", "free", "--input", '{"n": "many"}', "--wait", "--json")
    assert answer.code == 1
    assert answer.json["status"] == "failed"
    assert answer.json["attempt"] == 1
    assert "n" in answer.json["error"]["message"]


BAD_DEFINITION = """
from suimon import Pipeline, task

@task
def one(x: int) -> int:
    return x

def plain(x):
    return x

p = Pipeline("Bad Name")
a = p.run("a", one, y=1)
b = p.run("b", plain, 1)
q = Pipeline("fine")
q.run("a", one, 1)
"""


def test_every_mistake_of_a_definition_at_once(cli: Cli, conn: Connection, tmp_path: Path) -> None:
    """check and deploy name each with file and vertex, exit 1, and store nothing."""
    (tmp_path / "bad.py").write_text(BAD_DEFINITION, encoding="utf-8")
    for command in (["pipelines", "check"], ["deploy"]):
        answer = cli(*command, str(tmp_path / "bad.py"))
        assert answer.code == 1
        assert "bad.py" in answer.err
        assert "Bad Name" in answer.err
        assert "@task" in answer.err
        assert '"y"' in answer.err or "y" in answer.err
    assert conn.execute("select count(*) from suimon.pipelines").fetchone() == (0,)
    assert conn.execute("select count(*) from suimon.graphs").fetchone() == (0,)


def test_code_that_cannot_be_imported(cli: Cli, conn: Connection, tmp_path: Path) -> None:
    """The module, the line and the exception; nothing stored."""
    (tmp_path / "torn.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    for command in (["pipelines", "check"], ["deploy"], ["worker"]):
        answer = cli(*command, str(tmp_path / "torn.py"))
        assert answer.code == 1, answer
        assert "nothing_of_this_name" in answer.err
    assert cli("deploy", str(tmp_path / "absent")).code == 1
    empty = tmp_path / "empty"
    empty.mkdir()
    answer = cli("deploy", str(empty))
    assert answer.code == 1
    assert "no pipeline" in answer.err
    assert conn.execute("select count(*) from suimon.graphs").fetchone() == (0,)
