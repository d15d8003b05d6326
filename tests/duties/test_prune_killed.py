"""A pruner that dies in the middle leaves nothing that cannot be reached, and the next goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from support.contents import wrong_counts
from support.lab import SPAWN_GRAPH, Lab
from support.pruning import furnish, left, tree, unreachable
from support.wait import wait_until

from suimon.duties import prune

KILLED = """
import sys
from suimon.db.connect import connect
from suimon.duties import prune

stop, count = sys.argv[2], int(sys.argv[3])

class Watched:
    def __init__(self, conn):
        self.conn, self.left = conn, count
    def execute(self, statement, *given, **named):
        if statement == prune.SQL[stop]:
            self.left -= 1
            if self.left == 0:
                print("there", flush=True)
                sys.stdin.read()
        return self.conn.execute(statement, *given, **named)

with connect(sys.argv[1], name="pruner") as conn:
    prune.prune(Watched(conn))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "nth"),
    [("mark", 1), ("first_ended", 1), ("drop_artifacts", 2), ("drop_logs", 1), ("drop_runs", 1),
     ("drop_runs", 2), ("drop_fanout", 1), ("drop_runs", 3)],
)  # fmt: skip
def test_killed_in_the_middle(lab: Lab, db_url: str, statement: str, nth: int) -> None:
    """kill -9 before any statement of it: what is left is reachable, and the next turn ends it."""
    lab.pipeline("trees", SPAWN_GRAPH, keep={"count": 0})
    parent = tree(lab, n=700)
    for run in (parent.id, parent.child_id(0), parent.child_id(699)):
        furnish(lab, run)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, db_url, statement, str(nth)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"there\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()
    wait_until(
        lambda: (
            not lab.one(
                "select count(*) from pg_stat_activity where application_name = 'suimon:pruner'"
                " and datname = current_database()"
            )
        ),
        10,
        "the server noticed",
    )
    assert not unreachable(lab)
    assert not wrong_counts(lab.conn)
    if statement != "mark":
        assert lab.one("select reason from suimon.runs where id = %s", parent.id) == "pruning"
    # what its pipeline says now does not matter: the mark is a promise
    lab.pipeline("trees", SPAWN_GRAPH, **({"keep": {"count": 0}} if statement == "mark" else {}))
    done = prune.prune(lab.conn)
    assert done.roots == 1
    assert left(lab) == {}
    assert lab.one("select count(*) from suimon.contents") == 0
    assert lab.one("select suimon.store_bytes()") == 0
