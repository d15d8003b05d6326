"""One destination as one worker sees it: who waits, what was booked, which places it holds.

Nothing here does I/O or reads a clock: `turns` tells what happens and when. Waiters stand in one
queue per fan-out and are served in turn. A place (lease) that is free here serves the next call
without a word to the database; it may begin one until its `until`, and is renewed well before.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from suimon.store.destination import Ask, Given, Terms
from suimon.worker.turn_parts import Lease, Waiter

#: A longer wait parks the run.
WAIT_SECONDS: Final = 1.0
#: A run that is ready goes to its slot this long before its instant.
EARLY_SECONDS: Final = 0.01
#: A booked call with less left than this is not given any more.
LEFT_SECONDS: Final = 0.003
#: After a call that was cut off the far side may need a moment to notice.
ABNORMAL_SECONDS: Final = 0.1
#: A place that nobody has used for so long goes back.
IDLE_SECONDS: Final = 0.5
#: A ticket is at least so far away, and at most, while nobody has held the destination longer.
TICKET_SECONDS: Final = 2.0
LONGEST_TICKET_SECONDS: Final = 300.0
LONGEST_HELD_SECONDS: Final = 900.0
#: Tickets are this many times as far apart as calls are: who has room wakes their owners earlier.
TICKET_STRETCH: Final = 4.0
#: Places and calls of one round.
MOST: Final = 5_000
PLACES: Final = 1_000


@dataclass(slots=True)
class Place:
    """The state; see the module."""

    name: str
    valid_s: float
    terms: Terms | None = None
    known: bool = False
    flows: OrderedDict[str, deque[Waiter]] = field(default_factory=OrderedDict)
    inner: deque[Waiter] = field(default_factory=deque)
    waiting: int = 0
    calls: deque[tuple[float, float]] = field(default_factory=deque)
    leases: dict[int, Lease] = field(default_factory=dict)
    idle: deque[Lease] = field(default_factory=deque)
    cooling: list[Lease] = field(default_factory=list)
    back: list[int] = field(default_factory=list)
    give_back: int = 0
    held_until: float | None = None
    hold_known_at: float = -math.inf  # since when the database knows what a slot was told
    part: float = 1.0
    parked: bool = False
    fresh_until: float = 0.0
    spent: int = 0
    spent_before: int = 0
    mean_s: float = 0.1
    tails: dict[str, float] = field(default_factory=dict)
    strikes: int = 0
    asking: bool = False
    asked_at: float = -math.inf
    asked_tokens: tuple[int, ...] = ()
    due_at: float = 0.0
    wake_at: float = math.inf

    # ------------------------------------------------------------------ who waits

    def wait(self, waiter: Waiter) -> None:
        if waiter.under is not None:
            self.inner.append(waiter)
        else:
            self.flows.setdefault(waiter.flow, deque()).append(waiter)
        self.waiting += 1

    def first(self) -> Waiter:
        """Who is next. Calls below a place that is held already come first: they free it."""
        if self.inner:
            return self.inner[0]
        return next(iter(self.flows.values()))[0]

    def pop(self, waiter: Waiter) -> None:
        """It waits no more; its fan-out stands behind the others now."""
        if waiter.under is not None:
            self.inner.remove(waiter)
        else:
            queue = self.flows[waiter.flow]
            if queue[0] is waiter:
                queue.popleft()
                self.flows.move_to_end(waiter.flow)
            else:
                queue.remove(waiter)
            if not queue:
                del self.flows[waiter.flow]
        self.waiting -= 1

    def waiters(self) -> list[Waiter]:
        return [*self.inner, *(waiter for queue in self.flows.values() for waiter in queue)]

    def forget(self, token: int) -> bool:
        """All that this try asked for; whether there was something."""
        found = [waiter for waiter in self.waiters() if waiter.token == token]
        for waiter in found:
            self.pop(waiter)
        return bool(found)

    # ------------------------------------------------------------------ giving

    def give(self, waiter: Waiter, now: float) -> tuple[Lease | None, float, float] | None:
        """(place, not before, not after) for it; None: not yet."""
        self.wake_at = math.inf
        terms = self.terms
        if terms is None or (self.held_until is not None and self.held_until > now):
            return None
        first, last = now, self.fresh_until
        if terms.per_second is not None:
            while self.calls and self.calls[0][1] < now + LEFT_SECONDS:
                self.calls.popleft()
            if not self.calls:
                return None
            first, last = self.calls[0]
            if waiter.question is None and first > now + EARLY_SECONDS:
                self.wake_at = first - EARLY_SECONDS
                return None
        elif terms.concurrency is None and last <= now + LEFT_SECONDS:
            return None
        lease = None
        if terms.concurrency is not None:
            if waiter.places:
                lease = self._free(max(first, now), now)
                if lease is None:
                    return None
                last = math.inf if terms.per_second is None else last
            elif terms.per_second is None:
                last = math.inf
        if terms.per_second is not None:
            self.calls.popleft()
        self.spent += 1
        return lease, first, last

    def come_due(self, now: float) -> None:
        """What time alone changes: places have cooled down, and nobody's instant is waited for."""
        for lease in [one for one in self.cooling if one.free_at <= now]:
            self.cooling.remove(lease)
            self.idle.append(lease)
            if self.give_back > 0:
                self.due_at = min(self.due_at, now)
        if not self.waiting:
            self.wake_at = math.inf

    def _free(self, first: float, now: float) -> Lease | None:
        self.come_due(now)
        if self.idle and self.idle[0].until > first + LEFT_SECONDS:
            return self.idle.popleft()
        return None

    def valid_until(self, lease: Lease) -> float:
        return lease.until

    def facts(self) -> dict[str, Any]:
        """What a slot needs to call."""
        terms = self.terms
        assert terms is not None
        return {"base_url": terms.base_url, "timeout_s": terms.timeout_s, "auth": self.grant()}

    def grant(self) -> str | None:
        """The secret of its calls, as tasks are granted it."""
        terms = self.terms
        return None if terms is None or terms.auth is None else terms.auth.removeprefix("secret:")

    def done(self, lease: Lease, now: float, free_at: float) -> None:
        """The call has ended: the place is for the next one, here or elsewhere."""
        if lease.run is not None:
            took = max(0.0005, now - lease.since)
            self.mean_s += 0.1 * (took - self.mean_s)
        lease.run, lease.since, lease.used_until = None, now, math.inf
        if self.leases.get(lease.token) is not lease:
            return  # it has expired, or was lost
        if self.give_back > 0 and free_at <= now:
            self.give_back -= 1
            del self.leases[lease.token]
            self.back.append(lease.token)
            self.due_at = min(self.due_at, now)
        elif free_at > now:
            lease.free_at = free_at
            self.cooling.append(lease)
        else:
            self.idle.appendleft(lease)  # the others stay unused, and go back

    def free_leases(self) -> Iterator[Lease]:
        return (lease for lease in self.leases.values() if lease.run is None)

    # ------------------------------------------------------------------ who waits too long

    def pace(self) -> float:
        """Calls a second that this worker may expect; 0: nobody knows yet."""
        return self.whole_pace() * self.part

    def whole_pace(self) -> float:
        """The same of all workers together."""
        terms = self.terms
        if terms is None:
            return 0.0
        by_rate = math.inf if terms.per_second is None else terms.per_second
        at_once = terms.concurrency
        return min(by_rate, math.inf if at_once is None else at_once / self.mean_s)

    def too_late(self, now: float) -> list[Waiter]:
        """Who would wait longer than a second, or has."""
        if not self.waiting or self.terms is None:
            return []
        if self.held_until is not None and self.held_until - now > WAIT_SECONDS:
            return self.waiters()
        late = [w for queue in (self.inner, *self.flows.values()) for w in _late(queue, now)]
        room = self.pace() * WAIT_SECONDS
        extra = 0 if room >= self.waiting else self.waiting - len(late) - max(2, math.ceil(room))
        if extra <= 0:
            return late
        chosen = set(map(id, late))
        tails = [list(queue) for queue in self.flows.values()]
        while extra > 0 and any(tails):
            longest = max(tails, key=len)
            waiter = longest.pop()
            if id(waiter) not in chosen:
                late.append(waiter)
            extra -= 1
        return late

    def ticket(self, waiter: Waiter, now: float) -> tuple[float, str]:
        """(seconds until it comes back at the latest, reason)."""
        held = self.held_until is not None and self.held_until > now
        base = max(now + TICKET_SECONDS, self.held_until or 0.0)
        step = TICKET_STRETCH / max(self.whole_pace(), 0.001)
        tail = max(base, self.tails.get(waiter.flow, 0.0)) + min(step, 60.0)
        if len(self.tails) > 1000:
            self.tails = {flow: at for flow, at in self.tails.items() if at > now}
        longest = LONGEST_HELD_SECONDS if held else LONGEST_TICKET_SECONDS
        self.tails[waiter.flow] = tail
        self.parked = True
        reason = f"held:{self.name}" if held else f"limit:{self.name}"
        return min(tail - now, longest), reason

    def hold(self, until: float) -> bool:
        """Nobody calls before; False: it is held that long already."""
        if self.held_until is not None and self.held_until >= until - 0.05:
            return False
        self.calls.clear()
        return True

    # ------------------------------------------------------------------ rounds

    def ask(self, now: float) -> Ask:
        """What the next round asks for."""
        self.asked_at = now
        self._drop_overdue(now)
        back, self.back = self.back, []
        while self.idle and self._is_spare(self.idle[-1], now):
            lease = self.idle.pop()
            del self.leases[lease.token]
            back.append(lease.token)
        used = [
            (lease.token, lease.run)
            for lease in self.leases.values()
            if lease.until - now < self.valid_s * 0.67
            or (lease.run != lease.told and now - lease.since > IDLE_SECONDS)
        ]
        for token, run in used:
            self.leases[token].told = run
        self.asked_tokens = tuple(token for token, _ in used)
        self.spent_before, self.spent = self.spent, 0
        in_use = sum(1 for lease in self.leases.values() if lease.run is not None)
        calls = max(0, self.waiting + self.spent_before - len(self.calls))
        places = max(0, self.waiting - len(self.inner) - len(self.idle))
        wants = self.waiting + max(in_use, self.spent_before)
        return Ask(
            self.name, min(calls, MOST), min(places, PLACES), wants, self.waiting, back, used
        )

    def _is_spare(self, lease: Lease, now: float) -> bool:
        if self.give_back > 0:
            self.give_back -= 1
            return True
        unlimited = self.terms is not None and self.terms.concurrency is None
        return unlimited or (not self.waiting and now - lease.since > IDLE_SECONDS)

    def _drop_overdue(self, now: float) -> None:
        """A call that should have ended long ago: its place is not renewed, and expires."""
        for lease in [one for one in self.leases.values() if now > one.used_until]:
            del self.leases[lease.token]

    def take(self, found: Given, now: float) -> int:
        """A round's answer; how many places had expired or were lost."""
        self.terms, self.known = found.terms, found.terms is not None
        self.part, self.parked = max(found.part, 1e-6), found.parked
        self.fresh_until = found.sent + self.valid_s
        self.give_back = found.give_back
        lost = 0
        for token in self.asked_tokens:
            lease = self.leases.get(token)
            if lease is None:
                continue
            if token in found.kept:
                lease.until, lease.expires = found.sent + self.valid_s, found.expires
            else:
                lost += 1
                del self.leases[token]
                lease.until = -math.inf
                if lease in self.idle:
                    self.idle.remove(lease)
                elif lease in self.cooling:
                    self.cooling.remove(lease)
        for token in found.places:
            made = Lease(token, found.sent + self.valid_s, found.expires, since=now)
            self.leases[token] = made
            self.idle.append(made)
        if found.held_until is None:
            self.calls.extend(found.calls)
        if found.calls or found.places:
            self.strikes = 0 if self.held_until is None else self.strikes
        return lost

    def plan(self, now: float, hurry_s: float, round_s: float, renew_s: float) -> None:
        """When the next round is due."""
        if self.held_until is not None and (self.waiting or self.parked):
            self.due_at = min(max(self.held_until, now + hurry_s), now + 5.0)
        elif self.back or (self.give_back and self.idle):
            self.due_at = now + hurry_s
        elif self.waiting:
            self.due_at = now + round_s / 2
        elif self.parked or self.spent_before or self.spent:
            self.due_at = now + round_s
        elif self.leases:
            self.due_at = now + renew_s
        else:
            self.due_at = math.inf

    def hurry(self, now: float) -> None:
        """Somebody waits that nobody counted on."""
        if self.held_until is None or self.held_until <= now:
            self.due_at = min(self.due_at, max(now, self.asked_at + 0.05))

    def next_at(self) -> float:
        """When something is to be done here."""
        soonest = math.inf if self.asking else self.due_at
        soonest = min(soonest, self.wake_at)
        if self.cooling:
            soonest = min(soonest, *(lease.free_at for lease in self.cooling))
        if self.waiting and self.terms is not None:
            heads = [queue[0] for queue in (self.inner, *self.flows.values()) if queue]
            soonest = min(soonest, min(w.since for w in heads) + WAIT_SECONDS)
        return soonest

    def is_idle(self) -> bool:
        """Nobody knows it, and nobody asks: it need not be remembered."""
        return not self.known and not self.waiting and not self.asking


def _late(queue: deque[Waiter], now: float) -> Iterator[Waiter]:
    for waiter in queue:
        if now < waiter.since + WAIT_SECONDS:
            return
        yield waiter
