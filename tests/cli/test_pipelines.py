"""`suimon pipelines check` and `graph`: they need no database for what is written in files."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from .conftest import Cli

PYTHON = """
from suimon import Cron, Pipeline, task

@task
def one(x: int) -> int:
    return x

p = Pipeline("badly")
a = p.run("a", one, y=1)
"""
YAML = """\
suimon: 1
pipeline: leaning
vertices:
  first:
    type: TASK
    config: {task: "bad:one", retries: many}
    inputs: {x: 1}
"""
JSON = """\
{"suimon": 1, "pipeline": "json", "vertices": {
  "first": {"type": "TASK", "config": {"task": "bad:one"}, "inputs": {"x": 1}},
  "second": {"type": "TASK", "config": {"task": "bad:one"},
    "inputs": {"x": {"$ref": "frist"}}}
}}
"""
GOOD = """
from suimon import Pipeline, task

@task
def one(x: int) -> int:
    return x

p = Pipeline("left")
p.run("b", one, p.run("a", one, p.input.n))
q = Pipeline("right")
q.run("c", one, q.input.n)
"""


@pytest.fixture
def offline(tmp_path: Path) -> Cli:
    """No database is known."""
    return Cli(None, tmp_path)


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "bad.py").write_text(PYTHON, encoding="utf-8")
    (folder / "leaning.yaml").write_text(YAML, encoding="utf-8")
    (folder / "written.json").write_text(JSON, encoding="utf-8")
    return folder


def test_check_tells_every_mistake_with_its_place(offline: Cli, bad: Path) -> None:
    """Of all three forms at once: file, line, vertex, field, and what to do; exit code 1."""
    answer = offline("pipelines", "check", str(bad))
    assert answer.code == 1
    blocks = {line for line in answer.err.splitlines() if not line.startswith(" ")}
    assert any(b.startswith("bad.py:9: pipeline badly, vertex a") for b in blocks), answer.err
    assert "leaning.yaml:6: pipeline leaning, vertex first, field config.retries" in blocks
    assert any(b.startswith("written.json:4: pipeline json, vertex second") for b in blocks)
    assert '"first"' in answer.err, "what was probably meant"
    assert "hint: " in answer.err
    assert "mistakes" in answer.out.splitlines()[-1]
    assert "no mistakes" not in answer.out
    assert "Traceback" not in answer.err


def test_check_in_json(offline: Cli, bad: Path) -> None:
    """The same, for programs: one document on standard output, and exit code 1."""
    answer = offline("pipelines", "check", str(bad), "--json")
    assert answer.code == 1
    assert answer.err == ""
    mistakes = {(one["file"], one.get("vertex")): one for one in answer.json["mistakes"]}
    assert mistakes["leaning.yaml", "first"]["field"] == "config.retries"
    assert mistakes["leaning.yaml", "first"]["line"] == 6
    assert all({"file", "line", "message"} <= set(one) for one in answer.json["mistakes"])
    assert answer.json["warnings"] == []


def test_warnings_do_not_change_the_exit_code(offline: Cli, tmp_path: Path) -> None:
    """A webhook that anybody may call: said, in both forms."""
    code = GOOD.replace("import Pipeline", "import Pipeline, Webhook")
    code += 't = Pipeline("open")\nt.run("a", one, 1)\nt.on(Webhook("orders"))\n'
    (tmp_path / "good.py").write_text(code, encoding="utf-8")
    answer = offline("pipelines", "check", str(tmp_path / "good.py"))
    assert answer.code == 0, answer.err
    assert "warning: open: /webhooks/orders has no secret" in answer.err
    assert "no mistakes" in answer.out
    answer = offline("pipelines", "check", str(tmp_path / "good.py"), "--json")
    assert answer.code == 0
    assert len(answer.json["warnings"]) == 1


def test_a_yaml_without_its_key_is_said(offline: Cli, tmp_path: Path) -> None:
    """The file and the key that is missing; the exit code stays."""
    (tmp_path / "good.py").write_text(GOOD, encoding="utf-8")
    (tmp_path / "twin.yaml").write_text("pipeline: t\nvertices:\n  a: {}\n", encoding="utf-8")
    answer = offline("pipelines", "check", str(tmp_path))
    assert answer.code == 0
    assert "warning: twin.yaml has vertices but not the key suimon: 1" in answer.err


def test_graph_of_an_existing_folder_says_how_a_path_is_written(
    db_url: str, tmp_path: Path
) -> None:
    """A word alone is a pipeline's name."""
    (tmp_path / "flows").mkdir()
    answer = Cli(db_url, tmp_path)("pipelines", "graph", "flows")
    assert answer.code == 3
    assert 'there is no pipeline "flows"' in answer.err
    assert "hint: For the folder here: suimon pipelines graph ./flows" in answer.err


def test_graph_of_a_path(offline: Cli, tmp_path: Path) -> None:
    """Text, SVG to a file and to standard output, canonical JSON; several need a name."""
    path = tmp_path / "good.py"
    path.write_text(GOOD, encoding="utf-8")
    answer = offline("pipelines", "graph", str(path))
    assert answer.code == 3
    assert "left, right" in answer.err
    chosen = (str(path), "--pipeline", "left")
    text = offline("pipelines", "graph", *chosen)
    assert text.code == 0, text.err
    assert text.out.splitlines()[1].split() == ["b", "TASK", "good:one", "<-", "a"]
    drawn = offline("pipelines", "graph", *chosen, "--svg", "-").out
    assert ET.fromstring(drawn).tag.endswith("svg")
    assert offline("pipelines", "graph", *chosen, "--svg", str(tmp_path / "left.svg")).code == 0
    assert (tmp_path / "left.svg").read_text(encoding="utf-8") == drawn
    assert offline("pipelines", "graph", *chosen, "--json").json["pipeline"] == "left"
    answer = offline("pipelines", "graph", str(path), "--pipeline", "lft")
    assert answer.code == 3
    assert "left" in answer.err


def test_graph_of_a_path_with_mistakes_tells_them(offline: Cli, bad: Path) -> None:
    """Nothing is drawn of what cannot be read."""
    answer = offline("pipelines", "graph", str(bad / "leaning.yaml"), "--svg", "-")
    assert answer.code == 1
    assert "leaning.yaml" in answer.err
    assert answer.out == ""


def test_graph_of_a_deployed_pipeline(cli: Cli, deployed: Path) -> None:
    """By name, from the database."""
    assert deployed.exists()
    drawn = cli("pipelines", "graph", "fan", "--svg", "-")
    assert drawn.code == 0, drawn.err
    assert ET.fromstring(drawn.out).tag.endswith("svg")
    assert cli("pipelines", "graph", "fann").code == 3
