"""The demo: one command, a real file, and the promises of its numbers."""

from __future__ import annotations

import csv
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.database import open_folder

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]
EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT_SECONDS = 60


@pytest.fixture
def folder() -> Iterator[Path]:
    made = open_folder("suimon-demo-")
    yield made
    shutil.rmtree(made, ignore_errors=True)


def rows() -> list[dict[str, str]]:
    """The file, read by other means than Suimon's."""
    found = importlib.util.find_spec("airportsdata")
    assert found is not None
    assert found.origin is not None
    with (Path(found.origin).parent / "airports.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def play(folder: Path, *, user: int | None = None, python: str = sys.executable) -> str:
    """Run the demo with an empty HOME and nothing of ours in the environment."""
    home = folder / "home"
    home.mkdir()
    if user is not None:
        os.chown(folder, user, user)
        os.chown(home, user, user)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    given = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    done = subprocess.run(
        [python, "-P", "-m", "suimon.cli.main", "demo"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
        **given,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_story(folder: Path, said: str) -> None:
    below = [row["icao"] for row in rows() if float(row["elevation"]) < 0]
    assert (len(rows()), len(below)) == (28_298, 27)
    assert "EHAM" in below  # Schiphol
    assert "28,271 of 28,298 succeeded, 27 failed" in said
    assert "Amsterdam Airport Schiphol" in said
    assert '27 children of "checks" would run again' in said
    assert "28,298 of 28,298 succeeded" in said
    assert "28,298 of 28,298 airports are valid, 0 were rejected." in said
    (demo,) = (folder / ".suimon").glob("demo-*")
    report = (demo / "report" / "airports.md").read_text(encoding="utf-8")
    assert "The lowest is LLMZ at -1,266 ft." in report
    rejected = (demo / "report" / "rejected.csv").read_text(encoding="utf-8")
    assert rejected.splitlines() == ["icao,why"]
    assert _processes_of(demo) == ""
    assert not (demo / "address").exists()


def _processes_of(demo: Path) -> str:
    """Command lines that name the demo's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(demo) in text:
                found.append(text)
    return "\n".join(found)


def test_the_demo_from_an_empty_folder(folder: Path) -> None:
    """27 of 28,298 are rejected, tolerated, corrected and run again; exit 0; nothing is left."""
    check_story(folder, play(folder))


@pytest.mark.needs_root
def test_the_demo_as_an_ordinary_user(folder: Path) -> None:
    """The same without root."""
    if os.geteuid() != 0:
        pytest.skip("this is an ordinary user: the test above was it")
    user = pwd.getpwnam("nobody").pw_uid
    python = python_of(user, folder)
    if python is None:
        pytest.skip("no Python of this version that an ordinary user can run")
    check_story(folder, play(folder, user=user, python=python))


def python_of(user: int, folder: Path) -> str | None:
    """A Python of this version that this user can run, and that finds what ours has."""
    system = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    if system is None:
        return None
    made = folder / "venv"
    subprocess.run([system, "-m", "venv", "--without-pip", str(made)], check=True)
    (packages,) = made.glob("lib/python*/site-packages")
    paths = [str(EXAMPLES.parent), sysconfig.get_path("platlib")]
    (packages / "ours.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
    python = str(made / "bin" / "python")
    done = subprocess.run(
        [python, "-P", "-c", "import suimon, psycopg, airportsdata"],
        user=user, group=user, extra_groups=[], cwd="/", check=False, capture_output=True,
    )  # fmt: skip
    return python if done.returncode == 0 else None


def test_the_examples_have_no_mistakes() -> None:
    """All of them together, as `make dev` loads them."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "suimon.cli.main", "pipelines", "check", str(EXAMPLES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "no mistakes" in done.stdout
