"""What the documents show is what happens: their Python and shell blocks are run.

Blocks that cannot be run here (they install, never end, or need another machine) say why in a
comment above them; the commands, options and make targets they name must exist all the same.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from docs.blocks import ROOT, Block, blocks, documents
from support.wait import wait_until

from suimon.cli.main import cli
from suimon.db.connect import connect

PATIENCE_SECONDS = 90
#: A command that begins with one of these is checked, never run: it changes the machine.
ONLY_CHECKED = ("make", "git", "cd", "pip", "uv", "sudo", "systemctl", "docker", "psql", "createdb")


def runnable(block: Block) -> bool:
    if block.why is not None:
        return False
    if block.language not in ("python", "sh"):
        return block.file is not None
    return block.language == "python" or not any(c[0] in ONLY_CHECKED for c in commands(block))


def commands(block: Block) -> Iterator[list[str]]:
    """The simple commands of a shell block, as words."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        for part in re.split(r"&&|\|\||[|;]", line.split(" #")[0]):
            try:
                words = [w for w in shlex.split(part, comments=True) if not re.match(r"\w+=", w)]
            except ValueError:  # a quoted text with one of the separators in it
                continue
            if words:
                yield words


TO_RUN = [path for path in documents() if any(runnable(block) for block in blocks(path))]
SHELL = [block for path in documents() for block in blocks(path) if block.language == "sh"]


@pytest.mark.slow
@pytest.mark.parametrize("path", TO_RUN, ids=lambda path: path.name)
def test_blocks_run(path: Path, db_url: str, tmp_path: Path) -> None:
    """From top to bottom, in one folder and with one database per document."""
    project = tmp_path / "project"
    project.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SUIMON_DATABASE_URL": db_url,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    todo = [block for block in blocks(path) if runnable(block)]
    for block in todo:
        if block.file is not None:
            file = project / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
    with worker(todo, project, environment, db_url):
        for block in todo:
            if block.file is None:
                run(block, project, environment)


def run(block: Block, project: Path, environment: dict[str, str]) -> None:
    if block.language == "python":
        command = [sys.executable, "-c", block.text]
        environment = {**environment, "PYTHONPATH": str(project)}
    else:
        command = ["bash", "-euo", "pipefail", "-c", block.text]
    done = subprocess.run(
        command,
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{block.place}\n{done.stdout}\n{done.stderr}"


@contextmanager
def worker(
    todo: list[Block], project: Path, environment: dict[str, str], url: str
) -> Iterator[None]:
    """A worker on the document's project, if a block asks for one."""
    if not any(block.worker for block in todo):
        yield
        return
    log = project.parent / "worker.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            ["suimon", "worker", str(project)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )

    def alive() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")
        with connect(url, name="test") as conn:
            return (
                conn.execute("select 1 from suimon.workers where not dead").fetchone() is not None
            )

    try:
        wait_until(alive, PATIENCE_SECONDS, "the document's worker")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.place)
def test_commands_exist(block: Block) -> None:
    """Every `suimon` command and option, and every make target, also in blocks that are not run."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands(block):
        if words[0] == "make":
            wanted = [word for word in words[1:] if not word.startswith("-")]
            assert set(wanted) <= targets, f"{block.place}: {words}"
        if words[0].rpartition("/")[2] == "suimon":
            check_command(words[1:], block.place)


def check_command(words: list[str], place: str) -> None:
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"{place}: there is no command {words[0]}"
        command, words = found, words[1:]
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    known |= {"--help", "-h"}
    unknown = [w for w in words if w.startswith("--") and w.partition("=")[0] not in known]
    assert not unknown, f"{place}: {command.name} has no {unknown}"


def test_what_is_not_run_says_why() -> None:
    """A reason is a few words, not a dash."""
    reasons = [b for path in documents() for b in blocks(path) if b.why is not None]
    assert [block.place for block in reasons if len(block.why or "") < 8] == []
