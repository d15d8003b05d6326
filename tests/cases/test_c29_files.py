"""C29 to C33: files that arrive slowly, in thousands, under a known name, without permission."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.engine import Engine
from support.reading import HANDED
from triggers.conftest import Doors
from triggers.file_desk import Desk

from suimon.db.connect import Connection

pytestmark = pytest.mark.acceptance

CODE = """
from suimon import File

@task
def count(rows):
    return sum(1 for _ in rows)

@task
def same(path, name):
    return name

def counting(name, trigger):
    p = Pipeline(name, concurrency=None, max_queued=20000)
    p.on(trigger)
    p.run("count", count, p.read("rows", p.input.path, format="csv"))
    return p

def naming(name, *triggers):
    p = Pipeline(name, concurrency=None, max_queued=20000)
    p.on(*triggers)
    p.run("same", same, p.input.path, p.input.name)
    return p
"""


def inbox_of(engine: Engine, name: str) -> Path:
    inbox = engine.project.root / name
    inbox.mkdir()
    return inbox


def outputs(engine: Engine, pipeline: str) -> list[Any]:
    """What its runs came to, oldest first; fails with their stories when one has not succeeded."""
    rows = engine.sql(
        "select status::text, output from suimon.runs where pipeline = %s order by id", pipeline
    )
    return [output if status == "succeeded" else status for status, output in rows]


def await_outputs(engine: Engine, pipeline: str, wanted: list[Any]) -> None:
    engine.until(lambda: outputs(engine, pipeline) == wanted, f"{pipeline}: {wanted}", 90)


def test_c29_slow_upload(engine: Engine) -> None:
    """The large file is written until the small one's run has ended, and for 40 pieces."""
    engine.module("m", CODE + 'slow = counting("slow", File("in/*.csv", settle="4s"))')
    inbox = inbox_of(engine, "in")
    engine.deploy()
    engine.worker()
    piece = b"".join(b"%08d,some text in the row\n" % n for n in range(16_000))
    rows, pieces = 0, 0
    with (inbox / "large.csv").open("wb") as file:
        file.write(b"n,text\n")
        (inbox / "small.csv").write_text("n,text\n1,a\n")
        while pieces < 40 or not outputs(engine, "slow"):
            assert pieces < 600, engine.story()
            file.write(piece)
            file.flush()
            rows, pieces = rows + 16_000, pieces + 1
            threading.Event().wait(0.2)
        assert set(outputs(engine, "slow")) <= {1, "queued", "running"}
    await_outputs(engine, "slow", [1, rows])
    with (inbox / "small.csv").open("a") as file:
        file.write("2,b\n")
    await_outputs(engine, "slow", [1, rows, 2])


def test_c30_temporary_and_lock_files(engine: Engine) -> None:
    """With the usual list of names, and with another one for this trigger."""
    trigger = 'File("in/*.{}", settle="300ms")'
    code = f'usual = naming("usual", {trigger.format("xlsx")}, {trigger.format("csv")})\n'
    code += 'own = naming("own", File("in/*", settle="300ms", ignore=["monthly.csv", "*.part"]))'
    engine.module("m", CODE + code)
    inbox = inbox_of(engine, "in")
    engine.deploy()
    engine.worker()
    for path in (HANDED / "inbox_temp").iterdir():
        shutil.copyfile(path, inbox / path.name)
    await_outputs(engine, "usual", ["monthly.csv"])
    (inbox / "monthly.xlsx.part").rename(inbox / "monthly.xlsx")
    await_outputs(engine, "usual", ["monthly.csv", "monthly.xlsx"])
    others = [".monthly.csv.swp", "monthly.csv.filepart", "monthly.xlsx", "~$monthly.xlsx"]
    engine.until(lambda: sorted(outputs(engine, "own")) == others, "the other names")
    number = engine.one("select id from suimon.triggers where name = 'file:in/*.csv'")
    shown = engine.command("triggers", "show", str(number))
    assert shown.wait() == 0
    assert "~$* *.part *.filepart" in shown.tail()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_c31_ten_thousand_files_in_a_moment(engine: Engine) -> None:
    """With inotify; the worker whose turn it is to list is killed half-way."""
    engine.module("m", CODE + 'many = naming("many", File("in/*", settle="500ms", mode="watch"))')
    inbox = inbox_of(engine, "in")
    aside = inbox_of(engine, "aside")
    engine.deploy()
    workers = [engine.worker(heartbeat_s=5.0) for _ in range(2)]
    for n in range(10_000):
        (aside / f"moved-{n}").write_bytes(b"x")
    script = 'find "$1" -type f -print0 | xargs -0 mv -t "$2"'
    subprocess.run(["sh", "-c", script, "sh", str(aside), str(inbox)], check=True)

    def some(first: int) -> None:
        for n in range(first, 5_000, 50):
            (inbox / f"made-{n}").write_bytes(b"x")

    writers = [threading.Thread(target=some, args=(n,)) for n in range(50)]
    for each in writers:
        each.start()
    count = "select count(*) from suimon.deliveries"
    engine.until(lambda: engine.one(count) > 2_000, "some have arrived", 60)
    memory = [peak_mb(worker.pid) for worker in workers]
    workers[0].kill9()
    for each in writers:
        each.join()
    done = "select count(*) from suimon.runs where status = 'succeeded'"
    engine.until(lambda: engine.one(done) == 15_000, "15,000 runs", 240)
    names = "select count(distinct output #>> '{}'), count(*) from suimon.runs"
    assert engine.sql(names) == [(15_000, 15_000)]
    assert max(*memory, peak_mb(workers[1].pid)) < 300


def peak_mb(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) // 1024


SALES = """
from suimon import File

@task
def first(rows):
    read = []
    for row in rows:
        read.append(row["v"])
        note("reading", row["v"])
        if row["v"] == "2" and len(read) == 1:
            await_mark("go-on-" + HERE[-1:])
    return read

def sales(name, **options):
    p = Pipeline(name, concurrency=None)
    p.on(File(name + "/*.csv", settle="300ms", **options))
    p.run("first", first, p.read("rows", p.input.path))
    return p

kept = sales("kept")
moved = sales("moved", done="done")
"""


@pytest.mark.parametrize("pipeline", ["kept", "moved"])
def test_c32_same_name_again_with_new_content(engine: Engine, pipeline: str) -> None:
    """Same size and time; what is delivered again unchanged was written anew, so it has a run."""
    engine.module("m", SALES)
    inbox = inbox_of(engine, pipeline)
    engine.deploy()
    engine.worker(slots=3)

    def deliver(version: int, *, at: int | None = None) -> None:
        made = inbox / ".upload"
        made.write_text("v\n" + f"{version}\n" * 3)
        if at is not None:
            os.utime(made, (at, at))
        made.rename(inbox / "sales.csv")

    def moved(number: int) -> None:
        if pipeline == "moved":
            done = inbox / "done"
            engine.until(lambda: len(list(done.glob("sales*"))) == number, "moved to done")

    deliver(1, at=1_900_000_000)
    await_outputs(engine, pipeline, [["1"] * 3])
    moved(1)
    deliver(2, at=1_900_000_000)
    engine.noted("reading", 4)
    deliver(3)
    engine.until(lambda: ["3"] * 3 in outputs(engine, pipeline), "the run of v3")
    engine.project.mark("go-on-s")
    await_outputs(engine, pipeline, [["1"] * 3, ["2"] * 3, ["3"] * 3])
    moved(2)
    deliver(3)
    await_outputs(engine, pipeline, [["1"] * 3, ["2"] * 3, ["3"] * 3, ["3"] * 3])
    moved(3)
    if pipeline == "moved":
        found = {path.name: path.read_text()[2] for path in (inbox / "done").iterdir()}
        assert found == {"sales.csv": "1", "sales (2).csv": "3", "sales (3).csv": "3"}


def test_c32_a_file_that_is_overwritten_before_its_run_reads_is_never_mixed(engine: Engine) -> None:
    """The lane is busy when the file changes in place: its run is refused, the new one has all."""
    engine.module("m", SALES.replace("concurrency=None", "concurrency=1"))
    inbox = inbox_of(engine, "kept")
    engine.deploy()
    engine.worker()
    (inbox / "holds.csv").write_text("v\n2\n")
    engine.noted("reading", 1)
    (inbox / "sales.csv").write_text("v\n4\n4\n")
    count = "select count(*) from suimon.runs where pipeline = 'kept'"
    engine.until(lambda: engine.one(count) == 2, "the second run is queued")
    (inbox / "sales.csv").write_text("v\n5\n5\n")
    engine.until(lambda: engine.one(count) == 3, "the third run is queued")
    engine.project.mark("go-on-s")
    await_outputs(engine, "kept", [["2"], "failed", ["5", "5"]])
    error = engine.one("select error from suimon.runs where status = 'failed'")
    assert "has changed since it started the run" in error["message"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can enter; pytest's own cannot be."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


class Nobody:
    """`with Nobody():` this process may do what the user `nobody` may."""

    ID = 65534

    def __enter__(self) -> None:
        os.setegid(self.ID)
        os.seteuid(self.ID)

    def __exit__(self, *_: object) -> None:
        os.seteuid(0)
        os.setegid(0)


@pytest.mark.needs_root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")
def test_c33_unreadable_file_or_folder_in_the_inbox(
    conn: Connection, open_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Looked at as an ordinary user; the clock is moved, not awaited."""
    d = Desk(Doors(conn), open_folder / "in", recursive=True)
    for n in range(10):
        (d.inbox / f"good-{n}.csv").write_text("x")
    (d.inbox / "closed").mkdir()
    (d.inbox / "closed" / "below.csv").write_text("x")
    for name in ("blocked.csv", "others.csv"):
        (d.inbox / name).write_text("x")
        (d.inbox / name).chmod(0o000 if name == "blocked.csv" else 0o600)
    (d.inbox / "closed").chmod(0o000)

    def look(after: float) -> None:
        with Nobody():
            d.look(after)

    for after in (0.0, 3.0, 600.0, 600.0):
        look(after)
    assert sorted(d.arrived()) == [f"good-{n}.csv" for n in range(10)]
    said = sorted(record.getMessage() for record in caplog.records)
    for name, line in zip(("blocked.csv", "closed", "others.csv"), said, strict=True):
        assert f'"{d.inbox}/{name}" is not taken: ' in line
    assert f"{d.inbox}/blocked.csv: this process may not read it" in d.note
    assert f"{d.inbox}/closed: Permission denied" in d.note
    look(3_000.0)
    assert len(caplog.records) == 6
    (d.inbox / "blocked.csv").chmod(0o644)
    (d.inbox / "others.csv").chmod(0o644)
    (d.inbox / "closed").chmod(0o755)
    look(10.0)
    look(3.0)
    assert set(d.arrived()) >= {"blocked.csv", "others.csv", "closed/below.csv"}
    assert len(d.arrived()) == 13
    assert d.note is None
    d.close()
