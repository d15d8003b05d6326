"""Which files a pattern means, and which names are left out. No file is touched."""

from __future__ import annotations

from typing import Any

import pytest

from suimon.triggers import file_rules
from suimon.triggers.file_rules import Rules


def rules(path: str, **spec: Any) -> Rules:
    return file_rules.of_spec({"path": path, **spec})


def meant(chosen: Rules, path: str) -> bool:
    below = chosen.below(path)
    if below is None:
        return False
    states = chosen.start
    for name in below.split("/"):
        states = chosen.step(states, name)
    return chosen.is_whole(states)


@pytest.mark.parametrize(
    ("pattern", "base", "parts"),
    [
        ("/in/*.csv", "/in", ("*.csv",)),
        ("/in/orders.csv", "/in", ("orders.csv",)),
        ("/in/", "/in", ("*",)),
        ("/a/b/scans/*/READY", "/a/b/scans", ("*", "READY")),
        ("/a/../in/x?.csv", "/in", ("x?.csv",)),
        ("//in//*.csv", "/in", ("*.csv",)),
        ("/*.csv", "/", ("*.csv",)),
        ("/in/[ab]/**/*.csv", "/in", ("[ab]", "**", "*.csv")),
    ],
)
def test_what_comes_before_the_first_pattern_is_the_folder(
    pattern: str, base: str, parts: tuple[str, ...]
) -> None:
    assert file_rules.split(pattern) == (base, parts)


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("/in/*.csv", "/in/a.csv", True),
        ("/in/*.csv", "/in/a.CSV", False),
        ("/in/*.csv", "/in/sub/a.csv", False),
        ("/in/*.csv", "/inbox/a.csv", False),
        ("/in/*.csv", "/in", False),
        ("/in/*/READY", "/in/7/READY", True),
        ("/in/*/READY", "/in/READY", False),
        ("/in/*/READY", "/in/7/8/READY", False),
        ("/in/**/*.csv", "/in/a.csv", True),
        ("/in/**/*.csv", "/in/1/2/3/a.csv", True),
        ("/in/**", "/in/1/a.csv", True),
        ("/*.csv", "/a.csv", True),
    ],
)
def test_a_star_stands_for_one_name_and_two_for_any_folders(
    pattern: str, path: str, *, fits: bool
) -> None:
    assert meant(rules(pattern), path) is fits


def test_recursive_means_the_last_part_at_any_depth() -> None:
    chosen = rules("/in/*.csv", recursive=True)
    assert [meant(chosen, p) for p in ("/in/a.csv", "/in/x/y/a.csv", "/in/a.txt")] == [1, 1, 0]
    below = rules("/in/*/data/*.csv", recursive=True)
    assert meant(below, "/in/7/data/x/a.csv")
    assert not meant(below, "/in/7/a.csv")


def test_a_folder_is_entered_only_where_something_below_can_be_meant() -> None:
    chosen = rules("/in/20??/*/READY")
    states = chosen.step(chosen.start, "2030")
    assert chosen.goes_on(states)
    assert not chosen.is_whole(states)
    assert not chosen.goes_on(chosen.step(chosen.start, "archive"))


@pytest.mark.parametrize(
    "name",
    ["~$monthly.xlsx", "a.part", "a.csv.filepart", "a.tmp", "A.TMP", ".hidden", ".a.csv.swp",
     "a.crdownload", "a.csv~", "a.partial", ".~lock.a.ods#", "a.download"],
)  # fmt: skip
def test_names_of_programs_that_are_still_writing_are_ignored(name: str) -> None:
    assert rules("/in/*").ignored_by(name) is not None
    assert rules("/in/*").ignored_by(f"sub/{name}") is not None


def test_ignore_replaces_the_list_and_a_slash_makes_it_a_path() -> None:
    chosen = rules("/in/**/*", ignore=["*.bak", "old/*"])
    assert [chosen.ignored_by(n) for n in ("a.tmp", ".a", "a.bak", "old/a", "x/old/a")] == [
        None, None, "*.bak", "old/*", None,
    ]  # fmt: skip
    assert rules("/in/*", ignore=[]).ignored_by("~$a.xlsx") is None


def test_done_and_failed_are_below_the_folder_of_the_pattern() -> None:
    chosen = rules("/in/*.csv", done="done/", failed="../bad")
    assert chosen.target("succeeded") == "/in/done"
    assert [chosen.target(s) for s in ("failed", "timed_out", "cancelled")] == ["/bad"] * 3
    assert chosen.own_folders == {"/in/done", "/bad"}
    assert rules("/in/*.csv", done="/else/done").target("succeeded") == "/else/done"
    assert rules("/in/*.csv").target("failed") is None


def test_an_object_store_has_no_folder_that_runs_may_read() -> None:
    assert file_rules.folder_of({"path": "s3://bucket/*.csv"}) is None
    assert file_rules.folder_of({"path": "/in/*/READY"}) == "/in"
