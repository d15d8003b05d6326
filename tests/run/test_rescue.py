"""The runs of the dead: taken back once, counted, and in the end not tried any more."""

from __future__ import annotations

import orjson
import pytest
from support.lab import Lab

from suimon.run import rescue
from suimon.worker import batch as batches


@pytest.fixture
def p(lab: Lab) -> Lab:
    """A pipeline without a limit."""
    lab.pipeline("p")
    return lab


def test_a_dead_workers_runs_go_back_with_one_interruption(p: Lab) -> None:
    """The try is kept with the worker's name; the next one is another try."""
    p.submit_many("p", 3)
    worker = p.worker(name="lost")
    p.claim(worker, 2)
    p.kill(worker)
    assert rescue.rescue(p.conn)[0] == 2
    assert (
        p.sql("select how, worker_name, attempt from suimon.attempts")
        == [("interrupted", "lost", 1)] * 2
    )
    rows = p.claim(p.worker(), 3)
    assert sorted((row.attempt, row.interruptions) for row in rows) == [(1, 0), (2, 1), (2, 1)]


def test_a_live_workers_runs_are_left_alone(p: Lab) -> None:
    """However old its beat may be: only the flag counts."""
    p.submit("p")
    worker = p.worker()
    p.claim(worker)
    p.sql("update suimon.workers set beat_at = beat_at - interval '1 day'")
    assert rescue.rescue(p.conn)[0] == 0


def test_more_than_a_batch_is_rescued_in_batches(p: Lab) -> None:
    """500 a transaction, until none is left."""
    p.submit_many("p", 1100)
    worker = p.worker()
    p.claim(worker, 2000)
    p.kill(worker)
    assert rescue.rescue(p.conn)[0] == 1100
    assert p.statuses() == {"queued": 1100}


@pytest.mark.parametrize("where", ["worker", "slot"])
def test_a_run_that_takes_too_many_along_is_poisoned(p: Lab, where: str) -> None:
    """After its fourth death it fails, and names the workers; the last tries were alone."""
    run = p.submit("p")
    alone = []
    for number in range(4):
        worker = p.worker(name=f"w{number}")
        row = p.claim(worker)[0]
        alone.append(row.alone)
        if where == "worker":
            p.kill(worker)
            rescue.rescue(p.conn)
        else:
            made = p.batch(worker, [])
            made.interrupted = [(run, row.claim_no)]
            batches.execute(p.conn, made)
    assert p.status(run) == "failed"
    text = p.one("select error::text from suimon.runs")
    error = orjson.loads(text)
    assert error["type"] == "Poisoned"
    assert error["workers"] == ["w0", "w1", "w2", "w3"]
    assert alone[-1] == (rescue.ALONE_IN_WORKER if where == "worker" else rescue.ALONE_IN_SLOT)
    assert alone[0] == 0


def test_a_poisoned_child_counts_in_its_fan_out(p: Lab) -> None:
    """And may settle it: its parent is woken by the rescue."""
    worker = p.worker()
    parent = p.fan_out(worker, "p", 1)
    p.claim(worker)
    p.sql("update suimon.runs set interruptions = 3 where fanout_id = %s", parent.fanout.id)
    p.kill(worker)
    _, follows = rescue.rescue(p.conn)
    assert "default" in follows.pools
    assert p.tally(parent) == (0, 1, 0, 0)
    assert p.status(parent.id) == "queued"


def test_interruptions_belong_to_the_step_under_way(p: Lab) -> None:
    """A recorded step starts the next one from none."""
    from suimon.run.step import Step

    p.submit("p")
    worker = p.worker()
    p.claim(worker)
    p.kill(worker)
    rescue.rescue(p.conn)
    other = p.worker()
    row = p.claim(other)[0]
    made = p.batch(other, [])
    made.steps = [Step(row.id, row.claim_no, "v", "succeeded", 1, "1", "")]
    assert batches.execute(p.conn, made).steps == {(row.id, "v")}
    assert p.sql("select attempt, interruptions from suimon.runs") == [(1, 0)]
    assert p.sql("select vertex, attempt from suimon.steps") == [("v", 2)]


def test_a_slots_death_takes_back_only_what_is_still_held(p: Lab) -> None:
    """The claim number is the fence here too."""
    p.submit("p")
    worker = p.worker()
    row = p.claim(worker)[0]
    made = p.batch(worker, [])
    made.interrupted = [(row.id, row.claim_no - 1)]
    batches.execute(p.conn, made)
    assert p.status(row.id) == "running"


def test_beats_show_the_living_and_who_was_asked_to_cancel(p: Lab) -> None:
    """One statement: the own beat, the others', and the question."""
    worker, other, dead = p.worker(), p.worker(), p.worker()
    p.kill(dead)
    alive, beats = rescue.beat(p.conn, worker, draining=False)
    assert alive
    assert {b.worker for b in beats} == {worker, other}
    assert [b.worker for b in beats if b.mine] == [worker]
    p.submit("p")
    row = p.claim(worker)[0]
    p.sql("update suimon.runs set cancel_requested = true where id = %s", row.id)
    _, beats = rescue.beat(p.conn, worker, draining=True)
    assert [b.asked_to_cancel for b in beats if b.mine] == [True]
    assert p.one("select draining from suimon.workers where id = %s", worker)
    assert rescue.beat(p.conn, dead, draining=False)[0] is False
