"""→ queued: one key, one run, however many ask at once; and every answer says what happened."""

from __future__ import annotations

import threading

import pytest
from support.lab import Lab

from suimon.db.connect import Connection, connect
from suimon.errors import Conflict, UnknownPipeline
from suimon.run import doors, submit
from suimon.run.submit import Request, Submitted


def _ask(conn: Connection, given: bytes, key: str | None, pipeline: str = "p") -> Submitted:
    return submit.submit(conn, pipeline, [Request(given, key)])[0]


@pytest.fixture
def p(lab: Lab) -> Lab:
    """A pipeline without a limit."""
    lab.pipeline("p")
    return lab


@pytest.mark.slow
def test_a_hundred_submissions_with_one_key_make_one_run(p: Lab, db_url: str) -> None:
    """All at once, each on a connection of its own, half of them with a lane."""
    p.pipeline("serial", concurrency=1)
    for pipeline in ("p", "serial"):
        answers: list[Submitted] = []
        gate = threading.Barrier(50)

        def ask(pipeline: str = pipeline, gate: threading.Barrier = gate) -> None:
            with connect(db_url, name="asker") as conn:
                gate.wait(30)
                answers.extend([_ask(conn, b"{}", "the key", pipeline) for _ in range(2)])  # noqa: B023

        threads = [threading.Thread(target=ask) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(answers) == 100
        assert len({one.id for one in answers}) == 1
        assert sum(not one.duplicate for one in answers) == 1
    assert p.statuses() == {"queued": 2}


def test_a_duplicate_says_whether_its_input_was_the_same(p: Lab) -> None:
    """And is the existing run, with its status."""
    first = _ask(p.conn, b'{"a":1}', "k")
    same, other = _ask(p.conn, b'{"a":1}', "k"), _ask(p.conn, b'{"a":2}', "k")
    assert first == Submitted(first.id)
    assert (same.id, same.duplicate, same.same_input) == (first.id, True, True)
    assert (other.id, other.duplicate, other.same_input) == (first.id, True, False)
    assert _ask(p.conn, b'{"a":1}', None).id != first.id


def test_a_key_belongs_to_its_pipeline(p: Lab) -> None:
    """The same word elsewhere is another key."""
    p.pipeline("q")
    assert _ask(p.conn, b"{}", "k").id != _ask(p.conn, b"{}", "k", "q").id


def test_a_key_outlives_its_pruned_run(p: Lab) -> None:
    """A file that still lies in the inbox is not run again."""
    first = _ask(p.conn, b"{}", "k")
    p.sql("delete from suimon.runs")
    again = _ask(p.conn, b"{}", "k")
    assert (again.id, again.duplicate, again.pruned) == (first.id, True, True)
    assert p.statuses() == {}


def test_a_key_twice_in_one_batch_makes_one_run(p: Lab) -> None:
    """Answers stand at their requests' places."""
    answers = submit.submit(
        p.conn, "p", [Request(b"1", "k"), Request(b"2"), Request(b"3", "k"), Request(b"4", "l")]
    )
    assert answers[2].id == answers[0].id
    assert [one.duplicate for one in answers] == [False, False, True, False]
    assert answers[2].same_input is False
    assert len({one.id for one in answers}) == 3


def test_runs_of_a_batch_are_claimed_in_its_order(p: Lab) -> None:
    """Ids, ranks and places agree, over more than one statement's worth."""
    ids = p.submit_many("p", submit.BATCH + 10)
    assert ids == sorted(ids)
    worker = p.worker()
    assert [row.id for row in p.claim(worker, 50)] == ids[:50]


def test_a_large_input_comes_back_whole_and_a_duplicates_is_not_kept(p: Lab) -> None:
    """Above 8 KB it stands in payloads; a run that is not born leaves nothing there."""
    large = b'"' + b"x" * 9000 + b'"'
    first = _ask(p.conn, large, "k")
    _ask(p.conn, large, "k")
    assert p.sql("select run_id::text, name from suimon.payloads") == [(first.id, "input")]
    assert p.one("select input is null from suimon.runs")


def test_null_is_an_input(p: Lab) -> None:
    """JSON's null stands on the row; it is not the mark of a payload."""
    _ask(p.conn, b"null", None)
    assert p.one("select input = 'null'::jsonb from suimon.runs")


def test_an_unknown_pipeline_is_refused_with_what_was_meant(p: Lab) -> None:
    """Nothing is stored, its key neither."""
    with pytest.raises(UnknownPipeline) as caught:
        submit.target(p.conn, "pp")
    assert 'did you mean "p"' in caught.value.render()
    with pytest.raises(UnknownPipeline):
        _ask(p.conn, b"{}", None, "pp")
    assert p.statuses() == {}


def test_a_submission_rolled_back_leaves_nothing(p: Lab) -> None:
    """In a caller's transaction the run and its key live and die with it."""
    with p.conn.transaction(force_rollback=True):
        _ask(p.conn, b"{}", "k")
    assert p.statuses() == {}
    assert not _ask(p.conn, b"{}", "k").duplicate


@pytest.mark.parametrize("limit", [1, 3])
def test_a_person_starts_as_many_as_the_limit_lets_live(lab: Lab, limit: int) -> None:
    """The next one would wait: it is refused, naming the oldest, unless that is meant."""
    lab.pipeline("p", concurrency=limit)
    first = [doors.start(lab.conn, "p", i, queue=False).id for i in range(limit)]
    with pytest.raises(Conflict) as refused:
        doors.start(lab.conn, "p", 9, queue=False)
    assert refused.value.run_id == first[0]
    doors.start(lab.conn, "p", 9, queue=True)
    assert lab.one("select count(*) from suimon.runs") == limit + 1
