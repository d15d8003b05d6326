"""Eight realistic pipelines, in Python, YAML and JSON: one meaning, one text, one hash.

`data/eight/tasks` holds their functions, `python` and `yaml` the two forms. `as_written` holds the
three that need what this version does not have, as their authors first wrote them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from suimon import graph as graphs
from suimon.errors import DefinitionError
from suimon.load import Loaded, load_path

DATA = Path(__file__).parent / "data" / "eight"
GOLDEN = Path(__file__).parent / "golden" / "eight"
NAMES = [
    "archive_month",
    "bill_all",
    "bill_customer",
    "import_orders",
    "ledger",
    "month_end",
    "nightly_stock",
    "refund",
    "render",
    "scans",
]


def load(folder: Path, *parts: str) -> Loaded:
    for part in parts:
        shutil.copytree(DATA / part, folder, dirs_exist_ok=True)
    return load_path(folder).check()


@pytest.mark.parametrize("form", ["python", "yaml"])
def test_every_form_gives_the_golden_bytes(form: str, tmp_path: Path) -> None:
    loaded = load(tmp_path / "code", "tasks", form)
    assert [pipeline.name for pipeline in loaded.pipelines] == NAMES
    for pipeline in loaded.pipelines:
        golden = (GOLDEN / f"{pipeline.name}.json").read_bytes().rstrip(b"\n")
        assert graphs.canonical(pipeline.graph) == golden
        assert pipeline.hash == graphs.graph_hash(graphs.parse(golden))


def test_the_golden_bytes_are_a_third_form(tmp_path: Path) -> None:
    """Canonical JSON below a PATH is read as a definition and comes out as it went in."""
    shutil.copytree(GOLDEN, tmp_path / "code")
    loaded = load(tmp_path / "code", "tasks")
    assert [pipeline.name for pipeline in loaded.pipelines] == NAMES
    for pipeline in loaded.pipelines:
        golden = (GOLDEN / f"{pipeline.name}.json").read_bytes().rstrip(b"\n")
        assert graphs.canonical(pipeline.graph) == golden


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("a", 12, "import_orders: orders.config.destination: destinations are not in this version"),
        ("c", 9, "refund: paid.type: unknown vertex type 'HTTP'; this version has APPROVAL, MERGE"),
    ],
)
def test_what_this_version_does_not_have_is_refused_where_it_stands(
    name: str, line: int, said: str
) -> None:
    text = (DATA / "as_written" / f"{name}.yaml").read_bytes()
    with pytest.raises(DefinitionError) as caught:
        graphs.parse_yaml(text, file=f"{name}.yaml")
    assert caught.value.mistakes[0].render().startswith(f"{name}.yaml:{line}: {said}")


def test_a_verb_of_a_later_version_names_those_of_this_one() -> None:
    from suimon import Pipeline

    p = Pipeline("p")
    with pytest.raises(AttributeError, match='has no "notebook"; this version has the verbs approve, '):
        p.notebook("late")  # type: ignore[attr-defined]
