"""C10, scaled: a snapshot is held open elsewhere while 100 short runs a second go through.

The case asks for half an hour; `python -m bench snapshot-starts --minutes 30` measures that. Here
it is long enough for thousands of dead entries, and what must hold is asked of the structure: what
a claim touches with its floor, who is named, and that vacuum clears up once it is over.
"""

from __future__ import annotations

import threading
import time

import pytest
from psycopg import IsolationLevel
from support.engine import Engine
from support.plans import Plan, explain

from suimon.db.connect import connect
from suimon.run import claim, doctor, doors, health

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(300),
]

CODE = """
@pipeline(concurrency=None, max_queued=None)
def short(n):
    return n
"""
SECONDS = 40.0
PER_TENTH = 10


def _claim(engine: Engine, *, floored: bool) -> Plan:
    """What a claim touches that starts where a worker's floor is, or at the beginning."""
    heads = dict(engine.sql("select priority, head from suimon.pools where name = 'default'"))
    floors = {f"floor{p}": heads[p] - 4 * claim.BATCH_MARGIN if floored else 0 for p in range(4)}
    worker = engine.one("select min(id) from suimon.workers where not dead")
    given = {"pool": "default", "worker": worker, "n": 1, "capped": False, **floors}
    with connect(engine.url, name="explain") as conn:
        return explain(conn, claim.SQL.claim, given)


def test_c10_a_transaction_that_stays_open_beside_the_queue(engine: Engine) -> None:
    """Its process is named by status and doctor; claims do not walk what it keeps alive."""
    engine.module("m", CODE)
    engine.deploy()
    for _ in range(4):
        engine.worker(slots=1, heartbeat_s=5.0)
    pause = threading.Event()
    with connect(engine.url, name="analyst", autocommit=True) as other:
        other.isolation_level = IsolationLevel.REPEATABLE_READ
        with other.transaction():
            other.execute("select count(*) from suimon.runs")
            pid = other.info.backend_pid
            began, runs = time.monotonic(), list[str]()
            while time.monotonic() < began + SECONDS:
                inputs = [{"n": len(runs) + n} for n in range(PER_TENTH)]
                runs += [one.id for one in doors.start_many(engine.conn, "short", inputs)]
                due = began + len(runs) / (10 * PER_TENTH)
                pause.wait(max(0.0, due - time.monotonic()))  # the pace, not a guess
            engine.wait_all(runs)
            floored, blind = _claim(engine, floored=True), _claim(engine, floored=False)
            assert floored.buffers < 100, "bounded, whatever lies below the floor"
            assert blind.buffers > 5 * floored.buffers, "otherwise this test proves nothing"
            (warning,) = health.overall(engine.conn, old_s=SECONDS / 2)["warnings"]
            assert f"process {pid} of the database" in warning
            assert "transaction open for" in warning
            found = doctor.examine(engine.conn, held_s=SECONDS / 2)
            (named,) = [one for one in found if one.check == "vacuum" and one.level == "bad"]
            assert f"session {pid} " in named.text
            assert f"pg_terminate_backend({pid})" in str(named.hint)
    assert health.overall(engine.conn, old_s=SECONDS / 2)["warnings"] == []
    engine.sql("vacuum suimon.runs")
    assert _claim(engine, floored=False).buffers < blind.buffers / 2, "no restart was needed"
    engine.wait(engine.submit("short", {"n": 1}))
