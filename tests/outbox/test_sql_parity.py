"""suimon.submit in SQL takes and refuses what the Python door does, for the same graphs."""

from __future__ import annotations

from typing import Any

import orjson
import psycopg
import pytest
from support.lab import Lab

from suimon.errors import SuimonError
from suimon.run import doors


def task(**inputs: Any) -> dict[str, Any]:
    return {"t": {"type": "TASK", "config": {"task": "m:f"}, "inputs": inputs}}


GRAPHS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": (task(a=1), {}),
    "field": (task(a={"$ref": "input.n"}), {}),
    "deep": (task(a={"$ref": "input.a.b"}, b=[{"$ref": "input.c"}]), {}),
    "place": (task(a={"$ref": ["input", "rows", 0, "id"]}), {}),
    "whole": (task(a={"$ref": "input"}), {}),
    "lane": (task(a=1), {"concurrency": {"limit": 1, "per": "customer"}}),
}
INPUTS: list[Any] = [
    {}, {"n": 1}, {"n": None}, {"n": {"m": 1}}, {"N": 1}, {"a": {"b": 1}}, {"a": {"b": 1}, "c": 2},
    {"a": [], "c": 1}, {"a": {"b": None}, "c": None}, {"rows": []}, {"rows": [{"id": 1}]},
    {"rows": [{}]}, {"rows": {"0": {"id": 1}}}, {"rows": "text"}, {"customer": "x"},
    {"customer": 7}, {"customer": -7}, {"customer": 1.5}, {"customer": True}, {"customer": ""},
    {"customer": None}, {"customer": {"a": 1}}, {"customer": ["x"]}, [], [1], "text", 5, None,
]  # fmt: skip


@pytest.mark.parametrize("name", list(GRAPHS))
def test_both_doors_take_the_same_inputs(lab: Lab, name: str) -> None:
    vertices, more = GRAPHS[name]
    lab.pipeline(name, vertices, **more)
    different = []
    for given in INPUTS:
        text = orjson.dumps(given).decode()
        try:
            doors.start(lab.conn, name, given)
            python = "taken"
        except SuimonError as error:
            python = error.code
        try:
            lab.sql("select suimon.submit(%s, %s::jsonb)", name, text)
            sql = "taken"
        except psycopg.Error as error:
            sql = {"SUI33": "SUI-3003"}.get(str(error.diag.sqlstate), str(error))
        if python != sql:
            different.append(f"{text}: {python} in Python, {sql} in SQL")
    assert different == []
