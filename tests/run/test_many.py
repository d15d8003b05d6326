"""Many runs at once: what a filter means, what it refuses, and how far it went."""

from __future__ import annotations

import pytest
from support.lab import SPAWN_GRAPH, Lab

from suimon.errors import InputRefused, RunNotFound, UnknownPipeline
from suimon.run import audit, many

BAD = ("failed", "timed_out", "cancelled")
LIVE = ("queued", "running", "waiting")


def chosen(lab: Lab, text: str, only: tuple[str, ...] = BAD) -> many.Chosen:
    return many.choose(lab.conn, many.parse(lab.conn, text), only=only)


def ends(lab: Lab, pipeline: str, n: int, status: str) -> list[str]:
    worker = lab.worker()
    runs = lab.submit_many(pipeline, n)
    rows = [row for row in lab.claim(worker, 10_000) if row.id in runs]
    lab.end(worker, rows, status)
    return runs


@pytest.mark.parametrize("text", ["", "  ", ",", " , "])
def test_an_empty_filter_is_refused(lab: Lab, text: str) -> None:
    with pytest.raises(InputRefused, match="the filter is empty"):
        many.parse(lab.conn, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("foo=1", "known: error, parent, pipeline, since, status, until, vertex"),
        ("statu=failed", 'did you mean "status"'),
        ("status", "Write it like"),
        ("status=", "Write it like"),
        ("status=faild", 'did you mean "failed"'),
        ("status=failed,status=failed", "failed|timed_out"),
        ("since=yesterday", "2h, 7d"),
        ("since=2030-01-31T06:00:00", "2h, 7d"),
        ("vertex=v", "parent=RUN"),
    ],
)
def test_a_filter_that_says_nothing_sure_is_refused(lab: Lab, text: str, says: str) -> None:
    with pytest.raises(InputRefused) as caught:
        many.parse(lab.conn, text)
    assert says in caught.value.render()


def test_names_in_a_filter_must_exist(lab: Lab) -> None:
    lab.pipeline("p")
    with pytest.raises(UnknownPipeline):
        many.parse(lab.conn, "pipeline=q")
    with pytest.raises(RunNotFound):
        many.parse(lab.conn, "parent=0123456789")


def test_what_a_filter_finds(lab: Lab) -> None:
    """By pipeline, state, time and error; only what the act can be done to."""
    lab.pipeline("p")
    lab.pipeline("q")
    failed = ends(lab, "p", 3, "failed")
    timed = ends(lab, "p", 2, "timed_out")
    other = ends(lab, "q", 1, "failed")
    ends(lab, "p", 2, "succeeded")
    lab.sql('update suimon.runs set error = \'{"type": "Odd"}\' where id = %s', failed[0])
    lab.sql(
        "update suimon.runs set created_at = now() - interval '3 hours' where id = %s", failed[1]
    )
    assert set(chosen(lab, "pipeline=p").ids) == {*failed, *timed}
    assert set(chosen(lab, "status=failed").ids) == {*failed, *other}
    assert set(chosen(lab, "pipeline=p,status=failed|timed_out,since=2h").ids) == {
        failed[0], failed[2], *timed,
    }  # fmt: skip
    assert chosen(lab, "until=2h").ids == [failed[1]]
    assert chosen(lab, "error=Odd").ids == [failed[0]]
    assert chosen(lab, "status=succeeded").ids == []
    shown = chosen(lab, "pipeline=p").to_json()
    assert shown["by"] == [
        {"pipeline": "p", "status": "failed", "runs": 3},
        {"pipeline": "p", "status": "timed_out", "runs": 2},
    ]


def test_children_are_chosen_by_their_parent(lab: Lab) -> None:
    lab.pipeline("trees", SPAWN_GRAPH)
    worker = lab.worker()
    parent = lab.fan_out(worker, "trees", 4)
    rows = lab.claim(worker, 4)
    lab.end(worker, rows[:3], "failed")
    found = chosen(lab, f"parent={parent.id},status=failed").ids
    assert found == [parent.child_id(i) for i in range(3)]
    assert chosen(lab, f"parent={parent.id},vertex=other").ids == []


def test_retry_of_many_in_batches(lab: Lab) -> None:
    """All of them, in batches of 100, with one record that comes before the first batch."""
    lab.pipeline("p")
    ends(lab, "p", 250, "failed")
    told: list[tuple[int, int]] = []
    done = many.retry_all(
        lab.conn, chosen(lab, "pipeline=p"), actor="ada", why="fixed",
        each=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert (done.done, done.refused) == (250, 0)
    assert told == [(100, 250), (200, 250), (250, 250)]
    assert lab.statuses() == {"queued": 250}
    record = audit.listed(lab.conn, action="retry_many")[0]
    assert (record["actor"], record["target"]) == ("ada", "filter:pipeline=p")
    assert record["detail"]["runs"] == 250


def test_what_has_changed_meanwhile_is_left_out_and_told(lab: Lab) -> None:
    lab.pipeline("p")
    runs = ends(lab, "p", 5, "failed")
    found = chosen(lab, "pipeline=p")
    lab.sql("update suimon.runs set status = 'queued', finished_at = null where id = %s", runs[2])
    done = many.retry_all(lab.conn, found, actor="ada")
    assert (done.done, done.refused) == (4, 1)
    assert done.why[0]["id"] == runs[2]
    assert "queued" in done.why[0]["message"]


def test_retry_of_many_that_failed_by_their_children(lab: Lab) -> None:
    """Alone they would only fail again: their bad children are retried, and they merge again."""
    lab.pipeline("trees", SPAWN_GRAPH)
    worker = lab.worker()
    parent = lab.fan_out(worker, "trees", 3)
    rows = lab.claim(worker, 3)
    lab.end(worker, rows[:1], "failed")
    lab.end(worker, rows[1:])
    lab.end(worker, lab.claim_run(worker, parent.id), "failed")
    done = many.retry_all(lab.conn, chosen(lab, "pipeline=trees"), actor="ada")
    assert (done.done, done.refused) == (1, 0)
    assert lab.status(parent.child_id(0)) == "queued"
    assert lab.fanout(parent)["state"] == "open"


def test_cancel_of_many(lab: Lab) -> None:
    """Those that have ended meanwhile are counted as refused."""
    lab.pipeline("p")
    runs = lab.submit_many("p", 120)
    found = chosen(lab, "pipeline=p", LIVE)
    worker = lab.worker()
    lab.end(worker, lab.claim_run(worker, runs[0]))
    done = many.cancel_all(lab.conn, found, actor="ada", why="too many")
    assert (done.done, done.refused) == (119, 1)
    assert lab.statuses() == {"cancelled": 119, "succeeded": 1}


def test_the_bound(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond it is left alone, and told."""
    monkeypatch.setattr(many, "MANY", 7)
    lab.pipeline("p")
    ends(lab, "p", 9, "failed")
    found = chosen(lab, "pipeline=p")
    assert (len(found.ids), found.more) == (7, True)
