"""Files that tasks publish, out again: by the command line and over HTTP, part by part."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from support.contents import wrong_counts
from support.serving import serving

from cli.conftest import Cli, StartWorker
from suimon.db.connect import Connection
from suimon.store import objects

SIZE = 2_500_000
PUBLISHING = f"""
from suimon import Pipeline, pipeline, task

DATA = bytes(range(256)) * {SIZE // 256 + 1}

@pipeline(concurrency=None)
def single(ctx):
    with ctx.artifact("data.bin", binary=True) as f:
        f.write(DATA[:{SIZE}])
    with ctx.artifact("nothing.txt") as f:
        pass
    return f.ref

@task
def writes(ctx, fails=False):
    with ctx.artifact("report ü.csv") as f:
        f.write("a,b\\n")
    if fails:
        raise ValueError("after it was written")

p = Pipeline("two", concurrency=None)
one = p.run("one", writes)
p.run("two", writes, after=[one])
f = Pipeline("fails", concurrency=None)
f.run("one", writes, fails=True)
"""
DATA = (bytes(range(256)) * (SIZE // 256 + 1))[:SIZE]


@pytest.fixture
def publishing(deployed: Path, cli: Cli) -> Path:
    (deployed / "publishing.py").write_text(PUBLISHING, encoding="utf-8")
    assert cli("deploy", str(deployed)).code == 0
    return deployed


def test_an_artifact_comes_out_as_it_was_written(
    cli: Cli, publishing: Path, worker: StartWorker, conn: Connection, tmp_path: Path
) -> None:
    """In three parts; never over a file that exists; only of a step that ended well."""
    worker()
    runs = {}
    for name in ("single", "two", "fails"):
        started = cli("run", name, "--wait", "--json")
        runs[name] = started.json["id"]
    listed = cli("runs", "artifacts", runs["single"], "--json").json["artifacts"]
    assert [(one["name"], one["size"]) for one in listed] == [
        ("data.bin", SIZE), ("nothing.txt", 0),
    ]  # fmt: skip
    target = tmp_path / "out.bin"
    assert cli("runs", "artifact", runs["single"], "data.bin", "--to", str(target)).code == 0
    assert target.read_bytes() == DATA
    again = cli("runs", "artifact", runs["single"], "data.bin", "--to", str(target))
    assert (again.code, "exists already" in again.err) == (5, True)
    assert target.read_bytes() == DATA

    for nowhere in ("/nope/x", "/dev/null/x", str(tmp_path / "o" / "x"), "b" * 300):
        lost = cli("runs", "artifact", runs["single"], "data.bin", "--to", nowhere)
        assert (lost.code, "SUI-4003" in lost.err) == (2, True), lost

    several = cli("runs", "artifact", runs["two"], "report ü.csv")
    assert (several.code, "Name one of: one, two" in several.err) == (2, True)
    one = cli("runs", "artifact", runs["two"], "report ü.csv", "--vertex", "two")
    assert (one.code, one.out) == (0, "a,b\n")
    assert cli("runs", "artifacts", runs["fails"], "--json").json["artifacts"] == []
    assert cli("runs", "artifact", runs["fails"], "report ü.csv").code == 3

    with serving(cli.url, tmp_path / "serve", "--no-duties") as server:
        items = server.get(f"/api/v1/runs/{runs['single']}/artifacts").json()["items"]
        assert [item["size"] for item in items] == [SIZE, 0]
        where = f"/api/v1/runs/{runs['single']}/artifact"
        answer = server.get(where, params={"name": "data.bin"})
        assert hashlib.sha256(answer.content).digest() == hashlib.sha256(DATA).digest()
        assert answer.headers["content-type"] == "application/octet-stream"
        assert server.get(where, params={"name": "nothing.txt"}).content == b""
        missing = server.get(where, params={"name": "no such"})
        assert (missing.status_code, missing.json()["code"]) == (404, "SUI-3006")
        named = server.get(
            f"/api/v1/runs/{runs['two']}/artifact", params={"name": "report ü.csv", "vertex": "one"}
        )
        assert named.text == "a,b\n"
        assert "report%20%C3%BC.csv" in named.headers["content-disposition"]
    assert wrong_counts(conn) == []


def test_the_object_store_is_set_and_shown(
    cli: Cli, deployed: Path, conn: Connection, tmp_path: Path
) -> None:
    """By command and over HTTP, refused with credentials; what is stored is shown in numbers."""
    (tmp_path / "objects").mkdir()
    url = f"file://{tmp_path}/objects"
    assert cli("storage", "objects", url, "--as", "ann").code == 0
    big = '{"n": 1, "text": "' + "x" * 100_000 + '"}'
    for _ in range(2):
        assert cli("run", "free", "--input", "-", stdin=big.encode()).code == 0
    found = cli("storage", "--json").json["contents"]
    assert (found["count"], found["references"], found["in_objects"]) == (1, 2, 1)
    files = {file.name: file.stat().st_size for file in (tmp_path / "objects").iterdir()}
    assert sorted(len(name) for name in files) == [len(objects.MARK), 64]
    del files[objects.MARK]
    assert [found["object_bytes"]] == [found["stored_bytes"]] == list(files.values())
    assert found["ratio"] > 100
    assert f"large ones go to  {url}" in cli("storage").out
    refused = cli("storage", "objects", "s3://key:word@bucket")
    assert (refused.code, "word" in refused.err) == (2, False)
    with serving(cli.url, tmp_path / "serve", "--no-duties") as server:
        answer = server.client.put("/api/v1/storage/objects", json={"url": None, "by": "bob"})
        assert answer.json()["objects"] is None
        assert server.get("/api/v1/storage").json()["contents"]["in_objects"] == 1
        bad = server.client.put("/api/v1/storage/objects", json={"url": "ftp://x/y"})
        assert (bad.status_code, bad.json()["code"]) == (422, "SUI-3003")
    actors = conn.execute("select actor from suimon.audit where action = 'storage' order by id")
    assert [row[0] for row in actors.fetchall()] == ["ann", "bob"]
