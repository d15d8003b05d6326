"""Turns at destinations: which of this worker's runs may call now, which wait here, which park.

A run whose task names a destination takes its turn before it is given to a slot; code in a slot
asks for one by ``ctx.http`` and ``ctx.limit``. The worker answers from what it holds: booked calls
(each with a first and a last instant) and places among the calls at once (leases). Both come in
rounds of a few a second for all of them together (`turn_rounds`). A place outlives the call that
uses it; when the call has ended, well or badly, its place serves the next one here.

Who would wait longer than about a second is parked (``limit:crm``, or ``held:crm`` while nobody may
call) and costs no try; whoever has room to spare wakes the parked ones, in the order of their
tickets. Tickets are given per fan-out, and those who wait here are served in turn by fan-out, so a
long one does not keep a short one waiting. Bound: about a second's calls wait here.
"""

from __future__ import annotations

import functools
import logging
import math
from typing import TYPE_CHECKING, Any, Final

from suimon.core import clock
from suimon.store import destination
from suimon.worker import wire
from suimon.worker.ledger import Ledger
from suimon.worker.turn_parts import Turn, Waiter
from suimon.worker.turn_place import ABNORMAL_SECONDS, Place

if TYPE_CHECKING:
    from suimon.store.destination import Given
    from suimon.worker.held import Held
    from suimon.worker.worker import Worker

log = logging.getLogger("suimon.worker")

#: A longer wait parks the run.
WAIT_SECONDS: Final = 1.0
#: A run that is ready is given to its slot this long before its instant.
EARLY_SECONDS: Final = 0.01
#: Between two rounds: when somebody waits, when not, and while all that happens is renewal.
HURRY_SECONDS: Final = 0.05
ROUND_SECONDS: Final = 0.2
RENEW_SECONDS: Final = 0.5
#: A place serves a new call for so long after its renewal, and never longer than this many
#: heartbeats: before anybody can have buried this worker and freed it.
VALID_SECONDS: Final = 2.0
VALID_BEATS: Final = 1.5
#: A far side that says 429 without a time: doubled with each, up to a minute.
FIRST_HOLD_SECONDS: Final = 1.0
LONGEST_HOLD_SECONDS: Final = 86_400.0
ALLOW: Final = "SUIMON_ALLOW_ADDRESSES"


class Turns:
    """The destinations of one worker. Main thread only; its ledger's thread reads and writes."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.ledger: Ledger | None = None
        self._places: dict[str, Place] = {}
        self._turns: dict[int, Turn] = {}
        self._of_run: dict[int, set[int]] = {}
        self._askers: set[int] = set()  # tries whose slots have asked for something
        self._number = 0
        self.valid_s = min(VALID_SECONDS, VALID_BEATS * worker.options.heartbeat_s)
        #: When `step` has something to do.
        self.next_at = math.inf

    # ------------------------------------------------------------------ who asks

    def enter(self, held: Held) -> None:
        """A run that is ready for its slot, but for its turn."""
        assert held.program is not None
        assert held.program.destination is not None
        place = self._place(held.program.destination)
        place.wait(Waiter(held, held.token, clock.monotonic(), places=True))
        self._look(place)

    def asked(self, held: Held, body: dict[str, Any]) -> None:
        """A slot's question: a turn, the end of one, or the word of the far side."""
        match body["op"]:
            case "turn":
                name = str(body["name"])[:100]
                if body.get("instead") is not None:
                    self._end(int(body["instead"]))
                under = self._turns.get(int(body.get("under") or 0))
                waiter = Waiter(
                    held, held.token, clock.monotonic(), question=int(body["q"]), under=under,
                    places=under is None, brief=bool(body.get("brief")),
                )  # fmt: skip
                place = self._place(name)
                place.wait(waiter)
                self._askers.add(held.token)
                self._look(place)
            case "turn_over":
                self._end(int(body["turn"]), badly=not body.get("well"))
            case "turn_held":
                self._answered_held(str(body["name"])[:100], body)
            case _:
                pass

    def over(self, held: Held, *, badly: bool = False) -> None:
        """The try has left its slot: all it held is free, all it asked for is forgotten."""
        for number in list(self._of_run.get(held.token, ())):
            self._end(number, badly=badly)
        if held.token in self._askers:
            self._askers.discard(held.token)
            for place in self._places.values():
                place.forget(held.token)

    def withdraw(self, held: Held) -> bool:
        """It does not wait here any more (cancelled, lost); whether it did."""
        if held.program is None or held.program.destination is None:
            return False
        self.over(held)
        return self._place(held.program.destination).forget(held.token)

    def waits(self) -> list[Held]:
        """Runs that wait here before they are given to a slot."""
        return [w.held for p in self._places.values() for w in p.waiters() if w.question is None]

    def heard(self, name: str) -> None:
        """Somebody has changed, held or released this destination, or its limits."""
        self._place(name).due_at = 0.0
        self.next_at = 0.0

    def start_over(self) -> None:
        """A new worker id: nothing that was given is ours any more."""
        for held in self.waits():
            held.gone = True
        self._places.clear()
        self._turns.clear()
        self._of_run.clear()
        self._askers.clear()

    def look_for_parked(self) -> None:
        """Runs may wait for destinations that no worker has met since it started."""

        def found(names: list[str]) -> None:
            for name in names:
                self.heard(name)

        self._worker.ledger.ask(destination.parked, found, _ignore)

    def close(self) -> None:
        """Give back what nobody uses; what is in use expires."""
        if self.ledger is not None:
            idle = [lease.token for place in self._places.values() for lease in place.free_leases()]
            worker = self._worker.id
            self.ledger.ask(
                lambda conn: destination.give_back(conn, worker, idle), lambda _: None, _ignore
            )
            self.ledger.close()

    # ------------------------------------------------------------------ what happens by itself

    def replies(self) -> None:
        """What has come back from the database."""
        if self.ledger is not None:
            self.ledger.replies()

    def step(self, now: float) -> None:
        """Serve, park, and begin the rounds that are due."""
        if now < self.next_at:
            return
        self.next_at = math.inf if self._worker.id else now + 0.1
        if not self._worker.id:
            return
        if self._worker.stops.drain_asked:
            self._release_waiting()
        for name, place in list(self._places.items()):
            place.come_due(now)
            self._serve(place, now)
            self._round(place, now)
            self.next_at = min(self.next_at, place.next_at())
            if place.is_idle():
                del self._places[name]

    def _release_waiting(self) -> None:
        for held in self.waits():
            self.withdraw(held)
            self._worker.outbox.release(held.fence, begun=held.run.begun)

    def _place(self, name: str) -> Place:
        found = self._places.get(name)
        if found is None:
            found = self._places[name] = Place(name, self.valid_s)
        return found

    def _look(self, place: Place) -> None:
        """Serve at once if it can be; else have a round soon."""
        now = clock.monotonic()
        self._serve(place, now)
        if place.waiting:
            place.hurry(now)
        self.next_at = min(self.next_at, place.next_at())

    # ------------------------------------------------------------------ serving

    def _serve(self, place: Place, now: float) -> None:
        if place.terms is None and not place.known:
            return
        while place.waiting:
            waiter = place.first()
            if waiter.held.gone:
                place.pop(waiter)
                continue
            given = place.give(waiter, now)
            if given is None:
                break
            place.pop(waiter)
            self._begin(place, waiter, *given)
        for waiter in place.too_late(now):
            self._park(place, waiter, now)

    def _begin(self, place: Place, waiter: Waiter, lease: Any, first: float, last: float) -> None:
        self._number += 1
        owner = waiter.under.lease if waiter.under is not None else lease
        turn = Turn(self._number, place.name, waiter.token, lease)
        held = waiter.held
        if lease is not None:
            lease.use(held.run.id, now=first)
        if waiter.brief and place.terms is not None:
            turn.ends_by = max(first, clock.monotonic()) + place.terms.timeout_s + self.valid_s + 1
            if lease is not None:
                lease.used_until = turn.ends_by
        self._turns[turn.number] = turn
        self._of_run.setdefault(waiter.token, set()).add(turn.number)
        last = min(last, math.inf if owner is None else place.valid_until(owner))
        if waiter.question is None:
            held.turn = (turn.number, first, last, self._facts(place))
            held.asks_turns = True
            if self._lacks_secret(held, place):
                self._worker.grants.give(held, functools.partial(self._to_slot, held))
            else:
                self._to_slot(held)
            return
        if self._lacks_secret(held, place):  # it comes again with the secret in its slot
            self._end(turn.number)
            self._say_later(held, waiter, 0.0, f"limit:{place.name}")
            return
        answer = {"turn": turn.number, "first": first, "last": last, **(self._facts(place) or {})}
        self._worker.send_to_slot(held, wire.answer(waiter.question, answer))

    def _to_slot(self, held: Held) -> None:
        if held.cancel:
            self.over(held)
            self._worker.results.failed_try(held, 0, {"kind": "cancelled"})
        else:
            self._worker.waiting.append(held)

    def _facts(self, place: Place) -> dict[str, Any] | None:
        """Of a destination without an address a slot need not know more."""
        if place.terms is None or (place.terms.base_url is None and place.terms.auth is None):
            return None
        return {**place.facts(), "allow": self._worker.options.environment.get(ALLOW)}

    def _lacks_secret(self, held: Held, place: Place) -> bool:
        """Is the destination's secret not among those that the run has? Then it is from now on."""
        name = place.grant()
        if name is None or name in (held.secrets or {}):
            return False
        program = held.program
        assert program is not None
        if name not in program.secrets:
            program.secrets = (*program.secrets, name)
        return True

    def _park(self, place: Place, waiter: Waiter, now: float) -> None:
        """No try, no slot: its ticket says when it comes at the latest."""
        place.pop(waiter)
        held = waiter.held
        if held.gone:
            return
        delay_s, reason = place.ticket(waiter, now)
        if waiter.question is not None:
            self._say_later(held, waiter, delay_s, reason)
            return
        self.over(held)
        self._worker.tokens.pop(held.token, None)
        delay_s = self._worker.results.before_deadline(held, delay_s)
        self._worker.outbox.park_later(held, delay_s, reason)

    def _say_later(self, held: Held, waiter: Waiter, delay_s: float, reason: str) -> None:
        held.limited = reason
        assert waiter.question is not None
        self._worker.send_to_slot(held, wire.answer(waiter.question, {"park": delay_s}))

    def _end(self, number: int, *, badly: bool = False) -> None:
        turn = self._turns.pop(number, None)
        if turn is None:
            return
        mine = self._of_run.get(turn.token)
        if mine is not None:
            mine.discard(number)
            if not mine:
                del self._of_run[turn.token]
        place = self._places.get(turn.name)
        if place is None or turn.lease is None:
            return
        now = clock.monotonic()
        place.done(turn.lease, now, now + ABNORMAL_SECONDS if badly else now)
        if place.waiting or place.give_back:
            self._look(place)

    # ------------------------------------------------------------------ the far side's word

    def _answered_held(self, name: str, body: dict[str, Any]) -> None:
        place = self._place(name)
        said = body.get("after_s")
        now = clock.monotonic()
        if said is None:
            said = min(60.0, FIRST_HOLD_SECONDS * 2 ** min(place.strikes, 6))
            if place.held_until is None or place.held_until <= now:
                place.strikes += 1
        seconds = min(max(float(said), 0.0), LONGEST_HOLD_SECONDS)
        self._hold_here(place, now + seconds)
        why = f"it answered {int(body.get('status') or 429)}"
        place.hold_known_at = math.inf  # until then a round may not know it yet

        def known(_: object) -> None:
            place.hold_known_at = clock.monotonic()

        self._ask(functools.partial(destination.hold, name=name, seconds=seconds, why=why), known)

    def _hold_here(self, place: Place, until: float | None) -> None:
        """All slots of this worker are told at once; the others' workers by the database."""
        if until == place.held_until or (until is not None and not place.hold(until)):
            return
        place.held_until = until
        line = wire.hold(place.name, until)
        for slot in self._worker.slots.table.values():
            slot.handle.send(line)
        self.next_at = 0.0

    # ------------------------------------------------------------------ rounds

    def _round(self, place: Place, now: float) -> None:
        if place.asking or now < place.due_at or self._worker.id == 0:
            return
        place.asking = True
        ask, worker = place.ask(now), self._worker.id
        work = functools.partial(destination.take, worker=worker, ask=ask)

        def given(found: Given) -> None:
            if self._places.get(place.name) is place and self._worker.id == worker:
                self._given(place, found)

        def failed(error: Exception) -> None:
            log.warning("destination %s: %s", place.name, str(error).splitlines()[:1])
            place.asking, place.due_at = False, clock.monotonic() + 1.0
            self.next_at = 0.0

        self._ask(work, given, failed)

    def _given(self, place: Place, found: Given) -> None:
        now = clock.monotonic()
        place.asking = False
        lost = place.take(found, now)
        if lost:
            log.warning("destination %s: %d places had expired", place.name, lost)
        if found.held_until is not None or found.sent > place.hold_known_at:
            self._hold_here(place, found.held_until)
        if found.pools:
            self._worker.sender.touched(found.pools)
        if found.terms is None:
            for waiter in place.waiters():
                place.pop(waiter)
                self._refuse(waiter, place.name)
        place.plan(now, HURRY_SECONDS, ROUND_SECONDS, min(RENEW_SECONDS, self.valid_s / 3))
        self._serve(place, now)
        self.next_at = 0.0

    def _refuse(self, waiter: Waiter, name: str) -> None:
        error = {
            "type": "UnknownDestination", "code": "SUI-3006", "kind": "fatal",
            "message": f'there is no destination "{name}"',
            "hint": "Declare it, and deploy: Destination(...); see: suimon limits list",
        }  # fmt: skip
        held = waiter.held
        if waiter.question is None:
            self._worker.tokens.pop(held.token, None)
            self._worker.results.failed_try(held, 0, error)
        else:
            self._worker.send_to_slot(held, wire.answer(waiter.question, {"error": error}))

    def _ask(self, work: Any, then: Any, failed: Any = None) -> None:
        if self.ledger is None:
            ring = functools.partial(self._worker.post, _nothing)
            self.ledger = Ledger(self._worker.options.url, name="limits", notify=ring)
            self.ledger.start()
        self.ledger.ask(work, then, failed or _ignore)


def _nothing() -> None:
    """The main loop is woken, and looks for replies."""


def _ignore(error: Exception) -> None:
    log.warning("limits: %s", str(error).splitlines()[:1])
