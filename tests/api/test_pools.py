"""Pools over HTTP: caps and a pipeline's pool with their ETags, a spawn's limit, reasons."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
from support.lab import SPAWN_GRAPH, Lab
from support.serving import ServeProcess

API = "/api/v1"


def _put(server: ServeProcess, path: str, asked: dict[str, Any], **more: Any) -> httpx.Response:
    return server.ask("PUT", path, json=asked, **more)


def test_a_cap_is_edited_by_whoever_has_seen_it(server: ServeProcess, lab: Lab) -> None:
    lab.worker()
    seen = server.get(f"{API}/pools/default")
    mark = {"If-Match": seen.headers["etag"]}
    path = f"{API}/pools/default/cap"
    assert _put(server, path, {"cap": 3}).status_code == 428
    made = _put(server, path, {"cap": 3, "by": "op"}, headers=mark)
    assert (made.status_code, made.json()["cap"]) == (200, 3)
    assert _put(server, path, {"cap": 4}, headers=mark).status_code == 412
    assert _put(server, path, {"cap": 0}, headers={"If-Match": "*"}).status_code == 422
    listed = server.get(f"{API}/pools").json()["items"]
    assert [one["cap"] for one in listed if one["name"] == "default"] == [3]
    assert _put(server, path, {"cap": None}, headers={"If-Match": "*"}).json()["cap"] is None
    assert server.get(f"{API}/pools/nothing").status_code == 404


def test_a_pipelines_pool_is_set_and_taken_back(server: ServeProcess, lab: Lab) -> None:
    lab.pipeline("moves")
    run = lab.submit("moves")
    path = f"{API}/pipelines/moves/pool"
    seen = server.get(path)
    assert (seen.json()["pool"], seen.json()["pool_edited"]) == ("default", False)
    mark = {"If-Match": seen.headers["etag"]}
    made = _put(server, path, {"pool": "gpu", "by": "op"}, headers=mark)
    assert (made.json()["pool"], made.json()["moved"]) == ("gpu", 1)
    assert _put(server, path, {"pool": "cpu"}, headers=mark).status_code == 412
    assert server.get(f"{API}/runs/{run}").json()["pool"] == "gpu"
    mark = {"If-Match": made.headers["etag"]}
    assert _put(server, path, {"pool": None}, headers=mark).json()["pool"] == "default"


def test_a_running_spawn_is_limited(server: ServeProcess, lab: Lab) -> None:
    lab.pipeline("spawns", SPAWN_GRAPH)
    parent = lab.fan_out(lab.worker("far"), "spawns", 5, limit=2)
    path = f"{API}/runs/{parent.id}/spawns/kids/concurrency"
    seen = server.get(path)
    assert seen.json()["concurrency"] == 2
    mark = {"If-Match": seen.headers["etag"]}
    assert _put(server, path, {"concurrency": 3}, headers=mark).json()["concurrency"] == 3
    assert _put(server, path, {"concurrency": 1}, headers=mark).status_code == 412
    admitted = "select count(*) from suimon.runs where parent_id = %s and admitted"
    assert lab.one(admitted, parent.id) == 3


def test_runs_are_counted_and_listed_by_reason(server: ServeProcess, lab: Lab) -> None:
    lab.pipeline("nowhere", pool="nowhere")
    runs = lab.submit_many("nowhere", 3)
    groups = server.get(f"{API}/reasons").json()["items"]
    assert [one["runs"] for one in groups if one["reason"] == "no_worker:nowhere"] == [3]
    asked = {"reason": "no_worker:nowhere", "limit": 2}
    page = server.get(f"{API}/runs", params=asked).json()
    rest = server.get(f"{API}/runs", params={**asked, "cursor": page["next_cursor"]}).json()
    found = [one["id"] for one in (*page["items"], *rest["items"])]
    assert found == sorted(runs, reverse=True)
    refused = server.get(f"{API}/runs", params={"reason": "nothing"})
    assert refused.status_code == 422
    why = server.get(f"{API}/runs/{runs[0]}/why").json()
    assert why["held_by"] == "nobody"
    assert why["ends"] == "one is started: suimon worker PATH --pool nowhere"
