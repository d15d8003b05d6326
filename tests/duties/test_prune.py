"""Retention: what may go goes, from the leaves up; what must stay stays; a crash loses nothing."""

from __future__ import annotations

from typing import Any

import pytest
from support.contents import wrong_counts
from support.lab import SPAWN_GRAPH, Lab
from support.pruning import ended, furnish, grow_old, left, older_id, tree, unreachable
from support.sessions import Sessions

from suimon.db.connect import Connection
from suimon.duties import prune, sweep
from suimon.errors import Conflict
from suimon.run import operate, retry, skip, submit
from suimon.run.submit import Request


def test_without_a_word_nothing_goes(lab: Lab) -> None:
    """A pipeline without keep keeps everything."""
    lab.pipeline("p")
    runs = ended(lab, "p", 3)
    grow_old(lab, *runs, days=5000)
    assert prune.prune(lab.conn).runs == 0
    assert lab.statuses() == {"succeeded": 3}
    assert prune.unlimited(lab.conn) == ["p"]


def test_by_age_what_ended_before(lab: Lab) -> None:
    """Counted from the end; a run that has not ended stays however old it is."""
    lab.pipeline("p", keep={"age": "1d"})
    old, young = ended(lab, "p", 2)
    waiting = lab.submit("p")
    # its id is of now, so that it counts as young; one that began two days ago has an older id
    aged = older_id(lab, old)
    lab.sql(
        "update suimon.runs set created_at = created_at - interval '9 days' where id = %s", waiting
    )
    done = prune.prune(lab.conn)
    assert (done.roots, done.runs, done.left) == (1, 1, False)
    assert {row[0] for row in lab.sql("select id::text from suimon.runs")} == {young, waiting}
    assert aged


def test_by_count_the_newest_stay(lab: Lab) -> None:
    """Unfinished ones are not counted."""
    lab.pipeline("p", keep={"count": 2})
    runs = ended(lab, "p", 5)
    live = lab.submit("p")
    assert prune.preview(lab.conn) == [
        {"pipeline": "p", "keep_s": None, "keep_count": 2, "roots": 3, "children": 0}
    ]
    assert prune.prune(lab.conn).by_pipeline == {"p": 3}
    found = {row[0] for row in lab.sql("select id::text from suimon.runs")}
    assert found == {runs[3], runs[4], live}


def test_with_both_a_run_goes_when_one_says_so(lab: Lab) -> None:
    """And is counted once in the preview."""
    lab.pipeline("p", keep={"age": "1d", "count": 3})
    runs = ended(lab, "p", 5)
    for run in runs[:2]:
        older_id(lab, run)
    assert [one["roots"] for one in prune.preview(lab.conn)] == [2]
    lab.pipeline("p", keep={"age": "1d", "count": 2})
    assert [one["roots"] for one in prune.preview(lab.conn)] == [3]
    assert prune.prune(lab.conn).roots == 3


def test_a_tree_goes_with_all_that_hangs_on_it(lab: Lab) -> None:
    """Children, their steps, attempts, payloads, logs and the rest; nothing of other runs."""
    lab.pipeline("trees", SPAWN_GRAPH, keep={"count": 0})
    lab.pipeline("p")
    (kept,) = ended(lab, "p", 1)
    furnish(lab, kept)
    before = left(lab)
    parent = tree(lab, n=3)
    for run in (parent.id, *(parent.child_id(i) for i in range(3))):
        furnish(lab, run)
    done = prune.prune(lab.conn)
    assert (done.roots, done.runs) == (1, 4)
    assert left(lab) == before
    assert not unreachable(lab)
    assert not wrong_counts(lab.conn)


def test_batches_are_bounded(lab: Lab) -> None:
    """1,201 children go in batches of at most 500; a turn stops when its time is up."""
    lab.pipeline("trees", SPAWN_GRAPH, keep={"count": 0})
    tree(lab, n=1201)
    seen: list[int] = []
    done = prune.prune(lab.conn, each=lambda so_far: seen.append(so_far.runs))
    assert done.runs == 1202
    assert max(b - a for a, b in zip([0, *seen], seen, strict=False)) <= 500
    tree(lab, n=600)
    first = prune.prune(lab.conn, seconds=0.0)
    assert first.left
    assert first.runs == 500
    assert not unreachable(lab)
    assert prune.prune(lab.conn).runs == 101
    assert left(lab) == {}


def test_nested_fan_outs_go_from_the_leaves(lab: Lab) -> None:
    """Grandchildren first; at every moment all that is left can be reached from its root."""
    lab.pipeline("trees", SPAWN_GRAPH, keep={"count": 0})
    lab.pipeline("inner", SPAWN_GRAPH)
    worker = lab.worker()
    top = lab.parent(worker, "trees", to="inner")
    lab.chunk(top, 0, 2)
    lab.seal(top, 2)
    lab.spawned(top)
    assert lab.park(top)
    for row in lab.claim(worker, 2):
        below = lab.parent(worker, "inner", row=row)
        lab.chunk(below, 0, 2)
        lab.seal(below, 2)
        lab.spawned(below)
        assert lab.park(below)
    for _ in range(4):
        if rows := lab.claim(worker, 100):
            lab.end(worker, rows)
    assert lab.statuses() == {"succeeded": 7}
    wrong: list[Any] = []
    done = prune.prune(lab.conn, each=lambda _: wrong.extend(unreachable(lab)))
    assert (done.runs, wrong) == (7, [])
    assert left(lab) == {}


def test_a_child_that_still_runs_keeps_its_root(lab: Lab) -> None:
    """What is above a live run stays; the next turn goes on, and nothing is lost between."""
    lab.pipeline("trees", SPAWN_GRAPH, keep={"count": 0})
    parent = tree(lab, n=3)
    child = parent.child_id(1)
    lab.sql("set session_replication_role = replica")  # past the guard of the edges
    lab.sql(
        "update suimon.runs set status = 'waiting', reason = 'timer', finished_at = null"
        " where id = %s",
        child,
    )
    lab.sql("set session_replication_role = origin")
    done = prune.prune(lab.conn)
    assert (done.roots, done.runs, done.waits, done.left) == (0, 2, 1, True)
    assert not unreachable(lab)
    lab.sql("set session_replication_role = replica")
    lab.sql(
        "update suimon.runs set status = 'failed', reason = null, finished_at = now()"
        " where id = %s",
        child,
    )
    lab.sql("set session_replication_role = origin")
    assert prune.prune(lab.conn).runs == 2
    assert left(lab) == {}


def test_keys_outlive_their_runs(lab: Lab) -> None:
    """The same key again: duplicate, pruned; and nothing runs."""
    lab.pipeline("p", keep={"count": 0})
    run = lab.submit("p", key="file-1")
    worker = lab.worker()
    lab.end(worker, lab.claim_run(worker, run))
    assert prune.prune(lab.conn).roots == 1
    again = submit.submit(lab.conn, "p", [Request(b"{}", "file-1")])[0]
    assert (again.id, again.duplicate, again.pruned, again.same_input) == (run, True, True, True)
    assert lab.statuses() == {}


def test_a_run_that_keeps_its_lane_closed_stays(lab: Lab) -> None:
    """Until somebody retries, cancels or skips it."""
    lab.pipeline("p", concurrency=1, onFailure="hold", keep={"count": 0})
    (run,) = ended(lab, "p", 1, "failed")
    assert lab.one("select held_by::text from suimon.lanes where name = 'pipeline:p'") == run
    assert prune.prune(lab.conn).roots == 0
    skip.skip(lab.conn, run, actor="me")
    assert prune.prune(lab.conn).roots == 1


def test_a_marked_run_is_not_retried(lab: Lab) -> None:
    """Neither the root nor a child of it, and a new run of its input is refused too."""
    lab.pipeline("trees", SPAWN_GRAPH, keep={"count": 0})
    parent = tree(lab, n=2)
    lab.sql(
        "update suimon.runs set status = 'queued', finished_at = null where id = %s",
        parent.child_id(0),
    )
    worker = lab.worker()
    lab.end(worker, lab.claim(worker), "failed")
    lab.sql("update suimon.runs set reason = 'pruning' where id = %s", parent.id)
    for runs in ([parent.child_id(0)], [parent.id]):
        with pytest.raises(Conflict, match="is being removed"):
            retry.plan(lab.conn, runs, failed_children=runs == [parent.id])
    with pytest.raises(Conflict, match="is being removed"):
        operate.rerun(lab.conn, parent.id, actor="me")


def test_a_retry_and_a_mark_at_the_same_moment(lab: Lab, sessions: Sessions) -> None:
    """Whoever comes first wins, whole: the pruner passes over a root that a retry is opening, and
    a retry that was planned before the mark is refused after it.
    """
    lab.pipeline("p", keep={"count": 0})
    first, second = ended(lab, "p", 2, "failed")
    retrier, pruner = sessions("retrier", "pruner")
    plan = retry.plan(lab.conn, [first])
    retrier.hold(after=retry.SQL.forget_failed_steps)  # its roots are held by then
    job = retrier.start(lambda conn: retry.apply(conn, plan, actor="me"))
    retrier.until_held()
    assert prune.prune(pruner.conn).roots == 1, "only the other one"
    retrier.release()
    assert job.done_in() == 1
    assert lab.status(first) == "queued"
    assert lab.sql("select from suimon.runs where id = %s", second) == []
    third = ended(lab, "p", 1, "failed")[0]
    plan = retry.plan(lab.conn, [third])
    lab.sql("update suimon.runs set reason = 'pruning' where id = %s", third)
    assert retry.apply(lab.conn, plan, actor="me") == 0
    assert lab.status(third) == "failed"


def test_the_duty_prunes(lab: Lab, conn: Connection) -> None:
    """A worker's sweep does it; without a keep anywhere there is no work to take."""
    lab.pipeline("p")
    ended(lab, "p", 2)
    conn.execute(
        "update suimon.duties set next_at = clock_timestamp() + interval '1 day'"
        " where name <> 'prune'"
    )
    taken = dict(
        conn.execute(
            sweep.SQL.take, {"worker": None, "disk_free": None, "disk_total": None}
        ).fetchall()
    )
    assert taken == {"prune": False}
    lab.pipeline("p", keep={"count": 1})
    conn.execute("update suimon.duties set next_at = clock_timestamp() where name = 'prune'")
    assert sweep.run(conn, None) == 1
    assert lab.statuses() == {"succeeded": 1}
