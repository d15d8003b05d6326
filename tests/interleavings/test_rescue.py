"""Findings 6 and 8, and what two rescuers and a late finish may do to each other."""

from __future__ import annotations

import pytest
from support.lab import Lab
from support.sessions import Sessions

from suimon.db.connect import connect
from suimon.db.statements import Statements
from suimon.run import claim, rescue
from suimon.run.claim import Claimed
from suimon.worker import batch as batches


@pytest.fixture
def held(lab: Lab) -> tuple[int, list[Claimed]]:
    """A worker with two runs."""
    lab.pipeline("p")
    lab.submit_many("p", 2)
    worker = lab.worker(name="gone")
    return worker, sorted(lab.claim(worker, 2), key=lambda row: row.id)


def test_06_claims_whose_answer_was_lost_are_found_and_released(
    lab: Lab, held: tuple[int, list[Claimed]]
) -> None:
    """Holdings less what the worker knows of go back, uncounted; the fence never comes again."""
    worker, (known, lost) = held
    theirs = {(i, c) for i, c, _ in claim.holdings(lab.conn, worker)}
    unknown = theirs - {(known.id, known.claim_no)}
    assert unknown == {(lost.id, lost.claim_no)}
    assert claim.release(lab.conn, worker, list(unknown)) == [(lost.id, "default")]
    again = lab.claim(worker, 10)
    assert [(row.id, row.attempt, row.claim_no) for row in again] == [(lost.id, 1, 2)]


def test_06_a_batch_that_is_sent_twice_counts_once(lab: Lab) -> None:
    """Nobody knows whether the lost commit happened: the second time nothing is ours."""
    lab.pipeline("parents")
    worker = lab.worker()
    parent = lab.fan_out(worker, "parents", 3)
    rows = lab.claim(worker, 2)
    ends = lab.batch(worker, [lab.ended(row) for row in rows])
    assert len(batches.execute(lab.conn, ends).ended) == 2
    assert batches.execute(lab.conn, ends).ended == set()
    assert lab.tally(parent) == (2, 0, 0, 0)


@pytest.mark.parametrize("beat_first", [True, False])
def test_08_a_beat_that_races_with_the_burial(
    lab: Lab, sessions: Sessions, beat_first: bool
) -> None:
    """Whoever is first wins: a beat saves the worker, a burial makes the beat find no row."""
    worker = lab.worker()
    one, two = sessions("one", "two")
    acts = [
        lambda conn: rescue.beat(conn, worker, draining=False)[0],
        lambda conn: rescue.bury(conn, worker, 0),
    ]
    first, second = acts if beat_first else acts[::-1]
    with one.transaction():
        assert first(one.conn)
        job = two.start(second)
        two.until_blocked()
    assert not job.done_in(), "the second finds nothing to do"
    assert lab.one("select dead from suimon.workers") is not beat_first


def test_08_a_claim_that_lands_after_the_burial_is_rescued_too(lab: Lab) -> None:
    """Rescue goes by state, not by event: a frozen worker's claim has a dead worker's id."""
    lab.pipeline("p")
    lab.submit("p")
    worker = lab.worker()
    assert rescue.bury(lab.conn, worker, 0)
    assert rescue.rescue(lab.conn)[0] == 0
    assert len(lab.claim(worker)) == 1
    assert rescue.rescue(lab.conn)[0] == 1
    assert lab.statuses() == {"queued": 1}


def test_runs_of_a_worker_without_a_row_are_rescued(
    lab: Lab, held: tuple[int, list[Claimed]]
) -> None:
    """Missing counts as dead."""
    lab.sql("delete from suimon.workers")
    assert rescue.rescue(lab.conn)[0] == 2
    assert lab.statuses() == {"queued": 2}


def test_a_late_finish_is_refused_and_counts_nothing(
    lab: Lab, sessions: Sessions, held: tuple[int, list[Claimed]]
) -> None:
    """It waits for the rescue, then finds that the run is not its own any more."""
    worker, rows = held
    lab.kill(worker)
    rescuer, late = sessions("rescuer", "late")
    with rescuer.transaction():
        rescue.rescue(rescuer.conn)
        ends = lab.batch(worker, [lab.ended(row) for row in rows])
        job = late.start(lambda conn: batches.execute(conn, ends))
        late.until_blocked()
    assert job.done_in().ended == set()
    assert lab.statuses() == {"queued": 2}
    other = lab.worker()
    assert {row.attempt for row in lab.claim(other, 5)} == {2}
    assert batches.execute(lab.conn, ends).ended == set(), "nor when somebody else has it"


def test_an_early_finish_is_not_rescued(
    lab: Lab, sessions: Sessions, held: tuple[int, list[Claimed]]
) -> None:
    """The other order: what has ended is left alone."""
    worker, rows = held
    lab.kill(worker)
    finisher, rescuer = sessions("finisher", "rescuer")
    with finisher.transaction():
        batches.execute(finisher.conn, lab.batch(worker, [lab.ended(rows[0])]))
        job = rescuer.start(rescue.rescue)
        rescuer.until_blocked()
    assert job.done_in()[0] == 1
    assert lab.status(rows[0].id) == "succeeded"
    assert lab.status(rows[1].id) == "queued"


def _meanwhile(lab: Lab, sessions: Sessions, worker: int, rows: list[Claimed], act: object) -> int:
    """`act` has seen both runs at the dead worker and waits for the first; meanwhile the second is
    rescued by another and claimed by a live worker, whose id is returned.
    """
    lab.kill(worker)
    holder, rescuer = sessions("holder", "rescuer")
    with holder.transaction():
        holder.conn.execute("select from suimon.runs where id = %s for update", (rows[0].id,))
        job = rescuer.start(act)  # type: ignore[arg-type]
        rescuer.until_blocked()
        fence = [(rows[1].id, rows[1].claim_no)]
        back = rescue.interrupted(
            rescue.send_interrupt(lab.conn, fence, worker=None, what="a worker", alone=0)
        )
        assert [one.id for one in back] == [rows[1].id]
        live = lab.worker(name="live")
        assert [row.id for row in lab.claim(live)] == [rows[1].id]
    job.done_in()
    return live


def test_two_rescuers_take_nothing_from_a_live_worker(
    lab: Lab, sessions: Sessions, held: tuple[int, list[Claimed]]
) -> None:
    """The second one's list is old: the claim number it saw is the fence."""
    worker, rows = held
    live = _meanwhile(lab, sessions, worker, rows, rescue.rescue)
    found = lab.sql(
        "select status::text, worker_id, interruptions from suimon.runs where id = %s", rows[1].id
    )
    assert found == [("running", live, 1)]
    assert lab.one("select count(*) from suimon.attempts where how = 'interrupted'") == 2


def test_without_the_fence_the_second_rescuer_does(
    lab: Lab, sessions: Sessions, broken: Statements, held: tuple[int, list[Claimed]]
) -> None:
    """Re-checked after its wait, the outer join with the dead worker's row finds no worker."""
    worker, rows = held
    ids = {"ids": [row.id for row in rows]}
    _meanwhile(
        lab, sessions, worker, rows,
        lambda conn: conn.execute(broken.interrupt_unfenced, ids).fetchall(),
    )  # fmt: skip
    assert lab.status(rows[1].id) == "queued", "torn from the live worker's hands"


def test_two_rescuers_at_once_rescue_once(
    lab: Lab, db_url: str, sessions: Sessions, held: tuple[int, list[Claimed]]
) -> None:
    """The one that waited finds nobody left to rescue; each try is kept once."""
    worker, _ = held
    lab.kill(worker)
    one, two = sessions("one", "two")
    with one.transaction():
        assert rescue.rescue(one.conn)[0] == 2
        job = two.start(rescue.rescue)
        two.until_blocked()
    assert job.done_in()[0] == 0
    with connect(db_url, name="look") as conn:
        assert conn.execute("select sum(interruptions) from suimon.runs").fetchone() == (2,)
    assert {row.attempt for row in lab.claim(lab.worker(), 5)} == {2}
