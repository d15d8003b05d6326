"""Documents that are made from the source are current, and complete."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from suimon import errors
from suimon.core.failures import STORED
from suimon.core.states import EDGES
from suimon.errors import MergeFailed

ROOT = Path(__file__).resolve().parents[2]


def document(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_made_documents_are_current() -> None:
    """`make docs` would change nothing."""
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run `make docs`: {done.stdout}{done.stderr}"


def test_the_states_have_a_diagram_with_every_edge() -> None:
    text = document("states.md")
    diagram = text.partition("```mermaid")[2].partition("```")[0]
    assert diagram.count("-->") == len(EDGES) + 1
    assert all(f"{old} --> {new}" in diagram for old, new in EDGES)


def test_every_code_in_the_source_is_documented() -> None:
    known = set(re.findall(r"SUI-\d{4}", document("errors.md")))
    bases = {"SUI-0000", "SUI-3000", "SUI-4000", "SUI-5000", "SUI-8000"}
    used = {
        code
        for path in sorted((ROOT / "suimon").rglob("*"))
        if path.suffix in (".py", ".sql")
        for code in re.findall(r"SUI-\d{4}", path.read_text(encoding="utf-8"))
    }
    assert used - bases - known == set()


def test_every_type_that_the_engine_stores_is_in_its_table() -> None:
    """Python and SQL write `type` into an error; each such word is explained."""
    patterns = {
        ".py": re.compile(r'"type": "([A-Z]\w+)"'),
        ".sql": re.compile(r"'type', '([A-Z]\w+)'"),
    }
    found = {
        word
        for folder in ("core", "run", "worker", "duties")
        for path in sorted((ROOT / "suimon" / folder).glob("*"))
        if path.suffix in patterns
        for word in patterns[path.suffix].findall(path.read_text(encoding="utf-8"))
    }
    assert found - set(STORED) == set()
    assert STORED["MergeFailed"].code == MergeFailed.code


def test_every_exit_code_is_documented() -> None:
    numbers = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    table = document("errors.md").partition("## Exit codes")[2]
    shown = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    assert numbers | {0} == {int(number) for number in shown}


def test_every_dependency_is_documented_with_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [
        *project["project"]["dependencies"],
        *(one for many in project["project"]["optional-dependencies"].values() for one in many),
        *(one for many in project["dependency-groups"].values() for one in many),
        *project["build-system"]["requires"],
    ]
    text = document("dependencies.md")
    for one in wanted:
        name, range_ = re.fullmatch(r"([\w-]+)(?:\[\w+\])?(.+)", one).groups()  # type: ignore[union-attr]
        assert re.search(rf"\| {name} \| `{re.escape(range_)}` \|", text), f"{one} is not there"
    named = re.findall(r"\| ([\w-]+) \| `[>=]", text)
    assert {re.match(r"[\w-]+", one)[0] for one in wanted} == set(named)  # type: ignore[index]
