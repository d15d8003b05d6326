"""`suimon pools`, `suimon pipelines set-pool`, `suimon runs limit` and lists by reason."""

from __future__ import annotations

from pathlib import Path

from support.lab import SPAWN_GRAPH, Lab

from suimon.db.connect import Connection

from .conftest import Cli


def test_a_cap_is_set_shown_kept_from_a_stale_edit_and_recorded(cli: Cli, deployed: Path) -> None:
    changed = cli("pools", "set-cap", "default", "3", "--as", "op", "--why", "dear", "--json").json
    assert (changed["cap"], changed["version"]) == (3, 1)
    assert cli("pools", "set-cap", "default", "4", "--expect", "0").code == 5
    shown = cli("pools", "show", "default")
    assert "cap           3" in shown.out
    assert "limited" in shown.out
    (one,) = [p for p in cli("pools", "list", "--json").json["pools"] if p["name"] == "default"]
    assert one["cap"] == 3
    assert cli("pools", "set-cap", "default", "none", "--json").json["cap"] is None
    assert cli("pools", "set-cap", "defalt", "3").code == 3
    (last, first) = cli("audit", "list", "--action", "cap", "--json").json["audit"]
    assert (first["actor"], first["target"]) == ("op", "pool:default")
    assert last["target"] == "pool:default"


def test_a_pool_is_set_kept_by_a_deploy_and_taken_back(cli: Cli, deployed: Path) -> None:
    cli("run", "limited")
    done = cli("pipelines", "set-pool", "limited", "gpu", "--as", "op")
    assert "limited: pool gpu (set by hand); 1 run moved" in done.out
    assert "warning: no worker of pool gpu is alive" in done.err
    assert cli("deploy", str(deployed)).code == 0
    shown = cli("pipelines", "show", "limited")
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["SETTING", "NOW", "DECLARED"] in lines
    assert [line for line in lines if line[:1] == ["pool"]] == [["pool", "gpu", "default"]], (
        shown.out
    )
    found = cli("pipelines", "show", "limited", "--json").json
    assert (found["pool"], found["declared"]["pool"]) == ("gpu", "default")
    back = cli("pipelines", "set-pool", "limited", "--declared", "--json").json
    assert (back["pool"], back["pool_edited"], back["moved"]) == ("default", False, 1)
    assert cli("pipelines", "set-pool", "limited").code == 2
    assert cli("pipelines", "set-pool", "limited", "gpu", "--declared").code == 2
    assert cli("pipelines", "set-pool", "limted", "gpu").code == 3


def test_a_running_spawn_is_limited(cli: Cli, conn: Connection) -> None:
    lab = Lab(conn)
    lab.pipeline("p", SPAWN_GRAPH)
    parent = lab.fan_out(lab.worker(), "p", 5, limit=2)
    done = cli("runs", "limit", parent.id, "kids", "4", "--json").json
    assert (done["before"], done["concurrency"]) == (2, 4)
    assert lab.one("select count(*) from suimon.runs where parent_id is not null and admitted") == 4
    assert cli("runs", "limit", parent.id, "kid", "4").code == 3
    free = lab.fan_out(lab.worker(), "p", 2)
    refused = cli("runs", "limit", free.id, "kids", "1")
    assert refused.code == 5
    assert "without a limit of their own" in refused.err


def test_what_waits_is_counted_and_listed_by_its_reason(cli: Cli, deployed: Path) -> None:
    first = cli("run", "limited").out.strip()
    second = cli("run", "limited", "--queue").out.strip()
    groups = cli("runs", "list", "--waiting", "--json").json["reasons"]
    assert {one["reason"]: one["runs"] for one in groups} == {"lane": 1, "no_worker:default": 1}
    assert "no_worker:default" in cli("runs", "list", "--waiting").out
    for reason, run in (("lane", second), ("no_worker", first), ("no_worker:default", first)):
        listed = cli("runs", "list", "--reason", reason, "--json").json["runs"]
        assert [one["id"] for one in listed] == [run]
    assert cli("runs", "list", "--reason", "lain").code == 2
    assert cli("runs", "list", "--reason", "lane", "--status", "queued").code == 2
