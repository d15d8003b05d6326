"""The threads: hints, one lister a machine, take-over, a database that comes back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.wait import wait_until

from suimon.db.connect import connect
from suimon.triggers import fire, folder_watch, watcher
from suimon.triggers.fire import Trigger
from suimon.triggers.hints import Hints
from suimon.triggers.host_lock import HostLock
from suimon.triggers.watcher import FileWatcher

from .conftest import Doors

Watch = Callable[[], FileWatcher]


@pytest.fixture
def watching(db_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Watch]:
    """`watching()` is one process's watcher; its locks lie in this test's folder."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(watcher, "LOCK_SECONDS", 0.05)
    made: list[FileWatcher] = []

    def make() -> FileWatcher:
        made.append(FileWatcher(db_url))
        return made[-1]

    yield make
    for each in made:
        each.close()


def inbox_of(doors: Doors, tmp_path: Path, **spec: object) -> tuple[Trigger, Path]:
    inbox = tmp_path / "in"
    inbox.mkdir(exist_ok=True)
    given = {"type": "FILE", "path": f"{inbox}/*.csv", "settle": "50ms", **spec}
    return doors.door("p", given), inbox


def arrived(doors: Doors) -> int:
    return int(doors.one("select count(*) from suimon.deliveries"))


def test_inotify_shortens_the_wait_for_the_slow_listing(
    doors: Doors, tmp_path: Path, watching: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing is due in an hour: what arrives before that arrives by a hint."""
    monkeypatch.setattr(folder_watch, "SLOW_SECONDS", 3600.0)
    trigger, inbox = inbox_of(doors, tmp_path, mode="watch", recursive=True)
    watching().watch([trigger])
    (inbox / "a.csv").write_text("x")
    wait_until(lambda: arrived(doors) == 1, 20, "the first file")
    (inbox / "sub" / "deep").mkdir(parents=True)
    (inbox / "sub" / "deep" / "b.csv").write_text("x")
    wait_until(lambda: arrived(doors) == 2, 20, "a file in a new folder")


def test_where_nothing_can_be_watched_the_folder_is_listed_and_a_note_says_so(
    doors: Doors, tmp_path: Path, watching: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> None:
        msg = "inotify instance limit reached"
        raise OSError(msg)

    monkeypatch.setattr("watchfiles._rust_notify.RustNotify", none_left)
    trigger, inbox = inbox_of(doors, tmp_path, mode="watch", interval="50ms")
    watching().watch([trigger])
    (inbox / "a.csv").write_text("x")
    wait_until(lambda: arrived(doors) == 1, 20, "the file")
    note = doors.one("select note from suimon.triggers")
    assert note == "not watched, only listed: inotify instance limit reached"


def test_a_trigger_above_the_bound_of_a_process_says_that_it_is_not_watched(
    doors: Doors, tmp_path: Path, watching: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "MAX_WATCHES", 1)
    first, _ = inbox_of(doors, tmp_path, mode="poll", interval="50ms")
    second = doors.door("q", {"type": "FILE", "path": f"{tmp_path}/other/*.csv", "settle": "50ms"})
    watching().reload(doors.conn)
    notes = dict(doors.conn.execute("select id, note from suimon.triggers").fetchall())
    assert "not watched" in str(notes[second.id])
    assert "not watched" not in str(notes[first.id])


def test_one_process_of_a_machine_lists_and_another_takes_over_at_once(
    doors: Doors, tmp_path: Path, watching: Watch
) -> None:
    trigger, inbox = inbox_of(doors, tmp_path, mode="poll", interval="50ms")
    first, second = watching(), watching()
    first.watch([trigger])
    wait_until(lambda: first._threads[trigger.id]._host_lock.held, 20, "the first has the lock")
    second.watch([trigger])
    (inbox / "a.csv").write_text("x")
    wait_until(lambda: arrived(doors) == 1, 20, "the first file")
    assert not second._threads[trigger.id]._host_lock.held
    first.close()
    (inbox / "b.csv").write_text("x")
    wait_until(lambda: arrived(doors) == 2, 20, "the second file")


def test_the_kernel_frees_the_lock_of_a_process_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from suimon.triggers.host_lock import HostLock"
        "\nlock = HostLock('postgresql://h/d', 1, folder=Path(sys.argv[1]));"
        "print(lock.take(), flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        mine = HostLock("postgresql://h/d", 1, folder=tmp_path)
        assert not mine.take()
        assert HostLock("postgresql://h/d", 2, folder=tmp_path).take()
        assert HostLock("postgresql://h/other", 1, folder=tmp_path).take()
    finally:
        holder.kill()
        holder.communicate()
    assert mine.take()
    mine.release()
    assert not (tmp_path / mine._name).exists()


def test_without_a_place_for_locks_everybody_lists(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    lock = HostLock("postgresql://h/d", 1, folder=tmp_path / "file" / "below")
    assert lock.take()


def test_a_changed_trigger_is_watched_anew_and_one_that_went_is_watched_no_more(
    doors: Doors, tmp_path: Path, watching: Watch
) -> None:
    trigger, inbox = inbox_of(doors, tmp_path, mode="poll", interval="50ms", settle="1h")
    one = watching()
    one.reload(doors.conn)
    (inbox / "a.csv").write_text("x")
    wait_until(lambda: one._threads[trigger.id]._host_lock.held, 20, "it is watched")
    inbox_of(doors, tmp_path, mode="poll", interval="50ms", settle="10ms")
    one.reload(doors.conn)
    wait_until(lambda: arrived(doors) == 1, 20, "the file, by the new rule")
    doors.pipeline("p")
    one.reload(doors.conn)
    assert one._threads == {}


def test_it_goes_on_after_the_connection_was_cut(
    doors: Doors, tmp_path: Path, watching: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    trigger, inbox = inbox_of(doors, tmp_path, mode="poll", interval="50ms")
    watching().watch([trigger])
    (inbox / "a.csv").write_text("x")
    wait_until(lambda: arrived(doors) == 1, 20, "the first file")
    for number in range(3):
        doors.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'suimon:files' and datname = current_database()"
        )
        (inbox / f"{number}.csv").write_text("x")
        wait_until(lambda n=number: arrived(doors) == n + 2, 20, "a file")
    assert not [r for r in caplog.records if r.exc_info]


def test_a_share_that_hangs_holds_up_its_own_trigger_only(
    doors: Doors, tmp_path: Path, watching: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, free = threading.Event(), threading.Event()
    look = folder_watch.listing.look

    def slow(rules: Any, report: Any, **more: Any) -> Any:
        if rules.base.endswith("hung"):
            hangs.set()
            free.wait(60)
        return look(rules, report, **more)

    monkeypatch.setattr(folder_watch.listing, "look", slow)
    given = {"type": "FILE", "path": f"{tmp_path}/hung/*", "mode": "poll"}
    hung = doors.door("h", given)
    trigger, inbox = inbox_of(doors, tmp_path, mode="poll", interval="50ms")
    watching().watch([hung, trigger])
    assert hangs.wait(20)
    (inbox / "a.csv").write_text("x")
    wait_until(lambda: arrived(doors) == 1, 20, "the other trigger's file")
    free.set()


def test_no_thread_and_no_connection_without_file_triggers(
    doors: Doors, watching: Watch, db_url: str
) -> None:
    doors.pipeline("p")
    one = watching()
    one.reload(doors.conn)
    assert not [t for t in threading.enumerate() if t.name.startswith("suimon-files")]
    with connect(db_url, name="look") as conn:
        assert fire.live(conn, ["FILE"]) == []


def test_hints_stop_with_their_folders_and_leave_no_descriptor(tmp_path: Path) -> None:
    hints = Hints(lambda: None)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert hints.watch([(bytes(folder), 0, number)])
        assert not hints.watch([(bytes(folder), 0, number)])
    hints.close()
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before, 20, "closed")  # noqa: PTH208
