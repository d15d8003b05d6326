"""What a look at a folder leads to: deliveries, each version once, in order, whatever happens."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from suimon.read import local_path
from suimon.read.versions import version_id

from .conftest import MakeDesk


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_that_was_left_alone_arrives_once_with_its_input(desk: MakeDesk) -> None:
    d = desk()
    path = write(d.inbox / "a.csv", "1,2")
    d.look()
    assert d.arrived() == []
    d.look(3.0)
    for _ in range(3):
        d.look(3.0)
    (given,) = d.inputs()
    status = path.stat()
    version = version_id(bytes(path), 3, status.st_mtime_ns, status.st_ino)
    assert given == {
        "path": str(path), "folder": str(d.inbox), "name": "a.csv", "size": 3,
        "mtime": given["mtime"], "event_id": version,
    }  # fmt: skip
    assert d.doors.deliveries(d.trigger, "key") == [(version,)]


def test_what_was_there_before_anybody_watched_is_found(desk: MakeDesk, tmp_path: Path) -> None:
    write(tmp_path / "in" / "before.csv")
    d = desk()
    d.settle()
    assert d.arrived() == ["before.csv"]


def test_another_watcher_and_a_new_start_take_nothing_twice(desk: MakeDesk) -> None:
    d = desk()
    for name in ("a.csv", "b.csv"):
        write(d.inbox / name)
    other = d.another("elsewhere")
    d.look()
    d.look(by=other)
    d.look(3.0)
    d.look(by=other)
    d.settle(by=d.another())
    assert sorted(d.arrived()) == ["a.csv", "b.csv"]


def test_a_known_file_is_not_taken_again_after_its_delivery_and_run_were_pruned(
    desk: MakeDesk,
) -> None:
    d = desk()
    write(d.inbox / "a.csv")
    d.settle()
    d.deliver()
    d.doors.sql("delete from suimon.deliveries")
    d.settle(by=d.another())
    assert d.arrived() == []


def test_while_nothing_changes_the_database_hears_nothing(desk: MakeDesk) -> None:
    d = desk(done="done")
    for n in range(20):
        write(d.inbox / f"{n}.csv")
    d.settle()
    for _ in range(20):
        d.end_run()
    d.look(60.0)
    d.look(60.0)
    before = d.statements
    for _ in range(5):
        d.look(60.0)
    assert d.statements == before


def test_files_arrive_oldest_first_or_by_name(desk: MakeDesk) -> None:
    d = desk(inbox="t")
    for age, name in enumerate(("c.csv", "a.csv", "b.csv")):
        os.utime(write(d.inbox / name), (1000 + age, 1000 + age))
    d.settle()
    assert d.arrived() == ["c.csv", "a.csv", "b.csv"]
    by_name = desk(inbox="t", order="name", name="q")
    by_name.settle()
    assert by_name.arrived() == ["a.csv", "b.csv", "c.csv"]


def test_by_content_the_same_bytes_are_one_run_under_any_name(desk: MakeDesk) -> None:
    d = desk(dedupe="content")
    write(d.inbox / "a.csv", "same")
    write(d.inbox / "b.csv", "same")
    write(d.inbox / "c.csv", "other")
    d.settle()
    assert len(d.arrived()) == 2
    write(d.inbox / "a.csv", "same")
    d.settle()
    assert len(d.arrived()) == 2
    write(d.inbox / "a.csv", "new!")
    d.settle()
    assert len(d.arrived()) == 3


def test_by_content_nothing_is_read_again_after_a_restart(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = desk(dedupe="content")
    write(d.inbox / "a.csv", "same")
    d.settle()
    monkeypatch.setattr("suimon.triggers.files.content_key", lambda seen: pytest.fail(str(seen)))
    d.settle(by=d.another())


def test_a_folder_that_vanishes_and_returns_starts_nothing_again(desk: MakeDesk) -> None:
    """An unmounted share: the folder is gone, or there and empty."""
    d = desk()
    for n in range(5):
        write(d.inbox / f"{n}.csv")
    d.settle()
    away = d.inbox.with_name("away")
    for stub in (False, True):
        d.inbox.rename(away)
        if stub:
            d.inbox.mkdir()
        d.settle()
        assert ("there is no such folder" in (d.note or "")) is not stub
        if stub:
            d.inbox.rmdir()
        away.rename(d.inbox)
        d.settle()
        assert d.note is None
    assert len(d.arrived()) == 5


def test_a_file_moved_away_and_back_is_known_and_one_under_a_new_name_is_new(
    desk: MakeDesk, tmp_path: Path
) -> None:
    d = desk()
    path = write(d.inbox / "a.csv")
    d.settle()
    path.rename(tmp_path / "a.csv")
    d.settle()
    (tmp_path / "a.csv").rename(path)
    d.settle()
    assert d.arrived() == ["a.csv"]
    path.rename(d.inbox / "b.csv")
    d.settle()
    assert d.arrived() == ["a.csv", "b.csv"]


def test_an_empty_file_is_skipped_with_a_note_until_it_has_bytes(desk: MakeDesk) -> None:
    d = desk()
    write(d.inbox / "a.csv", "")
    write(d.inbox / "b.csv")
    d.settle()
    assert d.arrived() == ["b.csv"]
    assert d.note == f"empty, so skipped: {d.inbox}/a.csv"
    write(d.inbox / "a.csv", "now")
    d.settle()
    assert d.arrived() == ["b.csv", "a.csv"]
    assert d.note is None


def test_an_input_of_any_name_leads_back_to_the_file(desk: MakeDesk) -> None:
    d = desk()
    names = [b"caf\xe9.csv", b"line\nbreak.csv", "が.csv".encode(), "か\u3099.csv".encode()]
    for name in names:
        os.close(os.open(bytes(d.inbox) + b"/" + name, os.O_CREAT | os.O_WRONLY))
        os.truncate(bytes(d.inbox) + b"/" + name, 5)
    d.settle()
    d.settle(by=d.another())
    found = [os.fsencode(local_path(given["path"])) for given in d.inputs()]
    assert sorted(found) == sorted(bytes(d.inbox) + b"/" + name for name in names)


def test_a_hundred_thousand_known_files_cost_a_look_and_no_question(desk: MakeDesk) -> None:
    """Here 3,000, which is more than one batch of questions and of arrivals."""
    d = desk()
    for n in range(3_000):
        (d.inbox / f"{n}.csv").write_bytes(b"x")
    d.settle()
    assert len(set(d.arrived())) == 3_000
    before = d.statements
    d.look(3.0)
    assert d.statements == before


def test_a_listing_is_done_ten_times_as_seldom_as_it_takes(desk: MakeDesk) -> None:
    d = desk(interval="100ms")
    assert 0.09 < d.look() <= 0.2
    d.watch._cost_s = 5.0
    assert d.watch._pause_s(0.0, at_once=False) == 50.0


def test_a_warning_is_repeated_after_an_hour_and_not_before(
    desk: MakeDesk, caplog: pytest.LogCaptureFixture
) -> None:
    d = desk()
    shutil.rmtree(d.inbox)
    for after in (0.0, 10.0, 3_000.0):
        d.look(after)
    assert len(caplog.records) == 1
    assert f'"{d.inbox}" is not taken: there is no such folder' in caplog.text
    d.look(700.0)
    assert len(caplog.records) == 2


def test_scans_are_taken_by_their_mark_of_readiness(desk: MakeDesk) -> None:
    d = desk("*/READY", empty="take")
    write(d.inbox / "7" / "page.tif")
    d.settle()
    write(d.inbox / "7" / "READY", "")
    d.settle()
    (given,) = d.inputs()
    assert (given["folder"], given["name"]) == (f"{d.inbox}/7", "READY")
