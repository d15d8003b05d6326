"""The doctor names what is wrong: who holds back vacuum, what is missing, what is stuck."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from support.database import Databases, chosen_bin, open_folder
from support.lab import SPAWN_GRAPH, Lab
from support.sessions import Sessions

from suimon.db.connect import Connection, connect
from suimon.db.embedded import EmbeddedServer
from suimon.run import doctor
from suimon.run.doctor import Finding


def bad(conn: Connection, check: str, **given: float) -> list[Finding]:
    found = doctor.examine(conn, **given)
    assert [one.level for one in found] == sorted(
        (one.level for one in found), key=["bad", "warn", "ok"].index
    )
    return [one for one in found if one.check == check and one.level != "ok"]


def test_a_session_that_holds_back_vacuum(conn: Connection, sessions: Sessions) -> None:
    """With its process, its program, its age and what it said; not before its time."""
    (idle,) = sessions("sleepy")
    with idle.transaction() as held:
        held.execute("select txid_current(), 'the last words'")
        assert bad(conn, "vacuum", held_s=3600) == []
        (found,) = [one for one in bad(conn, "vacuum", held_s=0) if str(idle.pid) in one.text]
    assert "suimon:sleepy" in found.text
    assert "idle in transaction" in found.text
    assert "the last words" in found.text
    assert f"pg_terminate_backend({idle.pid})" in str(found.hint)
    assert [one for one in bad(conn, "vacuum", held_s=0) if str(idle.pid) in one.text] == []


@pytest.fixture(scope="module")
def other_server() -> Iterator[EmbeddedServer]:
    """A server on which transactions can be prepared and decoded, and that does not vacuum."""
    folder = open_folder("suimon-doctor-")
    settings = {
        "max_prepared_transactions": "2", "wal_level": "logical", "autovacuum": "off",
        "fsync": "off", "synchronous_commit": "off",
    }  # fmt: skip
    try:
        with EmbeddedServer(folder / "pg", bin=chosen_bin(), settings=settings) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_slots_and_prepared_transactions(
    other_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, with what ends them."""
    databases = Databases(other_server.url)
    with databases.fresh() as url, connect(url, name="test") as conn:
        conn.execute("select pg_create_logical_replication_slot('left_behind', 'test_decoding')")
        conn.execute("begin")
        conn.execute("create table public.t ()")
        conn.execute("prepare transaction 'half done'")
        monkeypatch.setattr(doctor, "HELD_XIDS", 0)
        texts = {one.text: one.hint for one in bad(conn, "vacuum", held_s=0)}
        prepared = [t for t in texts if 'prepared transaction "half done"' in t]
        slot = [t for t in texts if 'replication slot "left_behind" (inactive)' in t]
        assert (len(prepared), len(slot)) == (1, 1), texts
        assert "rollback prepared 'half done'" in str(texts[prepared[0]])
        assert "pg_drop_replication_slot('left_behind')" in str(texts[slot[0]])
        conn.execute("rollback prepared 'half done'")
        conn.execute("select pg_drop_replication_slot('left_behind')")
        assert bad(conn, "vacuum", held_s=3600) == []
        assert [one.level for one in bad(conn, "autovacuum")] == ["bad"]
        levels = {one.text.split()[0]: one.level for one in bad(conn, "durability")}
        assert levels == {"fsync": "bad", "synchronous_commit": "warn"}
    databases.close()


def test_indexes_that_are_missing_or_broken(lab: Lab) -> None:
    assert bad(lab.conn, "indexes") == []
    lab.sql("drop index suimon.runs_timer")
    lab.sql(
        "update pg_index set indisvalid = false where indexrelid = 'suimon.runs_ready'::regclass"
    )
    texts = [one.text for one in bad(lab.conn, "indexes")]
    assert texts[0] == "index suimon.runs_timer is missing"
    assert texts[1].startswith("index suimon.runs_ready is invalid")


def test_a_table_without_autovacuum(lab: Lab) -> None:
    lab.sql("alter table suimon.runs set (autovacuum_enabled = off)")
    (found,) = bad(lab.conn, "autovacuum")
    assert found.text == "autovacuum is off for table suimon.runs"


def test_another_schema_version(lab: Lab) -> None:
    """Told instead of looked into: the questions are this version's."""
    lab.sql("update suimon.meta set package_version = '0.0.0'")
    (found,) = bad(lab.conn, "schema")
    assert "0.0.0" in found.text
    assert bad(lab.conn, "lanes") == []


def test_a_clock_that_is_wrong(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bad(lab.conn, "clock") == []
    right = doctor.clock.now

    class Ahead:
        @staticmethod
        def now() -> object:
            from datetime import timedelta

            return right() + timedelta(seconds=90)

    monkeypatch.setattr(doctor, "clock", Ahead)
    (found,) = bad(lab.conn, "clock")
    assert found.text.startswith("this machine's clock is 9")
    assert "ahead of" in found.text


def test_too_few_connections(lab: Lab) -> None:
    for _ in range(60):
        lab.worker()
    (found,) = bad(lab.conn, "connections")
    assert "60 workers need 300" in found.text


def test_runs_that_are_stuck(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane with room, a dead worker's runs, a parent without live children, a timer nobody fired;
    and none of them in a healthy database.
    """
    lab.pipeline("p", concurrency=1)
    lab.pipeline("trees", SPAWN_GRAPH)
    lab.pipeline("free")
    worker = lab.worker()
    parent = lab.fan_out(worker, "trees", 1)
    first, behind = lab.submit("p"), lab.submit("p")
    alone = lab.submit("free")
    assert lab.claim_run(worker, alone)
    monkeypatch.setattr(doctor, "STUCK_SECONDS", 0.0)
    checks = ("lanes", "dead workers", "parents", "timers")
    assert [bad(lab.conn, check) for check in checks] == [[], [], [], []]
    lab.sql("update suimon.runs set admitted = false where id = %s", first)
    lab.kill(worker)
    lab.sql("update suimon.fanouts set state = 'settled', verdict = 'succeeded', succeeded = 1"
            " where id = %s", parent.fanout.id)  # fmt: skip
    lab.sql("set session_replication_role = replica")  # past the guard of the edges
    lab.sql("update suimon.runs set status = 'waiting', reason = 'timer', admitted = true,"
            " lane = null, wake_at = now() - interval '1 h' where id = %s", behind)  # fmt: skip
    lab.sql("set session_replication_role = origin")
    (lane,), (dead,), (stuck,), (timer,) = (bad(lab.conn, check) for check in checks)
    assert 'lane "pipeline:p" has room (0 of 1 places taken)' in lane.text
    assert first in lane.text
    assert "1 run is held by default-worker, which is dead" in dead.text
    assert alone in dead.text
    assert parent.id in stuck.text
    assert timer.text.startswith("1 run waits for a time that has passed")
