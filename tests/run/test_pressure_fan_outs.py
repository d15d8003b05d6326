"""Fan-outs and a store that is nearly full: deferred as a whole, let in with room, woken again."""

from __future__ import annotations

import psycopg
import pytest
from support.contents import text_of
from support.lab import SPAWN_GRAPH, Lab, Parent
from support.plans import Recorder
from support.storage import (
    ITEM,
    MB,
    deferred,
    empty,
    fill,
    half_stored,
    marks,
    park,
    refused,
    send,
    store,
)

from suimon.db.connect import connect, transaction
from suimon.duties import prune, sweep
from suimon.run import cancel, pressure, quotas, spawn, wake
from suimon.run.spawn import DeferredError
from suimon.store import payload


@pytest.fixture
def worker(lab: Lab) -> int:
    lab.pipeline("kept", SPAWN_GRAPH, keep={"count": 0})
    lab.pipeline("forever", SPAWN_GRAPH)
    return lab.worker()


def test_without_marks_nothing_is_asked(lab: Lab, worker: int) -> None:
    """The fence itself says that there are none: no statement more for it, nothing held."""
    parent = lab.parent(worker, "kept")
    assert not parent.fanout.watched
    recorder = Recorder(lab.conn)
    assert send(lab, parent, 0, 2, ahead=10**12) == (2, False)
    assert [query for query, _ in recorder.sent] == [
        payload.SQL.object_url, spawn.SQL.fence_and_pool, quotas.SQL.chunk, payload.SQL.keep,
        spawn.SQL.chunk, spawn.SQL.state, wake.SQL.wake,
    ]  # fmt: skip
    assert not lab.sql("select from suimon.store_holds")


# ------------------------------------------------------------------------------- fan-outs


def test_under_pressure_a_fan_out_is_deferred_as_a_whole(lab: Lab, worker: int) -> None:
    """Nothing of its chunk is stored; the run parks, no try is spent, the next try is durable."""
    marks(lab, high_bytes=10 * MB)
    parent = lab.parent(worker, "kept")
    fill(lab, 10 * MB)
    later_s = refused(lab, parent, 0, 5)
    assert 30 <= later_s <= 36
    assert not lab.sql("select from suimon.runs where parent_id = %s", parent.id)
    park(lab, parent, later_s)
    found = lab.sql("select status::text, reason, attempt, wake_at > clock_timestamp()"
                    " from suimon.runs where id = %s", parent.id)  # fmt: skip
    assert found == [("waiting", "storage", 0, True)]
    assert deferred(lab) == [(parent.id, 1)]
    assert not lab.one("select count(*) from suimon.attempts")


def test_its_tries_come_later_and_later(lab: Lab, worker: int) -> None:
    marks(lab, high_bytes=10 * MB)
    parent = lab.parent(worker, "kept")
    fill(lab, 10 * MB)
    pauses = [refused(lab, parent, 0, 1) for _ in range(6)]
    for pause, least in zip(pauses, (30, 60, 120, 240, 300, 300), strict=True):
        assert least <= pause <= least * 1.2


def test_pressure_is_met_before_the_list_is_read(lab: Lab, worker: int) -> None:
    marks(lab, high_bytes=10 * MB)
    fill(lab, 10 * MB)
    parent = lab.parent(worker, "kept")
    assert parent.fanout.watched
    known = spawn.List("kids")
    assert spawn.room_to_begin(lab.conn, parent.holder, parent.fanout, known) is not None
    empty(lab)
    assert spawn.room_to_begin(lab.conn, parent.holder, parent.fanout, known) is None


def test_a_chunk_that_is_read_again_needs_no_room(lab: Lab, worker: int) -> None:
    """Re-attaching stores nothing; the first chunk that is new meets the pressure."""
    marks(lab, high_bytes=10 * MB)
    parent = lab.parent(worker, "kept")
    assert send(lab, parent, 0, 5)[0] == 5
    fill(lab, 10 * MB)
    lab.submit("kept", {"items": []})  # it could end
    assert send(lab, parent, 0, 5)[0] == 0
    refused(lab, parent, 5, 5)
    assert lab.one("select count(*) from suimon.runs where parent_id = %s", parent.id) == 5


def test_a_single_child_is_running_work(lab: Lab, worker: int) -> None:
    marks(lab, high_bytes=10 * MB)
    fill(lab, 10 * MB)
    parent = lab.parent(worker, "kept")
    assert lab.chunk(parent, 0, 1)[0] == 1


def test_a_fan_out_that_ended_early_is_told_so(lab: Lab, worker: int) -> None:
    """Settled by fail-fast or being cancelled: it stops, pressure or not."""
    marks(lab, high_bytes=10 * MB)
    parent = lab.parent(worker, "kept")
    fill(lab, 10 * MB)
    lab.sql("update suimon.fanouts set cancelling = true")
    assert send(lab, parent, 0, 1) == (1, True)


def test_a_first_chunk_needs_room_for_the_whole_list(lab: Lab, worker: int) -> None:
    """Two of 6 MB and a store of 10: the second waits for the first, though both would begin."""
    marks(lab, high_bytes=10 * MB)
    one, two, small = (lab.parent(worker, "kept") for _ in range(3))
    assert send(lab, one, 0, 10, ahead=6 * MB)[0] == 10
    assert lab.sql("select fanout_id, ahead from suimon.store_holds") == [(one.fanout.id, 5 * MB)]
    refused(lab, two, 0, 10, ahead=6 * MB)
    assert send(lab, small, 0, 10, ahead=2 * MB)[0] == 10
    assert send(lab, one, 10, 10)[0] == 10
    assert lab.one("select ahead from suimon.store_holds where fanout_id = %s",
                   one.fanout.id) == 4 * MB  # fmt: skip
    lab.seal(one, 20)  # shorter than it said: what it held is free
    assert send(lab, two, 0, 10, ahead=6 * MB)[0] == 10
    assert deferred(lab) == []


def test_small_items_take_no_room(lab: Lab, worker: int) -> None:
    marks(lab, high_bytes=10 * MB)
    big, small = lab.parent(worker, "kept"), lab.parent(worker, "kept")
    send(lab, big, 0, 10, ahead=10 * MB)
    assert send(lab, small, 0, 100, ahead=0, size=100)[0] == 100
    assert lab.one("select count(*) from suimon.store_holds") == 1


def test_what_is_too_large_on_paper_goes_when_it_is_alone(lab: Lab, worker: int) -> None:
    marks(lab, high_bytes=10 * MB)
    fill(lab, 8 * MB)
    huge, other = lab.parent(worker, "kept"), lab.parent(worker, "kept")
    refused(lab, huge, 0, 1, ahead=50 * MB)
    empty(lab)
    send(lab, other, 0, 1, ahead=MB)
    refused(lab, huge, 0, 1, ahead=50 * MB)
    lab.seal(other, 1)
    assert send(lab, huge, 0, 1, ahead=50 * MB)[0] == 1


def test_a_hold_ends_with_its_spawner(lab: Lab, worker: int) -> None:
    """Whose step failed, or whose run ended, holds no room any more."""
    marks(lab, high_bytes=10 * MB)
    one, two = lab.parent(worker, "kept"), lab.parent(worker, "kept")
    send(lab, one, 0, 1, ahead=9 * MB)
    refused(lab, two, 0, 1, ahead=9 * MB)
    lab.sql("insert into suimon.steps (run_id, vertex, status, attempt, claim_no)"
            " values (%s, 'kids', 'failed', 1, 1)", one.id)  # fmt: skip
    assert send(lab, two, 0, 1, ahead=9 * MB)[0] == 1
    assert lab.sql("select fanout_id from suimon.store_holds") == [(two.fanout.id,)]


def test_of_two_first_chunks_at_once_one_gets_the_room(lab: Lab, worker: int, db_url: str) -> None:
    marks(lab, high_bytes=10 * MB)
    one, two = lab.parent(worker, "kept"), lab.parent(worker, "kept")
    ask = "select suimon.may_spawn(%s, %s, 0, 100000, 6000000)"
    with connect(db_url, name="other") as other, transaction(lab.conn):
        assert lab.one(ask, one.fanout.id, one.fanout.base)
        other.execute(b"set lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute(ask.encode(), (two.fanout.id, two.fanout.base))
    assert not lab.one(ask, two.fanout.id, two.fanout.base)


# ------------------------------------------------------------------------------- half stored


def test_half_stored_waits_for_what_can_still_end(lab: Lab, worker: int) -> None:
    """A run that is alive could end and be pruned; when it has, and nothing is left, it goes on."""
    marks(lab, high_bytes=10 * MB)
    other = lab.claim_run(worker, lab.submit("kept", {"items": []}))
    parent = half_stored(lab, worker)
    fill(lab, 7 * MB)
    refused(lab, parent, 40, 10)
    lab.end(worker, other)
    refused(lab, parent, 40, 10)  # it has ended, and no prune has seen it
    lab.sql("update suimon.duties set next_at = '-infinity' where name = 'prune'")
    sweep.run(lab.conn, worker)
    assert send(lab, parent, 40, 10)[0] == 10
    assert send(lab, parent, 50, 10)[0] == 10
    assert deferred(lab) == []


def test_what_is_kept_for_ever_is_not_waited_for(lab: Lab, worker: int) -> None:
    """Nor is what people hold: neither will make room."""
    marks(lab, high_bytes=10 * MB)
    lab.submit("forever", {"items": []})
    held = lab.claim_run(worker, lab.submit("kept", {"items": []}))
    lab.sql("update suimon.runs set status = 'waiting', reason = 'approval:ok', worker_id = null"
            " where id = %s", held.id)  # fmt: skip
    parent = half_stored(lab, worker)
    fill(lab, 7 * MB)
    lab.sql("update suimon.duties set last_at = clock_timestamp() where name = 'prune'")
    assert send(lab, parent, 40, 10)[0] == 10


def test_only_the_oldest_half_stored_one_goes_on(lab: Lab, worker: int) -> None:
    marks(lab, high_bytes=10 * MB)
    lab.sql("update suimon.duties set last_at = clock_timestamp() where name = 'prune'")
    first, second = half_stored(lab, worker), half_stored(lab, worker)
    fill(lab, 3 * MB)
    refused(lab, second, 40, 10)
    park(lab, second)
    assert send(lab, first, 40, 10)[0] == 10
    lab.seal(first, 50)
    lab.spawned(first)
    assert pressure.look(lab.conn) == 0, "the first one is alive, and can end"


def test_an_older_one_that_cannot_run_itself_is_passed_over(lab: Lab, worker: int) -> None:
    """Its pool has no worker: nobody shall wait for it."""
    marks(lab, high_bytes=10 * MB)
    lab.sql("update suimon.duties set last_at = clock_timestamp() where name = 'prune'")
    first, second = half_stored(lab, worker), half_stored(lab, worker)
    fill(lab, 3 * MB)
    refused(lab, second, 40, 10)
    for parent in (second, first):
        park(lab, parent)
    lab.sql("update suimon.runs set status = 'queued', reason = null, wake_at = null, pool = 'pa'"
            " where id = %s", first.id)  # fmt: skip
    assert pressure.look(lab.conn) == 1
    assert lab.status(second.id) == "queued"


def test_where_inputs_fill_the_store_one_that_holds_some_goes_on(lab: Lab, worker: int) -> None:
    """None has begun, and none could ever end: one of them goes above the mark, not two."""
    runs = [lab.submit("kept", {"items": [], "text": text_of(n, 1_200_000)}) for n in range(4)]
    parents = [lab.parent(worker, "kept", row=lab.claim_run(worker, run)) for run in runs]
    marks(lab, high_bytes=2 * MB)
    lab.sql("update suimon.duties set last_at = clock_timestamp() where name = 'prune'")
    through = 0
    for parent in parents:
        try:
            through += send(lab, parent, 0, 1, ahead=ITEM)[0]
        except DeferredError as error:
            park(lab, parent, error.later_s)
    assert through == 1
    assert pressure.look(lab.conn) == 0


def test_a_scarce_disk_stops_even_the_oldest(lab: Lab, worker: int) -> None:
    marks(lab, high_bytes=10 * MB, disk_min_bytes=1000)
    parent = half_stored(lab, worker)
    sweep.run(lab.conn, None, (999, 100_000))
    refused(lab, parent, 40, 10)


# ------------------------------------------------------------------------------- waking


def test_when_the_pressure_is_over_the_deferred_go_on_as_far_as_there_is_room(
    lab: Lab, worker: int
) -> None:
    marks(lab, high_bytes=10 * MB)
    parents = [lab.parent(worker, "kept") for _ in range(4)]
    fill(lab, 10 * MB)
    for parent in parents:
        refused(lab, parent, 0, 1, ahead=4 * MB)
        park(lab, parent)
    assert pressure.look(lab.conn) == 0
    empty(lab)
    assert pressure.look(lab.conn) == 2
    assert [lab.status(one.id) for one in parents] == ["queued", "queued", "waiting", "waiting"]
    assert pressure.state(lab.conn)["above_since"] is None


def test_a_prune_that_makes_room_wakes_them(lab: Lab, worker: int) -> None:
    """And while anybody is deferred the duty comes back every half minute at the latest."""
    marks(lab, high_bytes=10 * MB)
    parent = lab.parent(worker, "kept")
    done = lab.claim_run(worker, lab.submit("kept", {"items": []}))
    fill(lab, 10 * MB, done.id)
    lab.sql("update suimon.duties set next_at = clock_timestamp() + interval '5 minutes'")
    refused(lab, parent, 0, 1)
    park(lab, parent)
    soon = "select next_at <= clock_timestamp() + interval '{}' from suimon.duties"
    soon += " where name = 'prune'"
    assert lab.one(soon.format("0 s")), "the pressure began: a prune, now"
    prune.duty(lab.conn)
    assert lab.status(parent.id) == "waiting"
    lab.end(worker, done)
    prune.duty(lab.conn)
    assert store(lab) == 0
    assert lab.status(parent.id) == "queued"
    assert lab.one(soon.format("30 s"))


def test_a_mark_that_is_raised_wakes_them_at_once(lab: Lab, worker: int) -> None:
    marks(lab, high_bytes=10 * MB)
    parent = lab.parent(worker, "kept")
    fill(lab, 10 * MB)
    refused(lab, parent, 0, 1)
    park(lab, parent)
    marks(lab, high_bytes=None)
    assert lab.status(parent.id) == "queued"
    row = lab.claim_run(worker, parent.id)
    holder = spawn.Holder(row.id, row.claim_no, worker)
    parent = Parent(row, holder, parent.fanout, parent.child)
    list_ = spawn.List("kids", deferred=True)
    assert spawn.room_to_begin(lab.conn, holder, parent.fanout, list_) is None


def test_a_deferred_run_can_be_cancelled(lab: Lab, worker: int) -> None:
    marks(lab, high_bytes=10 * MB)
    lab.submit("kept", {"items": []})
    parent = half_stored(lab, worker)
    fill(lab, 7 * MB)
    refused(lab, parent, 40, 10)
    park(lab, parent)
    cancel.request(lab.conn, [parent.id])
    assert lab.status(parent.id) == "cancelled"
    assert lab.tally(parent) == (0, 0, 0, 40)
    assert pressure.state(lab.conn)["deferred"] == 0
