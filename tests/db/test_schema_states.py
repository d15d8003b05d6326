"""The states of a run: sixteen edges in Python, in the table, in the guard, and no seventeenth."""

from __future__ import annotations

import itertools
from typing import Any

import psycopg
import pytest
from support.lab import Lab

from suimon.core.states import EDGES, TERMINAL, RunStatus
from suimon.db.connect import Connection

#: What a row in this state must hold for the CHECKs.
_FITTING = {
    "running": "worker_id = 1, finished_at = null, reason = null",
    "waiting": "worker_id = null, finished_at = null, reason = 'retry'",
    "queued": "worker_id = null, finished_at = null, reason = null",
}
_OVER = "worker_id = null, finished_at = clock_timestamp(), reason = null"


@pytest.fixture
def run(conn: Connection) -> str:
    """A queued run."""
    lab = Lab(conn)
    lab.pipeline("p")
    return lab.submit("p")


def _go(conn: Connection, run: str, status: str) -> None:
    fitting = _FITTING.get(status, _OVER)
    conn.execute(
        f"update suimon.runs set status = '{status}', {fitting} where id = %s".encode(), (run,)
    )


def _put(conn: Connection, run: str, status: str) -> None:
    """Whatever the way: the guard is off for this one step."""
    conn.execute("alter table suimon.runs disable trigger runs_edge")
    _go(conn, run, status)
    conn.execute("alter table suimon.runs enable trigger runs_edge")


def test_the_sixteen_edges_are_the_same_in_both_places(conn: Connection) -> None:
    """core/states.py is the source; the table shows it to people and tests."""
    table = {(str(a), str(b)) for a, b in conn.execute("select old, new from suimon.run_edges")}
    assert table == {(str(a), str(b)) for a, b in EDGES}
    assert len(table) == 16
    names = conn.execute("select unnest(enum_range(null::suimon.run_status))::text").fetchall()
    assert {name for (name,) in names} == {str(one) for one in RunStatus}


def test_of_all_forty_nine_pairs_the_guard_allows_these_and_no_others(
    conn: Connection, run: str
) -> None:
    """Tried one by one; staying where one is is no edge and is allowed."""
    for old, new in itertools.product(RunStatus, RunStatus):
        _put(conn, run, old)
        if (old, new) in EDGES or old == new:
            _go(conn, run, new)
            continue
        with pytest.raises(psycopg.Error, match=f"may not go from {old} to {new}") as caught:
            _go(conn, run, new)
        assert caught.value.sqlstate == "SUI01"


@pytest.mark.parametrize("status", [s for s in RunStatus if s != RunStatus.QUEUED])
def test_a_run_is_born_queued(conn: Connection, run: str, status: str) -> None:
    """No insert gets around the edges."""
    copied = (
        "insert into suimon.runs"
        " (id, root_id, graph_id, pipeline, pool, status, worker_id, finished_at, reason)"
        " select gen_random_uuid(), id, graph_id, pipeline, pool, %s, %s, %s, 'retry'"
        " from suimon.runs"
    )
    over = "2026-01-01" if status in TERMINAL else None
    with pytest.raises(psycopg.Error, match="born queued"):
        conn.execute(copied, (status, 1 if status == "running" else None, over))


REFUSED: list[tuple[str, str, str]] = [
    ("finished_iff_terminal", "queued", "finished_at = clock_timestamp()"),
    ("finished_iff_terminal", "succeeded", "finished_at = null"),
    ("worker_iff_running", "queued", "worker_id = 1"),
    ("worker_iff_running", "running", "worker_id = null"),
    ("waiting_says_why", "waiting", "reason = null"),
    ("child_has_place", "queued", "position = 1"),
    ("child_has_place", "queued", "fanout_id = 1"),
    ("lane_has_rank", "queued", "lane = 'x'"),
    ("only_admitted_run", "running", "admitted = false"),
    ("only_admitted_run", "waiting", "admitted = false"),
    ("counts_are_counts", "queued", "attempt = -1"),
    ("counts_are_counts", "queued", "priority = 4"),
]


@pytest.mark.parametrize(("constraint", "status", "change"), REFUSED)
def test_what_must_never_be_is_refused(
    conn: Connection, run: str, constraint: str, status: str, change: str
) -> None:
    """By a CHECK with a name, whoever writes."""
    _put(conn, run, status)
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        conn.execute(f"update suimon.runs set {change} where id = %s".encode(), (run,))
    assert caught.value.diag.constraint_name == constraint


def _lane_row(conn: Connection, **columns: Any) -> None:
    keys, values = ", ".join(columns), list(columns.values())
    marks = ", ".join(["%s"] * len(values))
    conn.execute(
        f"insert into suimon.runs (id, root_id, graph_id, pipeline, pool, {keys})"
        f" select gen_random_uuid(), gen_random_uuid(), 1, 'p', 'default', {marks}",
        values,
    )


@pytest.mark.parametrize("holder", ["queued", "running", "waiting"])
def test_a_serial_lane_has_one_admitted_run_whatever_it_does(
    conn: Connection, run: str, holder: str
) -> None:
    """The partial unique index covers a waiting holder too; un-admitted ones stand beside it."""
    _lane_row(conn, lane="x", lane_rank=1, lane_limit=1, admitted=True)
    (first,) = conn.execute("select id::text from suimon.runs where lane = 'x'").fetchone() or ("",)
    if holder != "queued":
        _go(conn, first, "running")
        _go(conn, first, holder)
    _lane_row(conn, lane="x", lane_rank=2, lane_limit=1, admitted=False)
    with pytest.raises(psycopg.errors.UniqueViolation, match="runs_lane_one"):
        _lane_row(conn, lane="x", lane_rank=3, lane_limit=1, admitted=True)
    _lane_row(conn, lane="y", lane_rank=4, lane_limit=1, admitted=True)
    _lane_row(conn, lane="x", lane_rank=5, lane_limit=3, admitted=True)


def test_an_ended_run_frees_its_lane(conn: Connection, run: str) -> None:
    """The index holds live runs only."""
    _lane_row(conn, lane="x", lane_rank=1, lane_limit=1, admitted=True)
    (first,) = conn.execute("select id::text from suimon.runs where lane = 'x'").fetchone() or ("",)
    _go(conn, first, "cancelled")
    _lane_row(conn, lane="x", lane_rank=2, lane_limit=1, admitted=True)


@pytest.mark.parametrize(
    "change", ["state = 'settled'", "verdict = 'failed'", "state = 'half'", "stragglers = 'kill'"]
)
def test_a_fan_out_is_open_or_settled_with_a_verdict(conn: Connection, change: str) -> None:
    """And nothing in between."""
    lab = Lab(conn)
    lab.pipeline("p")
    parent = lab.parent(lab.worker(), "p")
    with pytest.raises(psycopg.errors.CheckViolation):
        lab.sql(f"update suimon.fanouts set {change} where id = %s", parent.fanout.id)


def test_one_key_of_a_pipeline_has_one_row(conn: Connection, run: str) -> None:
    """The primary key is the promise; another pipeline may use the same key."""
    add = (
        "insert into suimon.idempotency_keys (pipeline, key_hash, run_id, input_hash)"
        " values (%s, 'k', gen_random_uuid(), 'i')"
    )
    conn.execute(add, ("p",))
    conn.execute(add, ("q",))
    with pytest.raises(psycopg.errors.UniqueViolation):
        conn.execute(add, ("p",))
