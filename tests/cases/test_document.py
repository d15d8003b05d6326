"""docs/cases.md and the tests of the field cases say the same."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(test_c\d\d_\w+)`")


def test_every_case_test_that_is_named_exists_and_every_one_that_exists_is_named() -> None:
    named = set(NAMED.findall((ROOT / "docs" / "cases.md").read_text(encoding="utf-8")))
    path_of = {
        node.name: path.parent.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and NAMED.match(f"`{node.name}`")
    }
    found = set(path_of)
    assert named <= found, f"named in docs/cases.md but gone: {sorted(named - found)}"
    missing = {name for name in found if path_of[name] == "cases"} - named
    assert not missing, f"not in docs/cases.md: {sorted(missing)}"
