"""FILE triggers on object stores, by listing; a folder stands for the store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from suimon.core import clock
from suimon.errors import FileRefused, SuimonError
from suimon.read import open_source
from suimon.triggers import stores
from suimon.triggers.folder_watch import FolderWatch, Tools
from suimon.triggers.listing import Report

from .conftest import Doors


@pytest.mark.parametrize(
    ("pattern", "url", "parts"),
    [
        ("s3://bucket/in/*.csv", "s3://bucket/in", ("*.csv",)),
        ("s3://bucket/*.csv", "s3://bucket", ("*.csv",)),
        ("s3://bucket/in/a.csv", "s3://bucket/in", ("a.csv",)),
        ("s3://bucket/*/x/**/*.csv", "s3://bucket", ("*", "x", "**", "*.csv")),
        ("file:///srv/in/*.csv", "file:///srv/in", ("*.csv",)),
        ("memory:///in/*", "memory:///in", ("*",)),
    ],
)
def test_the_prefix_of_a_url_is_what_is_listed(
    pattern: str, url: str, parts: tuple[str, ...]
) -> None:
    assert stores.split(pattern) == (url, parts)


def test_a_version_is_what_the_store_says_of_an_object() -> None:
    memory: Any = MemoryStore()
    bucket = stores.bucket({"path": "memory:///in/*.csv", "recursive": True}, store=memory)
    memory.put("a.csv", b"one")
    memory.put("sub/b.csv", b"two")
    memory.put("c.csv.part", b"half")
    memory.put("sub/.d.csv", b"hidden")
    memory.put("empty.csv", b"")
    report = Report()
    first = {each.path: each for each in bucket.look(report)}
    assert sorted(first) == [b"memory:///in/a.csv", b"memory:///in/sub/b.csv"]
    assert report.left_out == {
        "memory:///in/sub/.d.csv": 'ignored by ".*"', "memory:///in/empty.csv": "it is empty",
    }  # fmt: skip
    memory.put("a.csv", b"new")
    second = {each.path: each for each in bucket.look(Report())}
    changed = {path for path in first if first[path].version != second[path].version}
    assert changed == {b"memory:///in/a.csv"}
    assert bucket.content_key(first[b"memory:///in/a.csv"]) is None
    assert bucket.content_key(second[b"memory:///in/a.csv"])


def test_objects_arrive_once_each_version_with_their_url(doors: Doors, tmp_path: Path) -> None:
    """obstore's own implementation for local folders, opened by its URL."""
    for dedupe in ("version", "content"):
        folder = tmp_path / dedupe
        folder.mkdir()
        spec = {"type": "FILE", "path": f"file://{folder}/*.csv", "settle": "1ms", "dedupe": dedupe}
        to = doors.door(dedupe, spec)
        watch = FolderWatch(to, Tools(_use(doors), lambda: None, "here"))
        for second, text in enumerate(("one", "one", "two")):
            (folder / "日 a.csv").write_text(text)
            os.utime(folder / "日 a.csv", (1000 + second, 1000 + second))
            watch.round(hinted=True)
            with clock.moved(10):
                watch.round(hinted=True)
        rows = doors.deliveries(to, "input ->> 'path'", "input ->> 'name'")
        assert set(rows) == {(f"file://{folder}/日 a.csv", "日 a.csv")}
        assert len(rows) == {"version": 3, "content": 2}[dedupe]


def test_a_store_that_does_not_answer_is_a_note_and_is_asked_again(doors: Doors) -> None:
    class Broken:
        def list(self, **_: object) -> Any:
            msg = "no route to the store\nand more"
            raise OSError(msg)

    to = doors.door("p", {"type": "FILE", "path": "s3://bucket/in/*.csv"})
    watch = FolderWatch(to, Tools(_use(doors), lambda: None, "here"))
    watch._bucket = stores.bucket(to.spec, store=Broken())
    assert watch.round() > 0
    assert doors.one("select note from suimon.triggers") == "s3://bucket/in: no route to the store"


def test_without_the_extra_the_answer_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(SuimonError) as caught:
        stores.bucket({"path": "s3://bucket/in/*.csv"})
    assert "suimon[stores]" in caught.value.render()


def test_reading_an_object_is_refused_with_what_to_do() -> None:
    with pytest.raises(FileRefused, match="lies in an object store"):
        open_source("s3://bucket/in/a.csv")


def _use(doors: Doors) -> Any:
    import contextlib

    @contextlib.contextmanager
    def use() -> Any:
        yield doors.conn

    return use
