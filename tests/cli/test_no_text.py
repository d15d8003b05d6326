"""What cannot be text, a number or a file's place is one clear error; a file's name may be any
bytes.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from .conftest import Answer, Cli

ODD = "\udcff"  # the byte FF, as Python holds it
LARGE = "99999999999999999999"


def with_run(cli: Cli, arguments: tuple[str, ...]) -> list[str]:
    """RUN is a run that is queued."""
    if "RUN" not in arguments:
        return list(arguments)
    run = cli("run", "free", "--input", '{"n": 1}', "--json").json["id"]
    return [run if one == "RUN" else one for one in arguments]


def clear(answer: Answer, *codes: int) -> str:
    """One error without a traceback, with one of these exit codes."""
    assert answer.code in (codes or (2,)), answer
    assert "Traceback" not in answer.err + answer.out, answer
    return answer.err


@pytest.mark.usefixtures("deployed")
class TestNoUtf8:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("run", ODD),
            ("run", "free", "--idempotency-key", ODD),
            ("run", "free", "--label", ODD),
            ("run", "free", "--input", f'{{"n": "{ODD}"}}'),
            ("runs", "list", "--pipeline", ODD),
            ("runs", "list", "--label", ODD),
            ("runs", "show", ODD),
            ("runs", "cancel", "RUN", "--why", ODD),
            ("pipelines", "show", ODD),
            ("pause", "pipeline", ODD),
            ("pause", "pipeline", "free", "--why", ODD),
            ("resume", "pool", ODD),
            ("signal", "RUN", ODD),
            ("emit", ODD),
            ("emit", "a.b", "--key", ODD),
            ("limits", "hold", ODD, "--for", "1m"),
            ("runs", "list", "--reason", ODD),
            ("pools", "set-cap", ODD, "3"),
            ("triggers", "list", "--pipeline", ODD),
            ("secrets", "remove", ODD),
            ("status", "--db", ODD),
            ("status", "--db", f"postgresql://{ODD}@localhost/x"),
        ],
    )
    def test_it_is_one_usage_error(self, cli: Cli, arguments: tuple[str, ...]) -> None:
        """With and without --json; where a name is looked for, not to be found is an answer."""
        asked = with_run(cli, arguments)
        assert "No such" not in clear(cli(*asked), 2, 3)
        answer = cli(*asked, "--json")
        clear(answer, 2, 3)
        assert answer.problem["exit_code"] == answer.code

    def test_it_names_the_argument(self, cli: Cli) -> None:
        answer = cli("runs", "list", "--pipeline", f"caf{ODD}", "--json")
        assert answer.code == 2
        assert answer.problem["code"] == "SUI-0002"
        assert '--pipeline "caf\\xff"' in answer.problem["message"]

    def test_files_with_such_names_work(self, cli: Cli, deployed: Path) -> None:
        """Folders of pipelines, inputs, files to explain."""
        folder = deployed.rename(deployed.parent / f"proj{ODD}")
        assert cli("pipelines", "check", str(folder)).code == 0
        assert cli("deploy", str(folder)).code == 0
        assert cli("deploy", str(folder / "work.py"), "--json").code == 0
        given = folder / f"in{ODD}.json"
        given.write_text('{"n": 1}', encoding="utf-8")
        assert cli("run", "free", "--input", f"@{given}").code == 0
        (folder / f"bad{ODD}.yaml").write_text("suimon: 1\npipeline: [", encoding="utf-8")
        text = clear(cli("pipelines", "check", str(folder)), 1)
        assert "bad\\" in text
        clear(cli("triggers", "explain", str(given)), 0, 1, 3)


@pytest.mark.usefixtures("deployed")
@pytest.mark.parametrize(
    "arguments",
    [
        ("triggers", "show", LARGE),
        ("runs", "priority", "RUN", LARGE),
        ("triggers", "explain", "x", "--trigger", LARGE),
        ("triggers", "again", "x", "--trigger", LARGE),
        ("audit", "list", "--before", LARGE),
        ("limits", "set", "x", "--burst", LARGE),
        ("limits", "set", "x", "--rate", "1/s", "--expect", LARGE),
        ("pools", "set-cap", "x", LARGE),
        ("pools", "set-cap", "x", "3", "--expect", LARGE),
        ("runs", "children", "RUN", "--position", LARGE),
        ("runs", "children", "RUN", "--from", LARGE),
        ("runs", "logs", "RUN", "--try", LARGE),
        ("storage", "set", "--high", "10GB", "--expect", LARGE),
    ],
)
def test_a_number_that_is_too_large_is_no_fault(cli: Cli, arguments: tuple[str, ...]) -> None:
    answer = cli(*with_run(cli, arguments))
    assert "No such" not in clear(answer, 0, 1, 2, 3, 5)


def test_what_is_no_file_and_no_folder_holds_no_pipelines(cli: Cli, tmp_path: Path) -> None:
    """A device, a pipe, a name that is too long; told without what happened inside."""
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", str(tmp_path / "pipe"), "a" * 300):
        for command in (["deploy"], ["pipelines", "check"], ["worker"], ["serve"]):
            answer = cli(*command, path)
            assert "SUI-2002" in clear(answer, 1), answer
            assert "detail" not in answer.err


def test_what_is_no_name_of_a_variable_is_refused(cli: Cli, project: Path) -> None:
    """`A=B` would give the tasks nothing."""
    for name in ("A=B", "", "1A", "a-b", "ä", f"A{ODD}"):
        assert "is no name of a variable" in clear(cli("worker", str(project), "--env", name))


@pytest.mark.usefixtures("deployed")
@pytest.mark.parametrize(
    "command",
    [
        ("run", "free", "--input", "@FILE"),
        ("pipelines", "graph", "fan", "--svg", "FILE"),
        ("secrets", "set", "bank", "--from-file", "FILE"),
        ("emit", "a.b", "@FILE"),
    ],
)
def test_a_path_that_the_system_refuses_has_a_code(
    cli: Cli, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Wherever a person named it: not there, a folder, below a device, too long."""
    folder = tmp_path / "folder"
    folder.mkdir()
    key = {"SUIMON_SECRET_KEY": base64.b64encode(bytes(32)).decode()}
    for given in ("/nope/x", str(folder), "/dev/null/x", "b" * 300):
        answer = cli(*(one.replace("FILE", given) for one in command), env=key)
        text = clear(answer, 1, 2)
        assert "SUI-0000" not in text
        assert "No such option" not in text
