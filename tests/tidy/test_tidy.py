"""The house rules that no other tool knows. Each failure says what to do instead."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 100

SQL_TEXT = re.compile(
    r"(?is)^\s*(select\s.+\sfrom\s|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s"
    r"|with\s+\w+\s+as\s|(create|alter|drop)\s+(table|index|function|schema|database)\s)"
)
MARKER = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|Users|work|mnt|workspace)/\w+")
READS_TIME = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns",
             "clock_gettime", "clock_gettime_ns", "localtime", "gmtime"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}  # fmt: skip


# in one process, which reads each file once
pytestmark = pytest.mark.xdist_group("tidy")


@cache
def files() -> tuple[Path, ...]:
    """What git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = (ROOT / line for line in sorted(set(listed.splitlines())))
    return tuple(path for path in found if path.is_file() and not path.is_symlink())


def sources(*folders: str) -> list[Path]:
    """Python files below the folders, or all of them."""
    inside = [ROOT / folder for folder in folders]
    return [
        path
        for path in files()
        if path.suffix == ".py" and (not inside or any(f in path.parents for f in inside))
    ]


def texts() -> Iterator[tuple[Path, str]]:
    """Every tracked text that people write by hand."""
    for path in files():
        if path.name in ("uv.lock", "LICENSE") or path == Path(__file__).resolve():
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            yield path, data.decode("utf-8", "replace")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def at(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def report(found: list[str], advice: str) -> None:
    if found:
        pytest.fail(f"{advice}\n  " + "\n  ".join(found), pytrace=False)


def test_files_are_short() -> None:
    """A file that cannot be read in one sitting holds more than one thing."""
    found = []
    for path in files():
        if path.suffix in (".py", ".sql") and path.name not in ("schema.sql", "0001_initial.sql"):
            count = len(path.read_text(encoding="utf-8").splitlines())
            if count > MAX_FILE_LINES:
                found.append(f"{path.relative_to(ROOT)}: {count} lines")
    report(found, f"Split these by transition; a file has at most {MAX_FILE_LINES} lines:")


def test_functions_are_short() -> None:
    """A function reads like a table of contents, or like one of its chapters."""
    found = []
    for path in sources():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    found.append(f"{at(path, node.lineno)}: {node.name} has {length} lines")
    report(found, f"Give its stages names; a function has at most {MAX_FUNCTION_LINES} lines:")


def test_each_file_opens_with_its_story() -> None:
    """What it is for, what may go wrong, what it promises."""
    found = [at(path, 1) for path in sources() if not ast.get_docstring(tree(path))]
    found += [
        at(path, 1)
        for path in files()
        if path.suffix == ".sql" and not path.read_text(encoding="utf-8").startswith("-- ")
    ]
    report(found, "Begin these files with a docstring or comment that says what they are for:")


def test_no_leftover_markers() -> None:
    """Unfinished work lives in an issue, not in the source."""
    found = [
        f"{at(path, number)}: {line.strip()[:80]}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if MARKER.search(line)
    ]
    report(found, "Do it or file an issue, and remove the marker:")


def test_no_path_of_one_machine() -> None:
    """What works only where it was written does not belong here."""
    found = [
        f"{at(path, number)}: {line.strip()[:80]}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    report(found, "Take the path from an option, a setting or the file's own place:")


def test_sql_lives_in_sql_files() -> None:
    """Statements have a name, a file, comments for each idea, and a plan that a test can hold."""
    found = []
    for path in sources("suimon", "examples"):
        docstrings = {id(node) for node in _docstrings(tree(path))}
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and id(node) not in docstrings:
                text = node.value if isinstance(node.value, str) else None
                if text and SQL_TEXT.match(text):
                    found.append(f"{at(path, node.lineno)}: {text.strip().splitlines()[0][:60]}")
    report(found, "Move it into the .sql file of the module's name (see suimon/db/statements.py):")


def _docstrings(module: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(module):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _calls(path: Path) -> Iterator[tuple[int, str, str]]:
    """(line, object, method) of each call `object.method(...)`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            yield node.lineno, name, node.func.attr


def test_only_the_clock_reads_time() -> None:
    """Time is an input: a test must be able to move it."""
    clock = ROOT / "suimon" / "core" / "clock.py"
    found = [
        f"{at(path, line)}: {owner}.{method}()"
        for path in sources("suimon")
        if path != clock
        for line, owner, method in _calls(path)
        if method in READS_TIME.get(owner, ())
    ]
    for path in sources("suimon"):
        for node in ast.walk(tree(path)):
            if path != clock and isinstance(node, ast.ImportFrom) and node.module == "time":
                names = {alias.name for alias in node.names} & READS_TIME["time"]
                found += [f"{at(path, node.lineno)}: from time import {name}" for name in names]
    report(found, "Ask suimon.core.clock (now, monotonic, boottime) instead:")


def test_only_connect_opens_connections() -> None:
    """Name, time zone, isolation and timeouts are the same for all of them."""
    home = ROOT / "suimon" / "db" / "connect.py"
    found = [
        f"{at(path, line)}: {owner}.connect()"
        for path in sources("suimon", "bench", "examples")
        if path != home
        for line, owner, method in _calls(path)
        if method == "connect" and owner in ("psycopg", "Connection", "AsyncConnection")
    ]
    report(found, "Call suimon.db.connect.connect(url, name=...) instead:")


def test_lines_fit() -> None:
    """Also in SQL and documents of commands, which no formatter looks at."""
    found = [
        f"{at(path, number)}: {len(line)} columns"
        for path in files()
        if path.suffix == ".sql" and "migrations" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > 140
    ]
    report(found, "Break these lines; Python has 100 columns and SQL at most 140:")
