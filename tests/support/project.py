"""A folder of user code as a test writes it, deployed as `suimon deploy` does.

Every project has a module `marks` for its tasks: `note` appends a line to a file that the engine
does not know (one write with O_APPEND, so that lines of many processes never mix), `await_mark`
waits for a file, `once` is true for the first caller only. The test reads the same files.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from suimon.db.connect import connect
from suimon.load import load_path
from suimon.run import deploy

_MARKS = """
from __future__ import annotations
import os, time

HERE = {here!r}

def path(name):
    return os.path.join(HERE, name)

def note(name, *words):
    line = " ".join(map(str, words)) + chr(10)
    fd = os.open(path(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)

def await_mark(name, seconds=600.0):
    end = time.monotonic() + seconds
    while not os.path.exists(path(name)):
        if time.monotonic() > end:
            raise RuntimeError("nobody made the mark " + name)
        time.sleep(0.005)

def once(name):
    try:
        os.close(os.open(path(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
"""

_HEAD = """
from __future__ import annotations
import asyncio, ctypes, json, os, signal, subprocess, sys, threading, time
from marks import HERE, await_mark, note, once, path
from suimon import Cancelled, Fatal, MergeResult, Pipeline, pipeline, task
"""


class Project:
    """`root` is what a worker is given; `here` is where its tasks leave their notes."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "code"
        self.here = folder / "notes"
        self.root.mkdir(parents=True)
        self.here.mkdir()
        (self.root / "marks.py").write_text(_MARKS.format(here=str(self.here)))

    def module(self, name: str, code: str) -> None:
        """Write `name`.py: the usual imports, then `code`."""
        (self.root / f"{name}.py").write_text(_HEAD + textwrap.dedent(code))

    def file(self, name: str, text: str) -> Path:
        """Any other file below the root (a graph in JSON, rows to read)."""
        path = self.root / name
        path.write_text(text)
        return path

    def deploy(self, url: str) -> list[str]:
        """Read the code in a child process, store the graphs, make them current; their names."""
        loaded = load_path(self.root).check()
        made = [
            deploy.Definition(one.name, one.hash, one.graph, loaded.destinations)
            for one in loaded.pipelines
        ]
        with connect(url, name="deploy") as conn:
            return [one.name for one in deploy.deploy(conn, made, folder=str(self.root))]

    # ------------------------------------------------------------------ notes and marks

    def mark(self, name: str) -> None:
        """What `await_mark` waits for."""
        (self.here / name).touch()

    def lines(self, name: str) -> list[list[str]]:
        """The notes of that name so far, each split into words; a line still being written is not
        there yet.
        """
        try:
            text = (self.here / name).read_text()
        except FileNotFoundError:
            return []
        return [line.split() for line in text.splitlines()]
