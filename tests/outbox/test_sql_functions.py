"""suimon.submit and suimon.emit, called as other languages call them: in a transaction of one's own
that commits or does not.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql
from support.lab import Lab
from support.wait import wait_until

from suimon.db.connect import connect
from suimon.run import claim
from suimon.triggers import deliver

PSQL = shutil.which("psql")
STUCK = "select count(*) from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
LISTENS = [{"type": "EVENT", "event": "order.*"}]


def psql(url: str, script: str) -> subprocess.CompletedProcess[str]:
    """The real program; it stops at the first error."""
    assert PSQL is not None
    return subprocess.run(
        [PSQL, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", url],
        input=script, capture_output=True, text=True, timeout=60, check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith("PG")},
    )  # fmt: skip


def refused(lab: Lab, statement: str, *values: Any) -> psycopg.errors.Diagnostic:
    with pytest.raises(psycopg.Error) as caught:
        lab.sql(statement, *values)
    return caught.value.diag


def runs(lab: Lab, pipeline: str = "p") -> int:
    return int(lab.one("select count(*) from suimon.runs where pipeline = %s", pipeline))


def claimed_input(lab: Lab) -> bytes:
    """The whole input of the next run, as its worker gets it."""
    rows = lab.claim(lab.worker())
    claim.fill_inputs(lab.conn, rows)
    given = rows[0].input
    assert given is not None
    return given.encode() if isinstance(given, str) else bytes(given)


def waiting(lab: Lab) -> list[tuple[Any, ...]]:
    return lab.sql(
        "select t.pipeline, d.input -> 'type', d.input -> 'payload' from suimon.deliveries d"
        " join suimon.triggers t on t.id = d.trigger_id where d.state = 'waiting' order by d.seq"
    )


@pytest.fixture
def stranger(db_url: str, lab: Lab) -> Iterator[str]:
    """The database's URL for a role that may use the schema and nothing else."""
    name = f"suimon_stranger_{os.getpid()}"
    role = sql.Identifier(name)
    lab.conn.execute(sql.SQL("create role {} login password 'stranger'").format(role))
    lab.conn.execute(sql.SQL("grant usage on schema suimon to {}").format(role))
    parts = urlsplit(db_url)
    address = parts.netloc.rpartition("@")[2]
    try:
        yield urlunsplit(parts._replace(netloc=f"{name}:stranger@{address}"))
    finally:
        lab.conn.execute(sql.SQL("drop owned by {} cascade").format(role))
        lab.conn.execute(sql.SQL("drop role {}").format(role))


# ------------------------------------------------------------------------------------ submit


@pytest.mark.skipif(PSQL is None, reason="the psql program is not installed")
def test_psql_starts_a_run_after_commit_and_none_after_rollback(lab: Lab, db_url: str) -> None:
    lab.pipeline("p")
    gone = psql(db_url, "begin;\nselect suimon.submit('p', '{\"n\": 1}');\nrollback;\n")
    assert (gone.returncode, runs(lab)) == (0, 0)
    kept = psql(db_url, "begin;\nselect suimon.submit('p', '{\"n\": 2}', 'k');\ncommit;\n")
    assert kept.returncode == 0, kept.stderr
    assert lab.sql("select id::text, input from suimon.runs") == [(kept.stdout.strip(), {"n": 2})]
    again = psql(db_url, "select suimon.submit('p', '{}', 'k');\n")
    assert again.stdout == kept.stdout
    assert lab.claim(lab.worker())[0].id == kept.stdout.strip()


@pytest.mark.skipif(PSQL is None, reason="the psql program is not installed")
def test_psql_shows_fact_detail_and_hint(lab: Lab, db_url: str) -> None:
    said = psql(db_url, "select suimon.submit('nobody');\n").stderr
    assert 'SUI31: there is no pipeline "nobody"' in said
    assert "HINT:  Deploy it: suimon deploy PATH" in said


def test_a_role_needs_nothing_but_usage_of_the_schema(lab: Lab, stranger: str) -> None:
    lab.pipeline("p", triggers=LISTENS)
    with connect(stranger, name="test") as conn:
        conn.execute("select suimon.submit('p', '{}')")
        conn.execute("select suimon.emit('order.paid', '{}')")
        for forbidden in (
            "select * from suimon.runs",
            "select suimon.tell_event('order.paid', '{}', null, null)",
            "select suimon.new_runs('p', array[suimon.uuid7()], array['k'], array['{}'], 1, null)",
            "insert into suimon.audit (actor, action, target) values ('x', 'y', 'z')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(forbidden.encode())
    assert (runs(lab), len(waiting(lab))) == (1, 1)


def test_a_schema_put_in_front_changes_nothing(lab: Lab, stranger: str) -> None:
    """The functions run with their owner's rights: names must not be found elsewhere."""
    lab.pipeline("p")
    with connect(stranger, name="test") as conn:
        conn.execute("create temp table runs (id uuid)")
        conn.execute(
            "create function pg_temp.sha256(bytea) returns bytea language sql as"
            " $$ select pg_catalog.set_config('test.fooled', 'yes', false)::bytea $$"
        )
        conn.execute("set search_path = pg_temp, suimon, public")
        conn.execute("select suimon.submit('p', '{}', 'k')")
        fooled = conn.execute("select current_setting('test.fooled', true)").fetchone()
    assert fooled in ((None,), ("",))
    assert runs(lab) == 1


READS = {
    "t": {"type": "TASK", "config": {"task": "m:f"}, "inputs": {"a": {"$ref": "input.order.id"}}}
}


def test_errors_of_submit_have_their_codes(lab: Lab) -> None:
    lab.pipeline("reads", READS)
    lab.pipeline("full", maxQueued=1)
    lab.pipeline("per", concurrency={"limit": 1, "per": "customer"})
    assert refused(lab, "select suimon.submit('nobody')").sqlstate == "SUI31"
    lacks = refused(lab, """select suimon.submit('reads', '{"order": {}}')""")
    assert (lacks.sqlstate, lacks.message_primary) == ("SUI33", 'the input lacks "order.id"')
    assert (lacks.message_detail, lacks.message_hint) == (
        "Pipeline reads reads it.", "Give an object with this field.",
    )  # fmt: skip
    for bad in ("'[1]'", "'\"text\"'", "null", "'null'"):
        assert refused(lab, f"select suimon.submit('reads', {bad})").sqlstate == "SUI33", bad
    for bad in ("{}", '{"customer": null}', '{"customer": ""}', '{"customer": {"a": 1}}'):
        said = refused(lab, "select suimon.submit('per', %s::jsonb)", bad)
        assert said.sqlstate == "SUI33", bad
        assert "customer" in str(said.message_primary)
    for key in ("", "k" * 1025):
        assert refused(lab, "select suimon.submit('full', '{}', %s)", key).sqlstate == "SUI33"
    lab.sql("select suimon.submit('full')")
    full = refused(lab, "select suimon.submit('full')")
    assert (full.sqlstate, full.message_hint) == ("SUI35", "Nothing was stored; ask again later.")
    assert full.message_primary == 'pipeline "full" has its 1 waiting runs'
    assert lab.one("select count(*) from suimon.runs") == 1


def test_an_input_above_eight_kilobytes_comes_back_whole(lab: Lab) -> None:
    lab.pipeline("p")
    text = "ü" * 10_000
    lab.sql("select suimon.submit('p', jsonb_build_object('text', %s::text))", text)
    assert text in claimed_input(lab).decode()


def test_a_known_key_is_answered_although_the_pipeline_is_full(lab: Lab) -> None:
    lab.pipeline("p", maxQueued=1)
    first = lab.one("select suimon.submit('p', '{}', 'k')")
    assert lab.one("""select suimon.submit('p', '{"other": 1}', 'k')""") == first


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_one_key_from_two_sessions_at_once_is_one_run(
    lab: Lab, db_url: str, level: str
) -> None:  # fmt: skip
    """The second waits for the first: it gets the first one's run, or an error to begin anew."""
    lab.pipeline("p")
    with psycopg.connect(db_url) as one, psycopg.connect(db_url) as two:
        for conn in (one, two):
            conn.execute(f"set transaction isolation level {level}".encode())
            conn.execute("select 1")
        pid = two.info.backend_pid
        first = one.execute("select suimon.submit('p', '{}', 'k')").fetchone()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(
                lambda: two.execute("select suimon.submit('p', '{}', 'k')").fetchone()
            )
            wait_until(lambda: lab.one(STUCK, pid), 20, "waiting for the first")
            one.commit()
            if level == "read committed":
                assert asked.result(20) == first
                two.commit()
            else:
                with pytest.raises(psycopg.errors.SerializationFailure):
                    asked.result(20)
                two.rollback()
                assert two.execute("select suimon.submit('p', '{}', 'k')").fetchone() == first
    assert runs(lab) == 1


def test_the_second_of_two_sessions_gets_its_own_run_when_the_first_rolls_back(
    lab: Lab, db_url: str
) -> None:
    lab.pipeline("p")
    with psycopg.connect(db_url) as one, psycopg.connect(db_url) as two:
        first = one.execute("select suimon.submit('p', '{}', 'k')").fetchone()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(
                lambda: two.execute("select suimon.submit('p', '{}', 'k')").fetchone()
            )
            wait_until(lambda: lab.one(STUCK, two.info.backend_pid), 20, "waiting for the first")
            one.rollback()
            second = asked.result(20)
        two.commit()
    assert second != first
    assert runs(lab) == 1


# ------------------------------------------------------------------------------------ who is told


class Ear:
    """Hears a channel from now on."""

    def __init__(self, url: str, channel: str) -> None:
        self.conn = psycopg.connect(url, autocommit=True)
        self.conn.execute(f"listen {channel}".encode())

    def heard(self) -> list[str]:
        self.conn.execute("select 1")
        return [one.payload for one in self.conn.notifies(timeout=0)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.conn.close()


def test_an_idle_worker_is_told_at_the_commit(lab: Lab, db_url: str) -> None:
    lab.pipeline("p")
    worker = lab.worker(idle=True)
    with Ear(db_url, "suimon_wake") as ear, psycopg.connect(db_url) as caller:
        caller.execute("select suimon.submit('p')")
        assert ear.heard() == []
        caller.commit()
        assert ear.heard() == [f"default {worker}"]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_an_old_snapshot_tells_a_keeper_because_it_cannot_see_who_is_idle(
    lab: Lab, db_url: str, level: str
) -> None:
    lab.pipeline("p")
    with Ear(db_url, "suimon_doors") as ear, psycopg.connect(db_url) as caller:
        caller.execute(f"set transaction isolation level {level}".encode())
        caller.execute("select suimon.submit('p')")
        caller.commit()
        assert ear.heard() == ["pool default"]


def test_a_run_behind_a_lane_tells_a_keeper(lab: Lab, db_url: str) -> None:
    lab.pipeline("p", concurrency=1)
    with Ear(db_url, "suimon_doors") as ear:
        lab.sql("select suimon.submit('p')")
        assert ear.heard() == ["lane pipeline:p"]
    assert lab.one("select admitted from suimon.runs") is False


# ------------------------------------------------------------------------------------ emit


@pytest.mark.skipif(PSQL is None, reason="the psql program is not installed")
def test_psql_tells_of_an_event_after_commit_and_of_none_after_rollback(
    lab: Lab, db_url: str
) -> None:
    lab.pipeline("p", triggers=LISTENS)
    call = "select suimon.emit('order.paid', '{\"n\": 1}');"
    assert psql(db_url, f"begin;\n{call}\nrollback;\n").returncode == 0
    assert waiting(lab) == []
    assert lab.one("select count(*) from suimon.events") == 0
    kept = psql(db_url, f"begin;\n{call}\ncommit;\n")
    assert waiting(lab) == [("p", "order.paid", {"n": 1})]
    assert lab.one("select id::text from suimon.events") == kept.stdout.strip()


def test_only_those_who_listen_get_a_delivery(lab: Lab) -> None:
    for name, pattern in [("a", "order.*"), ("b", "order.paid"), ("c", "stock.*"), ("d", "*")]:
        lab.pipeline(name, triggers=[{"type": "EVENT", "event": pattern}])
    lab.pipeline("e", triggers=[{"type": "EVENT", "event": "order_paid"}])
    lab.sql("select suimon.emit('order.paid')")
    assert [row[0] for row in waiting(lab)] == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("pattern", "kind", "fits"),
    [
        ("order.*", "order.paid", True),
        ("order.*", "order.paid.late", True),
        ("order.*", "order", False),
        ("order.*", "orders.paid", False),
        ("order_paid", "orderXpaid", False),
        ("100%", "100x", False),
        ("*.paid", "order.paid", True),
        ("order.paid", "order.paid.late", False),
    ],
)
def test_a_star_stands_for_any_characters_and_nothing_else_does(
    lab: Lab, pattern: str, kind: str, fits: bool
) -> None:
    assert lab.one("select suimon.event_fits(%s, %s)", pattern, kind) is fits


def test_a_key_of_one_type_is_one_event(lab: Lab) -> None:
    lab.pipeline("p", triggers=LISTENS)
    first = lab.one("""select suimon.emit('order.paid', '{"n": 1}', '17')""")
    assert lab.one("""select suimon.emit('order.paid', '{"n": 2}', '17')""") == first
    assert lab.one("select suimon.emit('order.sent', '{}', '17')") != first
    assert [row[1] for row in waiting(lab)] == ["order.paid", "order.sent"]


@pytest.mark.parametrize("commits", [True, False])
def test_one_event_key_from_two_sessions_at_once(lab: Lab, db_url: str, commits: bool) -> None:
    lab.pipeline("p", triggers=LISTENS)
    call = b"select suimon.emit('order.paid', '{}', 'k')"
    with psycopg.connect(db_url) as one, psycopg.connect(db_url) as two:
        first = one.execute(call).fetchone()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(lambda: two.execute(call).fetchone())
            wait_until(lambda: lab.one(STUCK, two.info.backend_pid), 20, "waiting for the first")
            one.commit() if commits else one.rollback()
            second = asked.result(20)
        two.commit()
    assert (second == first) is commits
    assert len(waiting(lab)) == 1


def test_errors_of_emit(lab: Lab) -> None:
    for bad in ("", " order", "order paid", "order\npaid", "order.paid\n", "ö", "x" * 201, "*"):
        said = refused(lab, "select suimon.emit(%s)", bad)
        assert (said.sqlstate, bool(said.message_hint)) == ("SUI33", True), bad
    assert refused(lab, "select suimon.emit(null)").sqlstate == "SUI33"
    assert refused(lab, "select suimon.emit('a', null)").sqlstate == "SUI33"
    assert refused(lab, "select suimon.emit('a', '{}', '')").sqlstate == "SUI33"
    assert refused(lab, "select suimon.emit('a', '{}', %s)", "k" * 1025).sqlstate == "SUI33"
    assert lab.one("select count(*) from suimon.events") == 0


@pytest.mark.parametrize("size", [8_000, 8_190, 8_200, 100_000, 16_776_190])
def test_a_payload_of_any_size_up_to_the_limit_is_told_whole(lab: Lab, size: int) -> None:
    lab.pipeline("p", triggers=LISTENS)
    text = "x" * (size - 2)
    lab.sql("select suimon.emit('order.paid', to_jsonb(%s::text))", text)
    trigger = lab.one("select trigger_id from suimon.deliveries")
    deliver.deliver(lab.conn, trigger)
    assert len(claimed_input(lab)) > size
    big = refused(lab, "select suimon.emit('order.paid', to_jsonb(%s::text))", "x" * 16_776_200)
    assert (big.sqlstate, big.message_primary) == ("SUI33", "the payload is larger than 16 MiB")


def test_many_sessions_tell_the_same_keys_in_other_orders(lab: Lab, db_url: str) -> None:
    """Who meets a deadlock begins anew; each key is one event in the end."""
    lab.pipeline("p", triggers=LISTENS)
    keys = [f"k{i}" for i in range(20)]
    barrier = threading.Barrier(4)

    def tell(turn: int) -> None:
        waits = random.Random(turn)
        # (a deadlock is looked for at once, and who met one waits a little, not the same for all:
        # else the four can meet each other in the same way for minutes)
        with psycopg.connect(db_url, options="-c deadlock_timeout=20ms") as conn:
            barrier.wait()
            for _ in range(50):
                try:
                    for key in keys[turn * 5 :] + keys[: turn * 5]:
                        conn.execute("select suimon.emit('order.paid', '{}', %s)", (key,))
                    conn.commit()
                except psycopg.errors.DeadlockDetected:
                    conn.rollback()
                    time.sleep(waits.uniform(0, 0.2))
                else:
                    return
            pytest.fail("it met a deadlock fifty times")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(tell, range(4)))
    assert lab.one("select count(*) from suimon.events") == 20
    assert len(waiting(lab)) == 20
