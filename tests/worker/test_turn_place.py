"""One destination as one worker sees it, in a time that the test moves."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

from suimon.store.destination import Given, Terms
from suimon.worker.turn_parts import Lease, Waiter
from suimon.worker.turn_place import ABNORMAL_SECONDS, Place

#: Looks at one destination that may be due at the same instant, each of which changes something.
AT_ONE_INSTANT = 5


class World:
    """A place with a database that gives whatever is free, and calls that end when told."""

    def __init__(self, *, rate: float | None, concurrency: int | None) -> None:
        self.place = Place("crm", valid_s=10.0)
        self.terms = Terms("crm", 1, rate, None, concurrency, None, None, 30.0)
        self.now = 100.0
        self.booked_until = 0.0
        self.tokens = 0
        self.calls: list[tuple[Waiter, Lease | None]] = []
        self.looks = 0

    def asks(self) -> None:
        self.tokens += 1
        run = SimpleNamespace(id=str(self.tokens), pipeline="p", fanout_id=self.tokens % 2)
        held: Any = SimpleNamespace(run=run, gone=False)
        self.place.wait(Waiter(held, self.tokens, self.now, places=True))
        self.place.hurry(self.now)

    def ends(self, number: int, *, badly: bool) -> None:
        _, lease = self.calls.pop(number)
        if lease is not None:
            self.place.done(lease, self.now, self.now + (ABNORMAL_SECONDS if badly else 0.0))

    def look(self) -> None:
        """What the worker does when something is due."""
        place = self.place
        self.looks += 1
        place.come_due(self.now)
        self._serve()
        if self.now >= place.due_at:
            place.take(self._answer(place.ask(self.now)), self.now)
            place.plan(self.now, 0.05, 0.5, 2.0)
            self._serve()

    def _serve(self) -> None:
        place = self.place
        while place.waiting:
            waiter = place.first()
            given = place.give(waiter, self.now)
            if given is None:
                break
            place.pop(waiter)
            if given[0] is not None:
                given[0].use(waiter.held.run.id, now=given[1])
            self.calls.append((waiter, given[0]))
        for waiter in place.too_late(self.now):
            place.pop(waiter)

    def _answer(self, ask: Any) -> Given:
        places: list[int] = []
        if self.terms.concurrency is not None:
            free = self.terms.concurrency - len(self.place.leases)
            for _ in range(min(ask.places, free)):
                self.tokens += 1
                places.append(self.tokens)
        calls = []
        if self.terms.per_second is not None:
            for _ in range(min(ask.calls, 20)):
                self.booked_until = max(self.booked_until, self.now) + 1 / self.terms.per_second
                calls.append((self.booked_until, self.booked_until + 5))
        kept = frozenset(token for token, _ in ask.used)
        return Given(self.terms, kept, tuple(places), tuple(calls), self.now + 20, sent=self.now)

    def pass_until(self, end: float) -> None:
        """Jump from one due instant to the next, as the worker's loop sleeps."""
        looks_here, here = 0, -math.inf
        while (due := max(self.now, self.place.next_at())) <= end:
            looks_here = looks_here + 1 if due == here else 1
            here = self.now = due
            assert looks_here <= AT_ONE_INSTANT, f"it is due at {due} for ever"
            self.look()
        self.now = end


def test_a_place_whose_call_was_cut_off_goes_back_when_nobody_else_calls() -> None:
    """It rests for a moment, and then it is free for other workers; this one sleeps meanwhile."""
    world = World(rate=None, concurrency=2)
    world.asks()
    world.pass_until(101.0)
    world.ends(0, badly=True)
    before = world.looks
    world.pass_until(120.0)
    assert world.place.leases == {}
    assert world.looks - before < 30


def test_an_instant_that_nobody_waits_for_any_more_wakes_nobody() -> None:
    """Whoever it was booked for has been cancelled."""
    world = World(rate=1.0, concurrency=None)
    for _ in range(2):
        world.asks()
    world.pass_until(100.5)
    assert world.place.waiting
    for waiter in world.place.waiters():
        world.place.forget(waiter.token)
    before = world.looks
    world.pass_until(160.0)
    assert world.looks - before < 200


@pytest.mark.parametrize(
    ("rate", "concurrency"), [(None, 3), (5.0, None), (5.0, 3), (None, None), (0.5, 1)]
)
@pytest.mark.parametrize("seed", range(20))
def test_after_any_life_it_sleeps_and_holds_nothing(
    seed: int, rate: float | None, concurrency: int | None
) -> None:
    """Waiters come, are served, give up; calls end well and badly: then there is nothing to do."""
    chance = random.Random(seed)
    world = World(rate=rate, concurrency=concurrency)
    for _ in range(200):
        act = chance.random()
        if act < 0.4:
            world.asks()
        elif act < 0.7 and world.calls:
            world.ends(chance.randrange(len(world.calls)), badly=chance.random() < 0.3)
        elif act < 0.8 and world.place.waiting:
            world.place.forget(chance.choice(world.place.waiters()).token)
        else:
            world.pass_until(world.now + chance.choice((0.0, 0.01, 0.2, 1.5)))
    while world.calls or world.place.waiting:
        while world.calls:
            world.ends(0, badly=chance.random() < 0.5)
        world.pass_until(world.now + 0.5)
    world.pass_until(world.now + 30.0)
    before = world.looks
    world.pass_until(world.now + 60.0)
    assert (world.place.waiting, world.place.leases) == (0, {})
    assert world.looks - before < 200
