"""Rank: who is next. A single run beside a flood, two floods, priorities, the floor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from support.lab import Lab

from suimon.run import claim, rescue
from suimon.run.claim import MARGIN_SECONDS, PUBLISH_SECONDS, UNFLOORED_SECONDS, Claimed, Floors


def _row(rank: int, priority: int = 2) -> Claimed:
    return cast("Claimed", SimpleNamespace(rank=rank, priority=priority))


def _drain(lab: Lab, worker: int, n: int) -> list[Claimed]:
    """Claim and end n runs, and publish the head as a worker does."""
    rows = lab.claim(worker, n)
    claim.publish(lab.conn, "default", {2: max(row.rank for row in rows)})
    lab.end(worker, rows)
    return rows


@pytest.mark.slow
def test_a_single_run_goes_next_beside_a_hundred_thousand_children(lab: Lab) -> None:
    """It waits for what is claimed already, not for the flood."""
    lab.pipeline("parents")
    lab.pipeline("single")
    worker = lab.worker()
    lab.fan_out(worker, "parents", 100_000)
    _drain(lab, worker, 500)
    single = lab.submit("single")
    assert single in [row.id for row in lab.claim(worker, 3)]


def test_two_fan_outs_interleave(lab: Lab) -> None:
    """The second one, begun in the middle of the first, gets every other place from then on."""
    lab.pipeline("parents")
    worker = lab.worker()
    lab.fan_out(worker, "parents", 2000)
    _drain(lab, worker, 100)
    second = lab.fan_out(worker, "parents", 1000)
    mine = [row.fanout_id == second.fanout.id for row in lab.claim(worker, 400)]
    assert 150 <= sum(mine) <= 250


def test_a_flood_of_single_runs_queues_behind_itself(lab: Lab) -> None:
    """Another pipeline's run, submitted after all of them, does not wait for the flood."""
    lab.pipeline("flood")
    lab.pipeline("single")
    worker = lab.worker()
    lab.submit_many("flood", 3000)
    _drain(lab, worker, 10)
    lab.submit_many("flood", 100)
    single = lab.submit("single")
    assert single in [row.id for row in lab.claim(worker, 5)]


def test_a_thousand_nested_fan_outs_are_one_flow(lab: Lab) -> None:
    """Otherwise each of them would put one child before the next single run."""
    lab.pipeline("parents")
    lab.pipeline("single")
    worker = lab.worker()
    lab.fan_out(worker, "parents", 200, to="parents")
    for row in lab.claim(worker, 200):
        parent = lab.parent(worker, "parents", row=row)
        lab.chunk(parent, 0, 5)
    _drain(lab, worker, 20)
    single = lab.submit("single")
    assert single in [row.id for row in lab.claim(worker, 5)]


def test_an_earlier_priority_goes_first_and_children_inherit_it(lab: Lab) -> None:
    """Zero before three, whatever came first."""
    for priority in (3, 2, 1, 0):
        lab.pipeline(f"p{priority}", priority=priority)
        lab.submit_many(f"p{priority}", 2)
    worker = lab.worker()
    assert [row.priority for row in lab.claim(worker, 5)] == [0, 0, 1, 1, 2]
    lab.claim(worker, 9)
    parent = lab.parent(worker, "p3")
    lab.chunk(parent, 0, 1)
    assert lab.one("select priority from suimon.runs where fanout_id = %s", parent.fanout.id) == 3


def test_a_claim_of_one_pool_sees_no_other(lab: Lab) -> None:
    """Pools are apart."""
    lab.pipeline("here")
    lab.pipeline("there", pool="gpu")
    lab.submit("here")
    lab.submit("there")
    assert [row.pipeline for row in lab.claim(lab.worker("gpu"), 9, pool="gpu")] == ["there"]


def test_a_released_run_goes_to_the_head_and_a_rescued_one_to_the_tail_of_it(lab: Lab) -> None:
    """What was never begun lost nothing; what took a worker along does not overtake."""
    lab.pipeline("p")
    worker = lab.worker()
    ids = lab.submit_many("p", 50)
    first, second = lab.claim(worker, 2)
    claim.publish(lab.conn, "default", {2: second.rank})
    claim.release(lab.conn, worker, [(first.id, first.claim_no)])
    other = lab.worker()
    assert lab.claim(other)[0].id == first.id
    lab.kill(worker)
    rescue.rescue(lab.conn)
    assert lab.one("select rank from suimon.runs where id = %s", second.id) >= second.rank
    assert {row.id for row in lab.claim(other, 49)} == set(ids) - {first.id}


def test_a_claim_number_never_comes_twice(lab: Lab) -> None:
    """Finding 16: a release takes back the try, not the fence."""
    lab.pipeline("p")
    lab.submit("p")
    worker = lab.worker()
    seen = []
    for _ in range(3):
        row = lab.claim(worker)[0]
        seen.append((row.claim_no, row.attempt))
        claim.release(lab.conn, worker, [(row.id, row.claim_no)])
    assert seen == [(1, 1), (2, 1), (3, 1)]


# ---------------------------------------------------------------------------------------- the floor


def test_the_first_claim_of_a_worker_has_no_floor() -> None:
    """It knows nothing yet."""
    assert Floors().start(0.0, unfloored=False) == ([0, 0, 0, 0], True)


def test_the_floor_follows_what_was_claimed_less_a_margin() -> None:
    """A thousand a worker, for what others may still have in their hands."""
    floors = Floors(workers=3)
    floors.learn(0.0, [_row(50_000), _row(50_010)], unfloored=True, took=0.001)
    assert floors.start(0.01, unfloored=False) == ([0, 0, 47_000, 0], False)


def test_the_floor_follows_an_unfloored_claim_down() -> None:
    """A clock that went back, a failover, a release: otherwise every claim would be two."""
    floors = Floors()
    floors.learn(0.0, [_row(1_000_000)], unfloored=True, took=0.0)
    floors.learn(1.0, [_row(5_000)], unfloored=True, took=0.0)
    assert floors.floors[2] == 4_000


def test_the_margin_covers_what_went_through_in_the_last_tenth_of_a_second() -> None:
    """A fast queue moves further than the fixed margin while another worker looks away."""
    floors = Floors()
    floors.learn(0.0, [_row(100_000)], unfloored=True, took=0.0)
    floors.learn(MARGIN_SECONDS / 2, [_row(109_000)], unfloored=False, took=0.0)
    assert floors.floors[2] == 100_000
    floors.learn(1.0, [_row(110_000)], unfloored=False, took=0.0)
    assert floors.floors[2] == 109_000


def test_the_floor_is_not_above_a_head_that_submitters_may_still_read() -> None:
    """Counted in publications: one on its way, one to be seen now, one that was read before."""
    floors = Floors()
    assert floors.heads_to_publish(0.0, [_row(10_000)]) == {2: 10_000}
    floors.learn(10.0, [_row(90_000)], unfloored=False, took=0.0)
    assert floors.floors[2] <= 10_000, "however long ago: submitters still see that head"
    for later in range(1, 4):
        floors.heads_to_publish(10.0 + later, [_row(200_000)])
    floors.learn(20.0, [_row(200_000)], unfloored=False, took=0.0)
    assert floors.floors[2] == 199_000


def test_heads_are_published_every_fifty_milliseconds_at_most() -> None:
    """And hold the largest rank claimed, for each priority that was."""
    floors = Floors()
    rows = [_row(5), _row(9), _row(7, 0)]
    assert floors.heads_to_publish(0.0, rows) == {2: 9, 0: 7}
    assert floors.heads_to_publish(PUBLISH_SECONDS / 2, rows) == {}
    assert floors.heads_to_publish(PUBLISH_SECONDS * 1.01, rows) != {}
    assert floors.heads_to_publish(1.0, []) == {}


@pytest.mark.parametrize(
    ("took", "pause"), [(0.0, UNFLOORED_SECONDS[0]), (0.025, 0.5), (9.0, UNFLOORED_SECONDS[1])]
)
def test_unfloored_claims_come_as_often_as_they_are_cheap(took: float, pause: float) -> None:
    """Twenty times their own duration, between 50 ms and 5 s."""
    floors = Floors()
    floors.learn(0.0, [_row(5_000)], unfloored=True, took=took)
    assert floors.start(pause * 0.99, unfloored=False)[1] is False
    assert floors.start(pause * 1.01, unfloored=False) == ([0, 0, 0, 0], True)


def test_an_empty_claim_moves_no_floor() -> None:
    """It proves nothing."""
    floors = Floors()
    floors.learn(0.0, [_row(9_000)], unfloored=True, took=0.0)
    floors.learn(0.01, [], unfloored=False, took=0.0)
    assert floors.floors == [0, 0, 8_000, 0]


def test_a_row_below_the_floor_is_found_without_it(lab: Lab) -> None:
    """Delayed, never lost."""
    lab.pipeline("p")
    run = lab.submit("p")
    worker = lab.worker()
    high = 9_000_000_000_000_000
    assert lab.claim(worker, 5, floors=[high] * 4) == []
    assert [row.id for row in lab.claim(worker, 5)] == [run]
