"""A pipeline's pool, changed live: what waits follows, in order; who was given a pool stays."""

from __future__ import annotations

import pytest
from support.lab import SPAWN_GRAPH, Lab
from support.sessions import Sessions
from support.wait import wait_until

from suimon.errors import Conflict, InputRefused
from suimon.run import moving, retry
from suimon.run.spawn import Child
from suimon.worker import batch as batches


def _pools(lab: Lab, pipeline: str = "p") -> dict[str, int]:
    return dict(
        lab.sql("select pool, count(*) from suimon.runs where pipeline = %s group by 1", pipeline)
    )


def _set(lab: Lab, pool: str | None, pipeline: str = "p") -> dict[str, object]:
    return moving.set_pool(lab.conn, pipeline, pool, actor="ann")


def test_queued_runs_follow_in_their_order_behind_what_is_there(lab: Lab) -> None:
    """2,500 of them, in several batches; the new pool's own flood and theirs keep their orders."""
    lab.pipeline("p")
    lab.pipeline("q", pool="gpu")
    lab.pipeline("other")
    worker = lab.worker("gpu")
    ids = lab.submit_many("p", 2_500)
    others = lab.submit_many("other", 10)
    there = lab.submit_many("q", 5)
    found = _set(lab, "gpu")
    assert found["moved"] == 2_500
    rows = lab.claim(worker, 4000, pool="gpu")
    assert [row.id for row in rows if row.pipeline == "p"] == ids
    assert [row.id for row in rows if row.pipeline == "q"] == there
    assert [row.id for row in lab.claim(lab.worker(), 100)] == others


def test_new_runs_go_to_the_new_pool_behind_the_moved_ones(lab: Lab) -> None:
    """Whoever submits after the edit stands last."""
    lab.pipeline("p")
    ids = lab.submit_many("p", 50)
    _set(lab, "gpu")
    last = lab.submit("p")
    assert [r.id for r in lab.claim(lab.worker("gpu"), 100, pool="gpu")] == [*ids, last]


def test_runs_that_stand_in_a_lane_follow_and_are_let_in_there(lab: Lab) -> None:
    """The one that runs ends where it is; the next is for the new pool, in the lane's order."""
    lab.pipeline("p", concurrency=1)
    worker, far = lab.worker(), lab.worker("gpu")
    ids = [lab.submit("p") for _ in range(4)]
    first = lab.claim(worker)[0]
    _set(lab, "gpu")
    outcome = lab.end(worker, first, want=10)
    assert (outcome.claimed, outcome.pools) == ([], {"gpu"})
    seen = []
    while rows := lab.claim(far, 10, pool="gpu"):
        assert len(rows) == 1
        seen.append(rows[0].id)
        lab.end(far, rows[0])
    assert seen == ids[1:]


def test_parked_runs_come_back_to_the_new_pool(lab: Lab) -> None:
    """One waits for its next try, one for its children, one is at work and fails afterwards."""
    lab.pipeline("p", SPAWN_GRAPH)
    worker = lab.worker()
    retried = lab.claim_run(worker, lab.submit("p"))
    lab.again(worker, retried, delay_s=3600)
    parent = lab.fan_out(worker, "p", 3)
    busy = lab.claim_run(worker, lab.submit("p"))
    assert _set(lab, "gpu")["moved"] == 6
    assert _pools(lab) == {"gpu": 6}
    lab.again(worker, busy)
    lab.sql("update suimon.runs set wake_at = clock_timestamp() where reason = 'retry'")
    far = lab.worker("gpu")
    for row in lab.claim(far, 10, pool="gpu"):
        assert row.id not in {retried.id, busy.id}
        lab.end(far, row)
    assert lab.status(parent.id) == "queued"
    assert lab.claim(worker, 10) == []
    assert [row.id for row in lab.claim(far, 10, pool="gpu")] == [parent.id]


def test_children_that_were_given_a_pool_stay_there(lab: Lab) -> None:
    """Their spawner names it; those of another spawner, and the parents, move."""
    named = {"type": "SPAWNER", "config": {"task": "m:f", "pool": "default"}}
    lab.pipeline("p", {**SPAWN_GRAPH, "kids": {**SPAWN_GRAPH["kids"], **named}})
    lab.pipeline("q", SPAWN_GRAPH)
    worker = lab.worker()
    lab.fan_out(worker, "p", 20)
    lab.fan_out(worker, "q", 20)
    assert _set(lab, "gpu")["moved"] == 1
    assert _pools(lab) == {"default": 20, "gpu": 1}
    assert _set(lab, "gpu", "q")["moved"] == 21
    assert _pools(lab, "q") == {"gpu": 21}


def test_children_behind_a_spawns_limit_follow(lab: Lab) -> None:
    """Two of ten are let in, eight stand in the spawn's lane: all are for the new pool."""
    lab.pipeline("p", SPAWN_GRAPH)
    parent = lab.fan_out(lab.worker(), "p", 10, limit=2)
    assert _set(lab, "gpu")["moved"] == 11
    far = lab.worker("gpu")
    rows = lab.claim(far, 20, pool="gpu")
    assert len(rows) == 2
    outcome = lab.end(far, rows, want=20, pool="gpu")
    assert len(outcome.claimed) == 2
    assert lab.status(parent.id) == "waiting"


@pytest.mark.parametrize("bare", [True, False])
def test_a_spawner_at_work_makes_its_next_children_for_the_new_pool(lab: Lab, bare: bool) -> None:
    """Whether they are tasks of its graph or runs of a pipeline that moves."""
    lab.pipeline("p", SPAWN_GRAPH)
    lab.pipeline("target")
    worker = lab.worker()
    parent = lab.parent(worker, "p", to=None if bare else "target")
    given = {name: getattr(parent.child, name) for name in Child.__slots__}
    parent.child = Child(**{**given, "follows": True})
    lab.chunk(parent, 0, 10)
    _set(lab, "gpu", "p" if bare else "target")
    lab.chunk(parent, 10, 10)
    kids = lab.sql("select distinct pool from suimon.runs where fanout_id = %s", parent.fanout.id)
    assert kids == [("gpu",)]


def test_a_deploy_leaves_the_override_and_may_change_the_limits(lab: Lab) -> None:
    """Until it is taken back; then the declared pool is the live one, and its runs come home."""
    lab.pipeline("p", concurrency=1)
    lab.submit("p")
    _set(lab, "gpu")
    lab.pipeline("p", concurrency=3, pool="cpu")
    assert moving.current(lab.conn, "p") == moving.Choice("gpu", "cpu", edited=True)
    assert lab.one("select lane_limit from suimon.pipelines") == 3
    found = _set(lab, None)
    assert (found["pool"], found["pool_edited"], found["moved"]) == ("cpu", False, 1)
    lab.pipeline("p", concurrency=3, pool="else")
    assert moving.current(lab.conn, "p").pool == "else"


def test_an_edited_limit_does_not_freeze_the_pool(lab: Lab) -> None:
    """They are two edits."""
    lab.pipeline("p", concurrency=1)
    lab.sql("update suimon.pipelines set edited_at = clock_timestamp()")
    lab.pipeline("p", concurrency=1, pool="gpu")
    assert moving.current(lab.conn, "p").pool == "gpu"


def test_a_pool_that_nobody_serves_is_taken_with_a_warning(lab: Lab) -> None:
    """It may be started later; a name that cannot be one is refused."""
    lab.pipeline("p")
    assert "no worker of pool gpu" in str(_set(lab, "gpu")["warning"])
    lab.worker("gpu")
    assert _set(lab, "gpu")["warning"] is None
    with pytest.raises(InputRefused):
        _set(lab, "G P U")


def test_whoever_dies_after_the_edit_leaves_the_rest_to_the_sweep(lab: Lab) -> None:
    """The edit alone is committed; the duty moves the runs, and forgets the move when safe."""
    lab.pipeline("p")
    lab.submit_many("p", 30)
    lab.conn.execute(moving.SQL.change, {"pipeline": "p", "pool": "gpu", "edited": True})
    assert moving.sweep(lab.conn) == 30
    assert lab.one("select moving_from from suimon.pipelines") == ["default"]
    lab.sql("update suimon.pipelines set moving_since = moving_since - interval '1 minute'")
    _over(lab)


def _over(lab: Lab) -> None:
    """Swept until the move is forgotten: other transactions of this server come before it."""

    def swept() -> bool:
        assert moving.sweep(lab.conn) == 0
        return lab.one("select moving_from from suimon.pipelines") == []

    wait_until(swept, 30, "the move is over")


def test_a_submit_that_was_open_during_the_edit_moves_later(lab: Lab, sessions: Sessions) -> None:
    """It read the old pool and commits after the move: the move is not over before."""
    lab.pipeline("p")
    (other,) = sessions("other")
    with other.conn.transaction():
        run = lab.submit_only("p", conn=other.conn)
        assert _set(lab, "gpu")["moved"] == 0
        lab.sql("update suimon.pipelines set moving_since = moving_since - interval '1 minute'")
        assert moving.sweep(lab.conn) == 0
        assert lab.one("select moving_from from suimon.pipelines") == ["default"]
    assert moving.sweep(lab.conn) == 1
    assert lab.one("select pool from suimon.runs where id = %s", run) == "gpu"
    _over(lab)


def test_what_a_pause_holds_back_follows(lab: Lab) -> None:
    """Runs that met the pause of their pipeline, one by one."""
    lab.pipeline("p")
    worker = lab.worker()
    lab.submit_many("p", 5)
    rows = lab.claim(worker, 5)
    lab.sql("insert into suimon.pauses (what, by) values ('pipeline:p', 'ann')")
    back = lab.batch(worker, [])
    back.held_back = [(row.id, row.claim_no, "paused:pipeline:p") for row in rows]
    batches.execute(lab.conn, back)
    assert _set(lab, "gpu")["moved"] == 5
    assert _pools(lab) == {"gpu": 5}


def test_an_idle_worker_of_the_new_pool_is_woken(lab: Lab) -> None:
    """By name, as by a submit."""
    lab.pipeline("p")
    lab.submit("p")
    idle = lab.worker("gpu", idle=True)
    lab.conn.execute("listen suimon_wake")
    _set(lab, "gpu")
    said = [note.payload for note in lab.conn.notifies(timeout=5, stop_after=1)]
    assert said == [f"gpu {idle}"]


def test_an_edit_names_what_it_replaces_and_is_recorded(lab: Lab) -> None:
    """Who was overtaken is told."""
    lab.pipeline("p")
    before = moving.current(lab.conn, "p")
    moving.set_pool(lab.conn, "p", "gpu", actor="ann", why="fast", expected=before)
    with pytest.raises(Conflict):
        moving.set_pool(lab.conn, "p", "cpu", actor="bob", expected=before)
    rows = lab.sql("select actor, action, target, detail->>'to' from suimon.audit")
    assert rows == [("ann", "set-pool", "pipeline:p", "gpu")]


def test_a_run_that_is_retried_afterwards_is_for_the_new_pool(lab: Lab) -> None:
    """It had ended when the pool was set; a child whose spawner names a pool stays there."""
    named = {"type": "SPAWNER", "config": {"task": "m:f", "pool": "default"}}
    lab.pipeline("p", {**SPAWN_GRAPH, "kids": {**SPAWN_GRAPH["kids"], **named}})
    worker = lab.worker()
    failed = lab.claim_run(worker, lab.submit("p", {"items": []}))
    lab.end(worker, failed, "failed")
    lab.fan_out(worker, "p", 1)
    kid = lab.claim(worker)[0]
    lab.end(worker, kid, "failed")
    _set(lab, "gpu")
    for run in (failed.id, kid.id):
        retry.apply(lab.conn, retry.plan(lab.conn, [run]), actor="ann")
    pool = "select pool from suimon.runs where id = %s"
    assert (lab.one(pool, failed.id), lab.one(pool, kid.id)) == ("gpu", "default")
