"""`suimon triggers`: what a person sees of the doors for files."""

from __future__ import annotations

import os
from pathlib import Path

from cli.conftest import Cli
from suimon.db.connect import Connection

INBOX = """
from suimon import Cron, File, Pipeline, task

@task
def look(path) -> str:
    return path

p = Pipeline("inbox", concurrency=None)
p.on(File("in/*.csv", settle="1ms", ignore=["*.bak", "~*"]), Cron("0 2 * * *"))
p.run("look", look, "constant")
"""


def deployed(cli: Cli) -> Path:
    folder = cli.folder / "pipelines"
    (folder / "in").mkdir(parents=True)
    (folder / "inbox.py").write_text(INBOX, encoding="utf-8")
    assert cli("deploy", str(folder)).code == 0
    return folder


def test_triggers_are_listed_and_shown_with_what_they_leave_out(cli: Cli) -> None:
    deployed(cli)
    found = {one["kind"]: one for one in cli("triggers", "list", "--json").json["triggers"]}
    assert set(found) == {"FILE", "CRON"}
    assert found["CRON"]["next_at"]
    number = str(found["FILE"]["id"])
    shown = cli("triggers", "show", number)
    assert "*.bak ~*" in shown.out
    assert "2s" in shown.out
    one = cli("triggers", "show", number, "--json").json
    assert one["options"]["ignore"] == ["*.bak", "~*"]
    assert (one["options"]["settle"], one["options"]["dedupe"]) == ("1ms", "version")
    assert "file:in/*.csv" in cli("triggers", "list").out
    gone = cli("triggers", "show", "4711", "--json")
    assert (gone.code, gone.out) == (3, "")


def test_a_file_is_explained_and_processed_again(cli: Cli, conn: Connection) -> None:
    """A path is relative to where the person is; names of any bytes are shown, never broken."""
    folder = deployed(cli)
    (folder / "in" / "a.csv").write_text("x")
    told = cli("triggers", "explain", "pipelines/in/a.bak")
    assert told.code == 1
    assert "pattern" in told.out
    elsewhere = cli("triggers", "explain", "in/b.csv")
    assert f"looked at: {cli.folder / 'in/b.csv'} (a relative FILE" in elsewhere.err
    as_written = cli("triggers", "explain", "in/a.csv").out
    assert as_written == cli("triggers", "explain", "pipelines/in/a.csv").out
    assert "in/*.csv" in as_written, "what is not here is looked for at the folder of the code"
    assert cli("triggers", "explain", "pipelines/in/none.csv", "--json").json["taken"] is False
    done = cli("triggers", "again", "pipelines/in/a.csv", "--as", "me", "--why", "new rates")
    assert done.code == 0, done.err
    answer = cli("triggers", "explain", "pipelines/in/a.csv", "--json").json
    (one,) = answer["triggers"]
    assert [each["state"] for each in one["deliveries"]] == ["waiting"]
    row = conn.execute("select actor, detail ->> 'why' from suimon.audit").fetchone()
    assert row == ("me", "new rates")
    odd = os.fsdecode(b"pipelines/in/caf\xe9\n<b>.csv")
    (cli.folder / odd).write_text("x")
    told = cli("triggers", "again", odd)
    assert told.code == 0, told.err
    assert "caf\\xe9" in told.out
    refused = cli("triggers", "again", "pipelines/in/gone.csv", "--json")
    assert (refused.code, refused.problem["code"]) == (5, "SUI-3004")
