"""Findings 7 and 9: what a claim, a submit and a finish touch where a long transaction elsewhere
keeps 100,000 dead index entries, and behind one busy lane. By buffers, with the floor and without.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from support.database import Databases
from support.lab import Lab
from support.plans import Plan, Recorder, explain, new_runs

from suimon.db.connect import connect
from suimon.run import claim, finish, lane, submit
from suimon.run.claim import Floors
from suimon.worker import batch as batches
from suimon.worker.batch import Want

ROWS = 100_000
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("dead entries"),
    pytest.mark.long,
]


@dataclass(slots=True)
class Place:
    """A database with many rows, and the floors its worker has learned."""

    lab: Lab
    worker: int
    floors: list[int]

    def claim(self, floors: list[int], n: int = 100) -> Plan:
        params = {f"floor{p}": floors[p] for p in range(4)}
        given = {"pool": "default", "worker": self.worker, "n": n, "capped": False, **params}
        return explain(self.lab.conn, claim.SQL.claim, given)


def _base(lab: Lab) -> Place:
    """As many rows, all finished long ago and vacuumed, and one that can be claimed."""
    lab.pipeline("p")
    lab.submit_many("p", ROWS)
    lab.sql("alter table suimon.runs disable trigger user")
    lab.sql("update suimon.runs set status = 'succeeded', finished_at = clock_timestamp()")
    lab.sql("alter table suimon.runs enable trigger user")
    lab.sql("vacuum full analyze suimon.runs")
    lab.submit("p")
    return Place(lab, lab.worker(), [0, 0, 0, 0])


def _drained(lab: Lab) -> Place:
    """Claimed and finished by a worker that publishes its head, all of them; one more comes."""
    lab.pipeline("p")
    lab.submit_many("p", ROWS)
    worker, floors, now = lab.worker(), Floors(), 0.0
    rows: list[claim.Claimed] = []
    done = 0
    while done < ROWS:
        now += 0.06
        where, unfloored = floors.start(now, unfloored=not done)
        made = lab.batch(worker, [lab.ended(row) for row in rows])
        made.want = Want("default", 250, where, unfloored)
        rows = batches.execute(lab.conn, made).claimed
        done += len(rows)
        floors.learn(now, rows, unfloored=unfloored, took=0.1)
        claim.publish(lab.conn, "default", floors.heads_to_publish(now, rows))
    lab.end(worker, rows)
    lab.submit("p")
    return Place(lab, worker, floors.floors)


def _behind_a_lane(lab: Lab) -> Place:
    """All of them stand behind one busy lane; another pipeline has one that can be claimed."""
    lab.pipeline("p")
    lab.pipeline("serial", concurrency=1)
    lab.submit_many("serial", ROWS)
    worker = lab.worker()
    assert len(lab.claim(worker, 10)) == 1
    lab.submit("p")
    return Place(lab, worker, [0, 0, 0, 0])


@pytest.fixture(scope="module")
def places(databases: Databases) -> Iterator[dict[str, Place]]:
    """The databases; in one of the two drained ones somebody has held a snapshot all the time."""
    made: dict[str, Place] = {}
    with contextlib.ExitStack() as stack:
        for name, make in (
            ("base", _base),
            ("drained", _drained),
            ("held", _drained),
            ("lane", _behind_a_lane),
        ):
            url = stack.enter_context(databases.fresh())
            conn = stack.enter_context(connect(url, name=name))
            if name == "held":
                other = stack.enter_context(connect(url, name="snapshot"))
                other.execute("begin isolation level repeatable read")
                other.execute("select count(*) from suimon.runs")
            made[name] = make(Lab(conn))
        yield made


def test_09_a_claim_after_100000_finished_ones_touches_little_more(
    places: dict[str, Place],
) -> None:
    """With its floor at most twice what it touches in a table where nobody was ever claimed."""
    base, place = places["base"].claim([0, 0, 0, 0]), places["drained"]
    place.claim(place.floors)  # the first one to come by marks the entries as dead
    found = place.claim(place.floors)
    assert found.tree["Actual Rows"] == base.tree["Actual Rows"] == 1
    assert found.buffers <= 2 * base.buffers, (found.buffers, base.buffers)


def test_09_under_a_held_snapshot_the_floor_saves_the_walk(places: dict[str, Place]) -> None:
    """Dead entries cannot be marked then: what lies below the floor is not met, the rest is."""
    place = places["held"]
    floored, unfloored = place.claim(place.floors), place.claim([0, 0, 0, 0])
    assert floored.tree["Actual Rows"] == unfloored.tree["Actual Rows"] == 1
    assert unfloored.buffers > 10 * floored.buffers, (unfloored.buffers, floored.buffers)


def test_a_claim_beside_100000_runs_of_one_busy_lane_touches_little_more(
    places: dict[str, Place],
) -> None:
    """They are not in its index at all."""
    base = places["base"].claim([0, 0, 0, 0])
    found = places["lane"].claim([0, 0, 0, 0])
    assert found.tree["Actual Rows"] == 1
    assert found.buffers <= 2 * base.buffers, (found.buffers, base.buffers)


def _submit(place: Place, text: str | None = None) -> Plan:
    recorder = Recorder(place.lab.conn)
    with place.lab.conn.transaction(force_rollback=True):
        place.lab.submit("p")
    inside = text or new_runs(place.lab.conn)
    return explain(place.lab.conn, inside, recorder.params(submit.SQL.submit))


def test_09_a_submit_reads_the_published_head_and_not_the_queues(places: dict[str, Place]) -> None:
    """The pools row says where the queue begins, and the last rank is looked for from there on."""
    base, found = _submit(places["base"]), _submit(places["held"])
    assert found.buffers <= 2 * base.buffers + 10, (found.buffers, base.buffers)


def test_09_without_the_head_a_submit_walks_over_the_dead(places: dict[str, Place]) -> None:
    """The pipeline's last queued rank, looked for from the start."""
    lab = places["held"].lab
    text = new_runs(lab.conn).replace("and r.rank >= t.head", "")
    assert text != new_runs(lab.conn)
    with lab.conn.transaction(force_rollback=True):
        lab.end(places["held"].worker, lab.claim(places["held"].worker, 10))
        blind, seeing = _submit(places["held"], text), _submit(places["held"])
    assert blind.buffers > 10 * seeing.buffers, (blind.buffers, seeing.buffers)


def _admit(place: Place) -> Plan:
    """The running one of the lane ends, and the next is let in."""
    lab = place.lab
    with lab.conn.transaction(force_rollback=True):
        lab.sql(
            "update suimon.runs set status = 'succeeded', worker_id = null, finished_at = now()"
            " where status = 'running'"
        )
        return explain(lab.conn, lane.SQL.admit, {"lanes": ["pipeline:serial"]})


def test_an_admission_before_100000_waiting_runs_touches_few_pages(
    places: dict[str, Place],
) -> None:
    """One is let in; the others are not looked at."""
    found = _admit(places["lane"])
    assert found.tree["Actual Rows"] == 1
    assert found.buffers < 120, found.buffers


def test_07_without_the_fix_the_finish_loops_over_what_its_worker_holds(
    places: dict[str, Place],
) -> None:
    """With plain predicates the planner takes the index of rescue, in which it sees one row."""
    plain = finish.SQL.finish.replace("between 'running' and 'running'", "= 'running'")
    plain = plain.replace("r.worker_id + 0", "r.worker_id")
    place = places["base"]
    lab = place.lab
    with lab.conn.transaction(force_rollback=True):
        lab.submit_many("p", 500)
        rows = lab.claim(place.worker, 500)
        recorder = Recorder(lab.conn)
        with lab.conn.transaction(force_rollback=True):
            lab.end(place.worker, rows)
        params = recorder.params(finish.SQL.finish)
        found = explain(lab.conn, plain, params)
        mended = explain(lab.conn, finish.SQL.finish, params)
    removed = [
        sum(
            n.get(f"Rows Removed by {which}", 0)
            for n in plan.nodes()
            for which in ("Join Filter", "Filter")
        )
        for plan in (found, mended)
    ]
    assert "runs_held" in found.on("runs"), "otherwise this test proves nothing any more"
    assert mended.on("runs") == {"runs_pkey"}
    assert removed[0] > 100_000
    assert removed[1] <= 2 * len(rows)
