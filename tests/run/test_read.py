"""What people and programs see of runs, made from rows that stand in the database.

The rows are written by hand here: each state of a run and of a fan-out is wanted exactly, without
an engine that moves on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pytest

from suimon.db.connect import Connection
from suimon.errors import InputRefused, RunNotFound
from suimon.run import deploy, doors, health, pages, read, submit, why

GRAPH: dict[str, Any] = {
    "suimon": 1,
    "pipeline": "p",
    "concurrency": "unlimited",
    "vertices": {
        "kids": {
            "type": "SPAWNER",
            "inputs": {"items": [1]},
            "config": {"task": "m:f"},
        },
        "out": {"type": "MERGE", "after": ["kids"], "config": {}},
    },
}


def make_pipeline(conn: Connection, name: str = "p", **more: Any) -> None:
    graph = {**GRAPH, "pipeline": name, **more}
    text = json.dumps(graph, sort_keys=True).encode()
    deploy.deploy(conn, [deploy.Definition(name, hashlib.sha256(text).hexdigest(), graph)])


def make_fanout(conn: Connection, parent: str, *, n: int, sealed: bool = True) -> tuple[int, str]:
    """A fan-out with `n` queued children; gives back its id and base."""
    base = submit.fanout_base()
    row = conn.execute(
        "insert into suimon.fanouts (parent_id, root_id, vertex, base, expected, tolerate)"
        " values (%s, %s, 'kids', %s, %s, '{failed}') returning id",
        [parent, parent, base, n if sealed else None],
    ).fetchone()
    assert row is not None
    conn.execute(
        "insert into suimon.runs (id, root_id, parent_id, fanout_id, item_hash, graph_id, position,"
        " pipeline, pool, vertex, item_key, input)"
        " select suimon.child_id(%(base)s, i), %(parent)s, %(parent)s, %(fanout)s, i,"
        " (select min(id) from suimon.graphs), i, 'p', 'default', 'kids', 'key-' || i,"
        " to_jsonb(i) from generate_series(0, %(n)s - 1) as i",
        {"base": base, "parent": parent, "fanout": row[0], "n": n},
    )
    return int(row[0]), base


def end(
    conn: Connection, base: str, positions: Sequence[int], state: str, message: str = ""
) -> None:
    """These children run and end in this state; the tally follows."""
    error = json.dumps({"type": "ValueError", "message": message}) if message else None
    where = {"base": base, "at": list(positions), "state": state, "error": error}
    conn.execute(
        "update suimon.runs set status = 'running', worker_id = 1, claim_no = 1, attempt = 1,"
        " started_at = clock_timestamp()"
        " where id in (select suimon.child_id(%(base)s, i) from unnest(%(at)s::int[]) i)",
        where,
    )
    if state == "running":
        return
    conn.execute(
        "update suimon.runs set status = %(state)s::suimon.run_status, worker_id = null,"
        " finished_at = clock_timestamp(), duration_us = position, error = %(error)s::jsonb,"
        " output = to_jsonb(position)"
        " where id in (select suimon.child_id(%(base)s, i) from unnest(%(at)s::int[]) i)",
        where,
    )
    conn.execute(
        f"update suimon.fanouts set {state} = {state} + %s where base = %s",  # type: ignore[arg-type]
        [len(positions), base],
    )


def explained(conn: Connection, statement: str, where: dict[str, Any]) -> str:
    rows = conn.execute(f"explain {statement}", where).fetchall()  # type: ignore[arg-type]
    return "\n".join(row[0] for row in rows)


@pytest.fixture
def parent(conn: Connection) -> str:
    make_pipeline(conn)
    return doors.start(conn, "p", {}).id


class TestRun:
    def test_counts_come_from_the_tally(self, conn: Connection, parent: str) -> None:
        """Sum over the fan-outs; running from what the workers hold; unfinished is the rest."""
        _, base = make_fanout(conn, parent, n=20)
        end(conn, base, range(5), "succeeded")
        end(conn, base, [5, 6], "failed", "no")
        end(conn, base, [7], "timed_out")
        end(conn, base, [8, 9, 10], "running")
        found = read.run(conn, parent)
        assert found.counts == {
            "total": 20, "expected": 20, "succeeded": 5, "failed": 2, "timed_out": 1,
            "cancelled": 0, "running": 3, "unfinished": 12,
        }  # fmt: skip
        assert not found.ended

    def test_an_open_list_counts_what_exists(self, conn: Connection, parent: str) -> None:
        """Before the seal nobody knows how many there will be."""
        make_fanout(conn, parent, n=7, sealed=False)
        counts = read.run(conn, parent).counts
        assert counts is not None
        assert (counts["expected"], counts["total"]) == (None, 7)

    def test_large_values_come_from_payloads(self, conn: Connection) -> None:
        """Inputs and outputs above 8 KB are shown like all others."""
        make_pipeline(conn)
        large = {"text": "x" * 20_000}
        run = doors.start(conn, "p", large).id
        assert conn.execute("select input from suimon.runs").fetchone() == (None,)
        assert read.run(conn, run).input == large

    def test_errors_that_differ_in_numbers_and_names_are_one(
        self, conn: Connection, parent: str
    ) -> None:
        """Grouped by state, type and shape of the message; at most 20 kinds, the largest first."""
        _, base = make_fanout(conn, parent, n=100)
        for position in range(30):
            end(conn, base, [position], "failed", f"row {position}: '{position}x' is {-position}.5")
        for position in range(30, 35):
            end(conn, base, [position], "failed", "other")
        end(conn, base, [35], "cancelled")
        (fanout,) = read.fanouts(conn, parent)
        found = read.grouped_errors(conn, fanout)
        assert [(one["status"], one["count"]) for one in found] == [
            ("failed", 30),
            ("failed", 5),
            ("cancelled", 1),
        ]
        assert found[0]["example"] == "row 0: '0x' is 0.5"
        assert (found[0]["first_position"], found[0]["first_key"]) == (0, "key-0")
        for position in range(36, 66):
            end(conn, base, [position], "failed", "kind " + chr(65 + position))
        assert len(read.grouped_errors(conn, fanout)) == 20

    def test_durations_are_the_childrens(self, conn: Connection, parent: str) -> None:
        """p50, p95, p99 and max over those that have run."""
        _, base = make_fanout(conn, parent, n=200)
        end(conn, base, range(1, 101), "succeeded")
        (fanout,) = read.fanouts(conn, parent)
        assert read.durations(conn, fanout) == {
            "p50_us": 50, "p95_us": 95, "p99_us": 99, "max_us": 100, "measured": 100,
        }  # fmt: skip

    def test_the_slowest_now_are_the_oldest_running(self, conn: Connection, parent: str) -> None:
        """At most five, the longest first."""
        _, base = make_fanout(conn, parent, n=20)
        for position in (7, 3, 12, 1, 9, 4):
            end(conn, base, [position], "running")
        (fanout,) = read.fanouts(conn, parent)
        found = read.slowest_now(conn, fanout)
        assert [one["position"] for one in found] == [7, 3, 12, 1, 9]

    def test_an_unknown_run_is_not_found(self, conn: Connection) -> None:
        """With what to do."""
        with pytest.raises(RunNotFound):
            read.run(conn, submit.uuid7())

    def test_a_child_has_no_fanouts_of_its_own(self, conn: Connection, parent: str) -> None:
        """A bare task's child carries its parent's graph, and nothing below it."""
        _, base = make_fanout(conn, parent, n=2)
        child = read.run(conn, base)
        assert (child.position, child.counts, child.fanouts) == (0, None, ())


class TestPages:
    def test_any_page_of_children(self, conn: Connection, parent: str) -> None:
        """In item order, without gaps, to the end."""
        make_fanout(conn, parent, n=25)
        (fanout,) = read.fanouts(conn, parent)
        seen, first = [], 0
        for _ in range(4):
            page = pages.children(conn, fanout, first=first, limit=10)
            seen += [one["position"] for one in page.rows]
            if page.next is None:
                break
            first = page.next
        assert seen == list(range(25))

    def test_a_rare_state_is_found_window_by_window(
        self, conn: Connection, parent: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A page that found too little says where to go on; all together find all."""
        monkeypatch.setattr(pages, "WINDOW", 10)
        _, base = make_fanout(conn, parent, n=45)
        end(conn, base, [2, 33, 44], "succeeded")
        (fanout,) = read.fanouts(conn, parent)
        seen: list[int] = []
        first: int | None = 0
        looks = 0
        while first is not None:
            page = pages.children(conn, fanout, first=first, statuses=["succeeded"], limit=10)
            seen += [one["position"] for one in page.rows]
            first, looks = page.next, looks + 1
        assert seen == [2, 33, 44]
        assert looks == 5

    def test_bad_ends_come_from_their_own_index(self, conn: Connection, parent: str) -> None:
        """However far apart they are: one page."""
        _, base = make_fanout(conn, parent, n=50)
        end(conn, base, [0, 20, 49], "failed", "no")
        end(conn, base, [30], "cancelled")
        (fanout,) = read.fanouts(conn, parent)
        page = pages.children(conn, fanout, statuses=["failed", "cancelled"], limit=3)
        assert [one["position"] for one in page.rows] == [0, 20, 30]
        assert page.next == 49
        plan = explained(
            conn,
            pages.SQL.bad_positions,
            {"fanout": fanout.id, "first": 0, "statuses": ["failed"], "n": 10},
        )
        assert "runs_ended_badly" in plan

    def test_which_fanout_is_meant(self, conn: Connection, parent: str) -> None:
        """The only one, the named one; otherwise the names are told."""
        with pytest.raises(InputRefused, match="no children"):
            pages.fanout_of(conn, parent, None)
        make_fanout(conn, parent, n=1)
        assert pages.fanout_of(conn, parent, None).vertex == "kids"
        with pytest.raises(InputRefused, match="nobody"):
            pages.fanout_of(conn, parent, "nobody")

    def test_runs_newest_first(self, conn: Connection) -> None:
        """Of all pipelines, with the newest on top; children are not among them."""
        make_pipeline(conn, "a")
        make_pipeline(conn, "b")
        made = [doors.start(conn, name, {}).id for name in ("a", "b", "a")]
        make_fanout(conn, made[0], n=3)
        assert [one["id"] for one in pages.runs(conn)] == made[::-1]
        assert [one["id"] for one in pages.runs(conn, pipeline="a")] == [made[2], made[0]]
        assert [one["id"] for one in pages.runs(conn, before=made[1])] == [made[0]]
        assert pages.runs(conn, statuses=["failed"]) == []
        assert [one["id"] for one in pages.runs(conn, statuses=["queued"], limit=1)] == [made[2]]


class TestWhy:
    def test_children_are_counted(self, conn: Connection, parent: str) -> None:
        """`children 312/2400` in short, the fan-out by name in long."""
        _, base = make_fanout(conn, parent, n=24)
        end(conn, base, range(3), "succeeded")
        conn.execute(
            "update suimon.runs set status = 'running', worker_id = 1 where id = %s", [parent]
        )
        conn.execute(
            "update suimon.runs set status = 'waiting', worker_id = null, reason = 'children'"
            " where id = %s",
            [parent],
        )
        assert why.short(read.run(conn, parent)) == "children 3/24"
        answer = why.why(conn, parent)
        assert '"kids": 3 of 24 ended' in answer["text"]

    def test_the_lane_names_its_holder(self, conn: Connection) -> None:
        """Who has the place, and how many stand before."""
        make_pipeline(conn, "one", concurrency=1)
        runs = [doors.start(conn, "one", {}).id for _ in range(3)]
        answer = why.why(conn, runs[2])
        assert answer["reason"] == "lane"
        assert [one["id"] for one in answer["holders"]] == [runs[0]]
        assert answer["before"] == 1

    def test_every_end_says_how(self, conn: Connection, parent: str) -> None:
        """A failed child tells its error."""
        _, base = make_fanout(conn, parent, n=1)
        end(conn, base, [0], "failed", "went wrong")
        assert "ValueError: went wrong" in why.why(conn, base)["text"]


class TestStatus:
    def test_an_empty_database_is_fine(self, conn: Connection) -> None:
        """Nothing to do is no problem."""
        assert health.overall(conn)["ok"]

    def test_runs_of_a_dead_worker_are_told(self, conn: Connection, parent: str) -> None:
        """Also when nobody is alive to rescue them."""
        _, base = make_fanout(conn, parent, n=3)
        end(conn, base, [1], "running")
        found = health.overall(conn)
        assert not found["ok"]
        assert found["orphaned_runs"] == 1
        assert any("dead workers" in problem for problem in found["problems"])
        assert any("no worker is alive" in problem for problem in found["problems"])

    def test_held_runs_are_told_with_their_reason(self, conn: Connection, parent: str) -> None:
        """A run whose code no worker has."""
        conn.execute(
            "update suimon.runs set admitted = false, reason = 'no_code:m:f' where id = %s",
            [parent],
        )
        (held,) = health.overall(conn)["held_back"]
        assert held == {"pool": "default", "reason": "no_code:m:f", "runs": 1, "more": False}
