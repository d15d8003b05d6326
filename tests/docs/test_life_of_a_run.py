"""`docs/life-of-a-run.md` is true: what it names exists, and no module of the engine is missing."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "life-of-a-run.md"
#: Every module of these packages is somewhere in the walk.
WALKED = ("run", "worker", "duties", "core", "db")

ENTRY = re.compile(r"^- `(?P<path>suimon/[\w/]+\.py)`: (?P<rest>.+)$", re.MULTILINE)
ANY_PATH = re.compile(r"`((?:suimon|docs)/[\w./-]+\.\w+)`")
NAME = re.compile(r"`([A-Za-z_][\w.]*)`")


@cache
def names_in(path: Path) -> frozenset[str]:
    """Functions, classes, methods as `Class.method`, and constants at the top of a module."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (ast.FunctionDef, ast.AsyncFunctionDef)
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, inner)}
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {one.id for one in targets if isinstance(one, ast.Name)}
    return frozenset(found)


def entries() -> list[tuple[str, str]]:
    """(path, text) of each line of the walk."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return [(match["path"], match["rest"]) for match in ENTRY.finditer(text)]


def test_every_named_file_exists() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    gone = [path for path in ANY_PATH.findall(text) if not (ROOT / path).is_file()]
    assert gone == []


def test_every_named_function_exists() -> None:
    """What stands behind "Look at" is in the file of its line."""
    gone = []
    for path, rest in entries():
        _, _, listed = rest.partition("Look at ")
        names = NAME.findall(listed) or NAME.findall(rest.partition("Read ")[2])
        assert names, f"{path}: its line names nothing to look at"
        known = names_in(ROOT / path)
        gone += [f"{path}: {name}" for name in names if name not in known]
    assert gone == []


def test_every_module_of_engine_and_worker_is_named_once() -> None:
    named = [path for path, _ in entries()]
    modules = sorted(
        str(path.relative_to(ROOT))
        for package in WALKED
        for path in (ROOT / "suimon" / package).glob("*.py")
        if path.name != "__init__.py"
    )
    assert sorted(set(modules) - set(named)) == []
    assert sorted(path for path in set(named) if named.count(path) > 1) == []


def test_all_sql_belongs_to_a_named_module() -> None:
    """A `.sql` file has the name of the module that owns it, so the walk leads to it too."""
    own = {"schema.sql"}
    strays = [
        str(path.relative_to(ROOT))
        for package in WALKED
        for path in (ROOT / "suimon" / package).glob("*.sql")
        if path.name not in own and not path.with_suffix(".py").exists()
    ]
    assert strays == []
