"""A pool's cap: how many runs all its workers together may hold, exactly; who is told of room."""

from __future__ import annotations

import threading

import pytest
from support.lab import Lab
from support.sessions import Sessions

from suimon.db.connect import connect
from suimon.errors import Conflict, InputRefused, NotThere
from suimon.run import pools, rescue
from suimon.worker import batch as batches
from suimon.worker import intake


@pytest.fixture
def worker(lab: Lab) -> int:
    """One worker, and a pipeline without a lane."""
    lab.pipeline("p")
    return lab.worker()


def _cap(lab: Lab, cap: int | None, pool: str = "default") -> None:
    pools.set_cap(lab.conn, pool, cap, actor="ann")


def test_a_claim_takes_no_more_than_the_cap_leaves(lab: Lab, worker: int) -> None:
    """Three of five, over two workers; each end makes room for one, in its own transaction."""
    lab.submit_many("p", 5)
    _cap(lab, 3)
    other = lab.worker()
    first = lab.claim(worker, 2, capped=True)
    assert len(first) == 2
    assert len(lab.claim(other, 10, capped=True)) == 1
    assert lab.claim(other, 10, capped=True) == []
    outcome = lab.end(worker, first[0], want=10, capped=True)
    assert (len(outcome.claimed), outcome.capped) == (1, True)
    assert pools.cap_of(lab.conn, "default") == (3, 3)


def test_who_does_not_know_of_a_cap_takes_nothing_and_learns_of_it(lab: Lab, worker: int) -> None:
    """A claim that has not locked the cap gives nothing; saying idle tells of it."""
    lab.submit("p")
    _cap(lab, 1)
    assert lab.claim(worker, 10) == []
    given = {"worker": worker, "worker_name": "w", "pool": "default", "n": 1}
    answer = batches.probe(lab.conn, **given, mark=None)
    assert answer.capped is True
    assert len(answer.outcome.claimed) == 1


def test_a_cap_that_is_gone_is_noticed_by_the_next_claim(lab: Lab, worker: int) -> None:
    """The worker still believes in it: it takes all, and is told."""
    lab.submit_many("p", 5)
    _cap(lab, 1)
    _cap(lab, None)
    outcome = lab.end(worker, [], want=10, capped=True)
    assert (len(outcome.claimed), outcome.capped) == (5, False)


def test_lowering_takes_nobodys_place(lab: Lab, worker: int) -> None:
    """Four are held when two are allowed: they go on, and the next comes when one is left."""
    lab.submit_many("p", 6)
    rows = lab.claim(worker, 4)
    _cap(lab, 2)
    for row in rows[:2]:
        assert lab.end(worker, row, want=10, capped=True).claimed == []
    assert len(lab.end(worker, rows[2], want=10, capped=True).claimed) == 1


def test_what_a_dead_worker_held_counts_until_it_is_rescued(lab: Lab, worker: int) -> None:
    """Its process may still be at work."""
    lab.submit_many("p", 3)
    _cap(lab, 2)
    lab.claim(worker, 2, capped=True)
    lab.kill(worker)
    other = lab.worker()
    assert lab.claim(other, 10, capped=True) == []
    assert rescue.rescue(lab.conn)[0] == 2
    assert len(lab.claim(other, 10, capped=True)) == 2


def test_other_pools_are_not_counted(lab: Lab, worker: int) -> None:
    """A cap of one; somebody else holds ten in a pool of its own."""
    lab.pipeline("far", pool="far")
    lab.submit_many("far", 10)
    lab.claim(lab.worker("far"), 10, pool="far")
    lab.submit_many("p", 2)
    _cap(lab, 1)
    assert len(lab.claim(worker, 10, capped=True)) == 1


def test_what_was_held_for_want_of_code_comes_back_within_the_cap(lab: Lab, worker: int) -> None:
    """Five runs wait for a worker that has the code; it takes two of them."""
    lab.submit_many("p", 5)
    rows = lab.claim(worker, 5)
    back = lab.batch(worker, [])
    back.held_back = [(row.id, row.claim_no, "no_code:m:f") for row in rows]
    batches.execute(lab.conn, back)
    _cap(lab, 2)
    given = {"worker": worker, "pool": "default", "reasons": ["no_code:m:f"], "n": 10}
    assert len(intake.take_back(lab.conn, **given)) == 2
    assert intake.take_back(lab.conn, **given) == []


def test_claims_at_the_same_moment_do_not_pass_the_cap(lab: Lab, worker: int, db_url: str) -> None:
    """Eight sessions claim one each, again and again, and hold what they get: five in all."""
    lab.submit_many("p", 50)
    _cap(lab, 5)
    workers = [lab.worker() for _ in range(8)]
    got: list[str] = []
    barrier = threading.Barrier(8)

    def claim(one: int) -> None:
        with connect(db_url, name="claim") as conn:
            mine = Lab(conn)
            barrier.wait(30)
            for _ in range(6):
                got.extend(row.id for row in mine.claim(one, 1, capped=True))

    threads = [threading.Thread(target=claim, args=(one,)) for one in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(got) == len(set(got)) == 5


def test_who_frees_a_place_and_does_not_take_it_wakes_another(lab: Lab, worker: int) -> None:
    """A worker that drains ends its run without a claim: the idle one is told."""
    lab.submit_many("p", 2)
    _cap(lab, 1)
    row = lab.claim(worker, 1, capped=True)[0]
    idle = lab.worker(idle=True)
    lab.conn.execute("listen suimon_wake")
    made = lab.batch(worker, [lab.ended(row)])
    made.capped = "default"
    batches.execute(lab.conn, made)
    said = [note.payload for note in lab.conn.notifies(timeout=5, stop_after=1)]
    assert said == [f"default {idle}"]


def test_an_edit_names_what_it_replaces_and_is_recorded(lab: Lab, worker: int) -> None:
    """The version rises also when the cap is taken away; a stale edit changes nothing."""
    found = pools.set_cap(lab.conn, "default", 3, actor="ann", why="tests")
    assert (found["cap"], found["version"]) == (3, 1)
    with pytest.raises(Conflict):
        pools.set_cap(lab.conn, "default", 4, actor="bob", expected=0)
    found = pools.set_cap(lab.conn, "default", None, actor="ann", expected=1)
    assert (found["cap"], found["version"]) == (None, 2)
    rows = lab.sql("select actor, action, target, detail->>'to' from suimon.audit order by id")
    assert rows == [("ann", "cap", "pool:default", "3"), ("ann", "cap", "pool:default", None)]


def test_a_pool_that_nobody_named_is_refused(lab: Lab, worker: int) -> None:
    """With the near name; and a cap of nought is told what to do instead."""
    with pytest.raises(NotThere, match="defult"):
        pools.set_cap(lab.conn, "defult", 3, actor="ann")
    with pytest.raises(InputRefused) as refused:
        pools.set_cap(lab.conn, "default", 0, actor="ann")
    assert "suimon pause pool default" in str(refused.value.hint)


def test_a_first_cap_waits_for_the_claim_that_does_not_know_of_it(
    lab: Lab, worker: int, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What that one takes is counted by the first claim under the cap."""
    monkeypatch.setattr(pools, "PATIENCE_MS", 60_000)
    lab.submit_many("p", 8)
    a, b = sessions("a", "b")
    with a.transaction():
        held = Lab(a.conn).claim(worker, 4)
        setting = b.start(lambda conn: pools.set_cap(conn, "default", 2, actor="ann"))
        b.until_blocked()
    assert setting.done_in()["cap"] == 2
    assert len(held) == 4
    assert lab.claim(lab.worker(), 10, capped=True) == []


def test_a_first_cap_does_not_wait_for_ever(
    lab: Lab, worker: int, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup has read the table and stays open: the cap is set all the same."""
    monkeypatch.setattr(pools, "PATIENCE_MS", 50)
    (backup,) = sessions("backup")
    with backup.transaction():
        backup.conn.execute("select count(*) from suimon.pool_caps")
        assert pools.set_cap(lab.conn, "default", 2, actor="ann")["cap"] == 2
