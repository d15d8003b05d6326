"""done and failed: moved once the run has ended, only as the version it was started for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from suimon.run import pause
from suimon.triggers import file_moves
from suimon.triggers.file_moves import Blocked, Move

from .conftest import MakeDesk
from .file_desk import Desk


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(folder: Path) -> list[str]:
    """Files below it, hidden ones too."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def move_of(path: Path, key: str = "k") -> Move:
    status = path.stat()
    return Move(key, bytes(path), "here", status.st_size, status.st_mtime_ns, status.st_ino, "x")


def test_a_file_goes_to_done_or_failed_by_the_end_of_its_run(desk: MakeDesk) -> None:
    d = desk(done="done/", failed="failed/", order="name")
    for name in ("a.csv", "b.csv", "c.csv"):
        write(d.inbox / name)
    d.settle()
    d.look(60.0)
    assert names(d.inbox) == ["a.csv", "b.csv", "c.csv"]
    d.end_run("succeeded")
    d.end_run("failed")
    d.look(60.0)
    assert names(d.inbox) == ["c.csv", "done/a.csv", "failed/b.csv"]
    d.end_run("cancelled")
    d.look(60.0)
    d.settle()
    assert names(d.inbox) == ["done/a.csv", "failed/b.csv", "failed/c.csv"]
    assert len(d.arrived()) == 3


def test_without_a_folder_for_failures_it_stays_until_a_retry_succeeds(desk: MakeDesk) -> None:
    d = desk(done="done")
    write(d.inbox / "a.csv")
    d.settle()
    d.end_run("failed")
    d.look(60.0)
    assert names(d.inbox) == ["a.csv"]
    d.doors.sql("update suimon.runs set status = 'queued', admitted = true, finished_at = null")
    d.end_run("succeeded")
    d.look(60.0)
    assert names(d.inbox) == ["done/a.csv"]


def test_a_new_version_under_the_old_name_stays_and_has_its_own_run(desk: MakeDesk) -> None:
    d = desk(done="done")
    write(d.inbox / "a.csv", "one")
    d.settle()
    write(d.inbox / "a.csv", "two")
    d.end_run()
    d.settle()
    d.look(60.0)
    assert (d.inbox / "a.csv").read_text() == "two"
    d.end_run()
    d.look(60.0)
    assert names(d.inbox) == ["done/a.csv"]
    assert (d.inbox / "done" / "a.csv").read_text() == "two"


def test_a_name_that_is_taken_gets_a_number_and_nothing_is_overwritten(tmp_path: Path) -> None:
    done = tmp_path / "done"
    write(done / "a.tar.gz", "old")
    for n in range(3):
        path = write(tmp_path / "a.tar.gz", str(n))
        assert file_moves.carry(move_of(path, str(n)), bytes(done))
    assert {name: (done / name).read_text() for name in names(done)} == {
        "a.tar.gz": "old", "a.tar (2).gz": "0", "a.tar (3).gz": "1", "a.tar (4).gz": "2",
    }  # fmt: skip


def test_a_crash_at_any_point_ends_with_the_file_under_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the rename; after the link and before the hidden name is gone."""
    done = tmp_path / "done"
    for point in ("link", "unlink"):
        path = write(tmp_path / f"{point}.csv", point)
        move = move_of(path)

        def crash(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as broken:
            broken.setattr(file_moves.os, point, crash)
            with pytest.raises(KeyboardInterrupt):
                file_moves.carry(move, bytes(done))
        assert not path.exists()
        assert file_moves.carry(move, bytes(done))
        assert not file_moves.carry(move, bytes(done))
    assert names(done) == ["link.csv", "unlink.csv"]


def test_a_file_that_takes_the_name_in_the_last_moment_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.csv", "one")
    move = move_of(path)
    rename = os.rename

    def late(source: bytes, target: bytes) -> None:
        write(tmp_path / "new", "other").replace(path)
        rename(source, target)

    monkeypatch.setattr(file_moves.os, "rename", late)
    assert not file_moves.carry(move, bytes(tmp_path / "done"))
    assert names(tmp_path) == ["a.csv"]
    assert path.read_text() == "other"


def test_where_there_are_no_hard_links_the_name_is_claimed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(file_moves.os, "link", refuse)
    write(tmp_path / "done" / "a.csv", "old")
    path = write(tmp_path / "a.csv", "new")
    assert file_moves.carry(move_of(path), bytes(tmp_path / "done"))
    assert (tmp_path / "done" / "a (2).csv").read_text() == "new"
    assert names(tmp_path) == ["done/a (2).csv", "done/a.csv"]


def test_a_folder_that_cannot_be_used_is_a_note_and_the_file_stays(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = desk(done="done")
    write(d.inbox / "done", "a file in the way")
    write(d.inbox / "a.csv")
    d.settle()
    d.end_run()
    d.look(60.0)
    assert "it cannot be moved to" in d.note
    (d.inbox / "done").unlink()
    d.look(60.0)
    assert names(d.inbox) == ["done/a.csv"]
    assert d.note is None

    def elsewhere(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(file_moves.os, "rename", elsewhere)
    move = move_of(write(d.inbox / "b.csv"))
    with pytest.raises(Blocked, match="is on another file system"):
        file_moves.carry(move, bytes(d.inbox / "done"))


def test_a_link_in_the_place_of_the_folder_leads_no_file_out_of_the_inbox(
    desk: MakeDesk, tmp_path: Path
) -> None:
    d = desk(done="done")
    (tmp_path / "elsewhere").mkdir()
    (d.inbox / "done").symlink_to(tmp_path / "elsewhere")
    write(d.inbox / "a.csv")
    d.settle()
    d.end_run()
    d.look(60.0)
    assert "is a link that leads outside of the folder" in d.note
    assert names(tmp_path / "elsewhere") == []
    (d.inbox / "done").unlink()
    d.look(60.0)
    assert names(d.inbox) == ["done/a.csv"]
    assert d.note is None


def test_the_bytes_of_a_name_stay_and_a_long_one_is_cut(tmp_path: Path) -> None:
    done = tmp_path / "done"
    for name in (b"caf\xe9.csv", b"a" * 251 + b".csv"):
        for _ in range(2):
            path = Path(os.fsdecode(bytes(tmp_path) + b"/" + name))
            path.write_text("x")
            assert file_moves.carry(move_of(path), bytes(done))
    found = sorted(os.fsencode(p.name) for p in done.iterdir())
    assert found == sorted(
        [b"caf\xe9.csv", b"caf\xe9 (2).csv", b"a" * 251 + b".csv", b"a" * 247 + b" (2).csv"]
    )


def test_only_the_machine_that_saw_a_file_may_say_that_it_is_gone(desk: MakeDesk) -> None:
    d = desk(done="done")
    path = write(d.inbox / "a.csv")
    d.settle()
    path.unlink()
    d.end_run()
    d.look(60.0, by=d.another("elsewhere"))
    assert d.doors.one("select count(*) from suimon.file_moves") == 1
    d.look(60.0)
    assert d.doors.one("select count(*) from suimon.file_moves") == 0


class TestTwoTriggersOnOneFolder:
    """Nobody takes a file away from a run that has still to read it."""

    @staticmethod
    def both(desk: MakeDesk, other: dict[str, str], **first: str) -> tuple[Desk, Desk]:
        a, b = desk(name="a", **first), desk(name="b", **other)
        write(a.inbox / "f.csv")
        for each in (a, b):
            each.settle()
            each.deliver()
        return a, b

    @staticmethod
    def end(d: Desk, pipeline: str, status: str = "succeeded") -> None:
        """End the run of this pipeline, and let everybody look who moves."""
        worker = d.doors.worker()
        run = d.doors.one("select id::text from suimon.runs where pipeline = %s", pipeline)
        d.doors.end(worker, d.doors.claim_run(worker, run), status)

    @pytest.mark.parametrize("other", [{}, {"done": "done"}, {"dedupe": "content"}])
    def test_a_file_stays_until_the_runs_of_all_have_ended(
        self, desk: MakeDesk, other: dict[str, str]
    ) -> None:
        a, b = self.both(desk, other, done="done")
        self.end(a, "a")
        a.look(60.0)
        b.look(60.0)
        assert names(a.inbox) == ["f.csv"]
        self.end(b, "b")
        a.look(60.0)
        b.look(60.0)
        assert names(a.inbox) == ["done/f.csv"]
        assert a.doors.one("select count(*) from suimon.file_moves") == 0

    def test_it_waits_for_a_delivery_that_has_no_run_yet(self, desk: MakeDesk) -> None:
        a, b = desk(name="a", done="done"), desk(name="b")
        pause.pause(b.doors.conn, "pipeline:b", "me")
        write(a.inbox / "f.csv")
        for each in (a, b):
            each.settle()
        a.deliver()
        self.end(a, "a")
        a.look(60.0)
        assert names(a.inbox) == ["f.csv"]

    def test_a_next_try_and_a_retry_are_waited_for(self, desk: MakeDesk) -> None:
        a, b = self.both(desk, {}, done="done", failed="failed")
        worker = b.doors.worker()
        run = b.doors.one("select id::text from suimon.runs where pipeline = 'b'")
        b.doors.again(worker, b.doors.claim_run(worker, run), 3600.0)
        self.end(a, "a")
        a.look(60.0)
        assert names(a.inbox) == ["f.csv"]
        b.doors.sql(
            "update suimon.runs set status = 'queued', reason = null, wake_at = null,"
            " rank = rank + 1000000000000000 where id = %s",
            run,
        )
        self.end(b, "b")
        a.look(60.0)
        assert names(a.inbox) == ["done/f.csv"]

    def test_the_worst_end_decides(self, desk: MakeDesk) -> None:
        """It goes to the folder for failures of whoever has one."""
        a, b = self.both(desk, {}, done="done", failed="failed")
        self.end(a, "a")
        self.end(b, "b", "failed")
        a.look(60.0)
        assert names(a.inbox) == ["failed/f.csv"]

    def test_without_a_folder_for_failures_it_stays_for_the_retry_of_any(
        self, desk: MakeDesk
    ) -> None:
        a, b = self.both(desk, {}, done="done")
        self.end(a, "a")
        self.end(b, "b", "failed")
        a.look(60.0)
        assert names(a.inbox) == ["f.csv"]
        b.doors.sql(
            "update suimon.runs set status = 'queued', admitted = true, finished_at = null,"
            " rank = rank + 1000000000000000 where pipeline = 'b'"
        )
        self.end(b, "b")
        a.look(60.0)
        assert names(a.inbox) == ["done/f.csv"]
