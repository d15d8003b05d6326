"""`suimon pipelines limits`: shown, changed live, kept by a later deploy, recorded."""

from __future__ import annotations

from pathlib import Path

from .conftest import Cli


def test_limits_are_shown_changed_and_kept(cli: Cli, deployed: Path) -> None:
    before = cli("pipelines", "limits", "limited", "--json").json
    assert (before["name"], before["concurrency"]) == ("limited", 1)
    changed = cli(
        "pipelines", "limits", "limited", "--concurrency", "3", "--max-queued", "none",
        "--as", "op", "--why", "month's end", "--json",
    )  # fmt: skip
    assert (changed.json["concurrency"], changed.json["max_queued"]) == (3, None)
    assert changed.json["pause_after"] == before["pause_after"]
    assert cli("deploy", str(deployed)).code == 0
    assert cli("pipelines", "limits", "limited", "--json").json == changed.json
    shown = cli("pipelines", "limits", "limited")
    assert "max queued   unlimited" in shown.out
    (record,) = cli("audit", "list", "--action", "limits", "--json").json["audit"]
    assert (record["actor"], record["target"]) == ("op", "pipeline:limited")


def test_what_is_no_limit_is_refused(cli: Cli, deployed: Path) -> None:
    assert cli("pipelines", "limits", "limited", "--concurrency", "0").code == 2
    assert cli("pipelines", "limits", "limited", "--concurrency", "many").code == 2
    assert cli("pipelines", "limits", "limitd", "--concurrency", "2").code == 3
