"""Why was this file not taken? Every rule has its answer; and a file once more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from suimon.errors import Conflict, NotThere
from suimon.triggers import file_explain

from .conftest import MakeDesk
from .file_desk import Desk


def write(path: Path, text: str = "x", age: int = 3600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def said(d: Desk, name: str) -> tuple[str, str]:
    (one,) = file_explain.explain(d.doors.conn, f"{d.inbox}/{name}")
    return one.code, one.why


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("../a.csv", "elsewhere", 'it is not below "'),
        ("a.txt", "pattern", 'the pattern "**/*.csv" does not mean it'),
        ("~$a.csv", "ignored", '"~$a.csv" is ignored by "~$*"'),
        (".git/a.csv", "ignored", '".git" is ignored by ".*"'),
        ("done/a.csv", "moved", '"done" holds files that are done with'),
        ("gone.csv", "gone", "there is no such file on this machine now"),
        ("none.csv", "empty", "it is empty; with empty=take it would be taken"),
        ("link.csv", "link", "is a link, and follow_links is off"),
        ("folder.csv", "no_file", "it is no regular file"),
        ("new.csv", "settling", "ago and must be left alone for 3600 s"),
    ],
)
def test_each_rule_that_leaves_a_file_out_says_so(
    desk: MakeDesk, name: str, code: str, why: str
) -> None:
    d = desk(recursive=True, done="done", settle="1h")
    write(d.inbox / "none.csv", "")
    (d.inbox / "link.csv").symlink_to("new.csv")
    (d.inbox / "folder.csv").mkdir()
    write(d.inbox / "new.csv")
    found = said(d, name)
    assert found[0] == code
    assert why in found[1]


def test_links_that_lead_outside_and_files_that_nobody_may_read(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    d = desk(recursive=True, followLinks=True)
    write(tmp_path / "out" / "s.csv")
    (d.inbox / "leak").symlink_to(tmp_path / "out")
    assert said(d, "leak/s.csv")[0] == "outside"
    write(d.inbox / "a.csv")
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert said(d, "a.csv") == ("unreadable", "this process may not read it")


@pytest.mark.parametrize("dedupe", ["version", "content"])
def test_what_became_of_it_from_the_first_look_to_the_run(desk: MakeDesk, dedupe: str) -> None:
    d = desk(settle="1ms", dedupe=dedupe)
    write(d.inbox / "a.csv")
    d.later(60.0)
    assert said(d, "a.csv")[0] == "unseen"
    d.settle()
    assert said(d, "a.csv")[0] == "waiting"
    d.deliver()
    (run,) = d.doors.sql("select id::text from suimon.runs")
    assert said(d, "a.csv") == ("taken", f"it started run {run[0]} (queued)")
    d.doors.sql("delete from suimon.deliveries")
    assert said(d, "a.csv") == (
        "known", f"this version has its run already: {run[0]} (queued)",
    )  # fmt: skip


def test_a_paused_pipeline_and_a_dead_letter_are_named(desk: MakeDesk) -> None:
    d = desk(settle="1ms")
    write(d.inbox / "a.csv")
    d.settle()
    d.doors.sql("insert into suimon.pauses (what, by) values ('pipeline:p', 'somebody')")
    assert said(d, "a.csv") == ("waiting", "its delivery waits: pipeline:p is paused")
    d.doors.sql(
        "update suimon.deliveries set state = 'dead', ended_at = now(), why = 'the input lacks n'"
    )
    assert said(d, "a.csv") == ("dead", "its delivery is dead: the input lacks n")


def test_once_more_is_a_new_delivery_with_a_key_of_its_own(desk: MakeDesk) -> None:
    d = desk(settle="1ms", done="done")
    path = write(d.inbox / "a.csv")
    d.settle()
    for _ in range(2):
        (made,) = file_explain.again(d.doors.conn, str(path), actor="me", why="wrong rates")
    assert d.arrived() == ["a.csv"] * 3
    keys = [row[0] for row in d.doors.deliveries(d.trigger, "key")]
    assert len(set(keys)) == 3
    assert made.key == keys[2]
    (inputs,) = {str(given) for given in d.inputs()}
    assert inputs
    noted = d.doors.sql("select action, target, detail ->> 'file' from suimon.audit")
    assert noted == [("again_file", f"trigger:{d.trigger.id}", str(path))] * 2


def test_once_more_is_refused_with_the_rule_that_leaves_it_out(desk: MakeDesk) -> None:
    d = desk()
    write(d.inbox / "a.csv.part")
    with pytest.raises(NotThere, match="no FILE trigger takes"):
        file_explain.again(d.doors.conn, "/else/a.csv", actor="me")
    with pytest.raises(Conflict) as caught:
        file_explain.again(d.doors.conn, f"{d.inbox}/gone.csv", actor="me")
    assert "there is no such file on this machine now" in caught.value.render()
    assert d.arrived() == []
