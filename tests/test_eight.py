"""Eight realistic pipelines, in Python, YAML and JSON: one meaning, one text, one hash.

`data/eight/tasks` holds their functions, `python` and `yaml` the two forms.
`tasks/far.py` declares what they call.
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


@pytest.mark.parametrize("form", ["python", "yaml"])
def test_what_they_declare_beside_the_graphs_is_the_same_in_every_form(
    form: str, tmp_path: Path
) -> None:
    loaded = load(tmp_path / "code", "tasks", form)
    far = "http://far.example"
    assert loaded.destinations == {
        "crm": {"rate": "20/s", "concurrency": 8, "baseUrl": far},
        "shop": {"baseUrl": far, "auth": "secret:shop_token", "concurrency": 2},
        "video": {"baseUrl": far},
    }


def test_an_unknown_destination_is_told_with_the_nearest_one(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    load(folder, "tasks", "yaml")
    text = (folder / "c.yaml").read_text()
    (folder / "c.yaml").write_text(
        text.replace("destination: shop, method", "destination: shp, method", 1)
    )
    with pytest.raises(DefinitionError) as caught:
        load_path(folder).check()
    said = caught.value.mistakes[0].render()
    assert 'there is no destination "shp"' in said
    assert 'did you mean "shop"' in said


def test_two_declarations_of_one_name_are_a_mistake(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    load(folder, "tasks", "yaml")
    text = (folder / "a.yaml").read_text()
    (folder / "a.yaml").write_text(
        text.replace("concurrency: 8, baseUrl", "concurrency: 9, baseUrl")
    )
    with pytest.raises(DefinitionError) as caught:
        load_path(folder).check()
    assert '"crm" is declared otherwise in far.py' in caught.value.mistakes[0].render()


def test_a_verb_of_a_later_version_names_those_of_this_one() -> None:
    from suimon import Pipeline

    p = Pipeline("p")
    with pytest.raises(
        AttributeError, match='has no "notebook"; this version has the verbs approve, '
    ):
        p.notebook("late")  # type: ignore[attr-defined]
