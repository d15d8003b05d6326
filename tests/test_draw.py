"""Pictures of graphs: the same bytes each time, everything escaped, no box on another."""

from __future__ import annotations

import json
import re
import time
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suimon import draw
from suimon.core import shape

EIGHT = Path(__file__).parent / "golden" / "eight"
GRAPHS = {path.stem: json.loads(path.read_bytes()) for path in sorted(EIGHT.glob("*.json"))}
TASK = {"type": "TASK", "config": {"task": "m:f"}}


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    found = re.findall(r'<rect x="([-\d.]+)" y="([-\d.]+)" width="(\d+)" height="(\d+)"', svg)
    return [(float(x), float(y), float(w), float(h)) for x, y, w, h in found]


def test_text_names_each_vertex_what_it_does_and_what_it_needs() -> None:
    assert draw.text(GRAPHS["refund"]).splitlines() == [
        "checked  TASK      c_refund:check_refund",
        "manager  APPROVAL  Refund                 <- checked",
        "paid     HTTP      POST shop              <- checked, manager (when manager.approved)",
        "alarm    HTTP      POST shop              <- paid (if failed)",
        "refused  HTTP      POST shop              <- checked, manager (unless manager.approved)",
    ]
    assert draw.text({"vertices": {}}) == ""


@pytest.mark.parametrize("name", GRAPHS)
def test_a_picture_holds_every_vertex_and_link(name: str) -> None:
    graph = GRAPHS[name]
    picture = draw.svg(graph)
    root = ET.fromstring(picture)
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 1 + len(graph["vertices"])
    lines = picture.count("marker-end")
    assert lines == sum(len(needs) for needs in shape.dependencies(graph).values())
    assert draw.svg(json.loads(json.dumps(graph))) == picture


def test_what_people_wrote_is_escaped() -> None:
    nasty = "</text><script>alert(1)</script>&\"'"
    graph = {
        "pipeline": nasty,
        "vertices": {
            "ok": {"type": "APPROVAL", "config": {"title": nasty}},
            "a": {**TASK, "when": {"$ref": ["ok", nasty]}},
        },
    }
    picture = draw.svg(graph)
    assert "<script" not in picture
    ET.fromstring(picture)


@given(st.data())
def test_no_box_lies_on_another_and_lines_lead_down(data: st.DataObject) -> None:
    names = [f"v{index}" for index in range(data.draw(st.integers(1, 10)))]
    vertices: dict[str, Any] = {}
    for index, name in enumerate(names):
        some = st.lists(st.sampled_from(names[:index]), unique=True) if index else st.just([])
        vertices[name] = {**TASK, "after": data.draw(some)}
    picture = draw.svg({"pipeline": "p", "vertices": vertices})
    found = boxes(picture)
    assert len(found) == len(names)
    for (x0, y0, w, h), (x1, y1, _, _) in combinations(found, 2):
        assert abs(x0 - x1) >= w or abs(y0 - y1) >= h
    for path in re.findall(r'd="M[-\d.]+ ([-\d.]+)C[^"]* ([-\d.]+)" marker', picture):
        assert float(path[0]) < float(path[1])


def test_a_thousand_vertices_are_drawn_in_a_moment() -> None:
    vertices = {
        f"v{index:03}": {**TASK, "after": [f"v{other:03}" for other in range(0, index, 7)][-5:]}
        for index in range(1000)
    }
    started_at = time.monotonic()
    draw.svg({"pipeline": "p", "vertices": vertices})
    draw.text({"pipeline": "p", "vertices": vertices})
    assert time.monotonic() - started_at < 5
