"""The main loop of a worker: it claims for one pool, feeds slots, and stores what they give.

It runs no user code and never waits: the database is another thread's (``ledger``), heartbeats have
their own (``beat``), slots and guardian are processes behind non-blocking pipes. Everything it
knows is in memory and may be lost at any moment; the database and the fence make that harmless.

    turn:  events from slots → replies of the ledger → what other threads said → timeouts →
           feed the slots → send what has gathered, with the next claim

What it promises: a result that was not stored is not reported; a run whose slot died goes back at
once; a run it holds no longer is written by it no more. What it does not: a *frozen* worker cannot
end its slots at once; its guardian does, and their writes are refused.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import selectors
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from suimon.core import clock
from suimon.run import rescue
from suimon.run.claim import Claimed
from suimon.run.spawn import Holder
from suimon.store.secret_key import KeyRing
from suimon.worker import intake, results, sender, slotwork
from suimon.worker.beat import Heart
from suimon.worker.drive import Driver
from suimon.worker.grants import Grants
from suimon.worker.guardian import PROCESSES_PER_SLOT, TOO_MANY
from suimon.worker.held import Held, Slot
from suimon.worker.idle import State
from suimon.worker.joining import Joining
from suimon.worker.ledger import Ledger
from suimon.worker.outbox import Outbox
from suimon.worker.pace import Pace
from suimon.worker.programs import Programs
from suimon.worker.sender import Sender
from suimon.worker.slots import GuardianLostError
from suimon.worker.spawning import Spawner
from suimon.worker.stops import Stops
from suimon.worker.turns import Turns
from suimon.worker.upkeep import Upkeep
from suimon.worker.waiting import Waiter, deadline_passed

log = logging.getLogger("suimon.worker")

TURN_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How one worker is run; times in seconds."""

    url: str
    listen_url: str
    root: str
    pool: str = "default"
    slots: int = 2
    async_per_slot: int = 1
    heartbeat_s: float = 5.0
    sweep_s: float = 45.0
    drain_timeout_s: float | None = None
    cancel_grace_s: float = 5.0
    memory_per_slot_mb: int | None = None
    processes_per_slot: int = PROCESSES_PER_SLOT
    pass_environment: tuple[str, ...] = ()
    folder: str = ""
    name: str = ""
    duties: bool = True
    #: Where paths of inputs may lead, besides the root and the folders of FILE triggers.
    read_folders: tuple[str, ...] = ()
    #: What it was started with, for references such as env:NAME and for the key of secrets; its own
    #: environment shows nothing of it.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


class Worker:
    """One boot of one worker. ``run`` returns the exit code."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.pool = options.pool
        self.id = 0
        self.held: dict[str, Held] = {}
        self.tokens: dict[int, Held] = {}
        self.waiting: deque[Held] = deque()
        self.solitary: set[int] = set()
        self.outbox = Outbox()
        self.programs = Programs(options.pool)
        self.leaving = False
        self.exit_code = 0
        self._numbers = itertools.count(1)
        self._inbox: deque[Callable[[], None]] = deque()
        self._selector = selectors.DefaultSelector()
        self._bell_out, self._bell_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._bell_out, selectors.EVENT_READ, "bell")
        self._rung = False
        self.ledger = Ledger(options.url, name="worker", notify=self._ring)
        #: For what runs with several vertices need between their steps: no batch waits for a chunk.
        self.desk = Ledger(options.url, name="desk", notify=self._ring)
        self.slots = slotwork.Slots(self, self._selector)
        self.pace = Pace()
        self.results = results.Results(self)
        self.driver = Driver(self)
        self.spawner = Spawner(self)
        self.waiter = Waiter(self)
        self.grants = Grants(self)
        self.turns = Turns(self)
        self.joining = Joining(self)
        self.intake = intake.Intake(self)
        self.sender = Sender(self)
        self.stops = Stops(self)
        self.heart: Heart | None = None
        ring = KeyRing.of(options.environment)
        self.upkeep = Upkeep(options.url, 0, options.sweep_s, duties=options.duties, keyring=ring)

    # ------------------------------------------------------------------ life

    def run(self) -> int:
        """Work until drained, buried for good, or unable to run code; returns the exit code."""
        self.ledger.start()
        self.desk.start()
        self.slots.start_all()
        try:
            while not self._over():
                self._turn()
        except GuardianLostError as error:
            log.error("this worker leaves: %s", error)
            self.exit_code = 1
        finally:
            self._close()
        return self.exit_code

    def drain(self) -> None:
        """Called from a signal handler: once to finish what runs and leave, twice to leave now."""
        self.stops.drain_asked += 1
        self._ring()

    def post(self, act: Callable[[], None]) -> None:
        """Have ``act`` called by the main loop; for the other threads."""
        self._inbox.append(act)
        self._ring()

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            try:
                os.write(self._bell_in, b"!")
            except BlockingIOError:
                return

    def _turn(self) -> None:
        for key, events in self._selector.select(self._patience()):
            self._dispatch(key, events)
        self.slots.guardian.stamp()
        self.ledger.replies()
        self.desk.replies()
        self.turns.replies()
        while self._inbox:
            self._inbox.popleft()()
        now = clock.monotonic()
        if self.heart is not None:
            self.heart.check()
        self.slots.watch(now)
        self._release_unplaced(now)
        self.stops.drain_step(now)
        self.turns.step(now)
        if self.sender.idle.due(now):
            log.debug("looking, since another worker was named")
        if not self.leaving and (self.heart is None or self.heart.may_claim):
            self.slots.assign(self.waiting)
        self.sender.probe(now)
        self.sender.flush(now)
        self.slots.watch_writes()

    def _dispatch(self, key: selectors.SelectorKey, events: int) -> None:
        if key.data == "bell":
            with contextlib.suppress(BlockingIOError):
                os.read(self._bell_out, 4096)
            # after the read: a ring in between found the flag set, and what it rang for is dealt
            # with below
            self._rung = False
        elif key.data == "guardian":
            self.slots.events()
        else:
            slot: Slot = key.data
            if slot.handle.closed:
                return
            if events & selectors.EVENT_WRITE:
                slot.handle.flush()
            if events & selectors.EVENT_READ:
                self._read(slot, key.fd)

    def _read(self, slot: Slot, fd: int) -> None:
        self.results.drain_raw(slot)
        if fd != slot.handle.from_fd:
            return
        lines = slot.handle.read_lines()
        if lines is None:
            self._selector.unregister(fd)  # its exit comes from the guardian
        elif lines:
            self.results.lines(slot, lines)

    def _patience(self) -> float:
        now = clock.monotonic()
        if self._inbox:
            return 0.0
        soonest = min(TURN_SECONDS, self.slots.next_look(now), self.options.heartbeat_s / 2)
        soonest = min(soonest, max(0.0, self.turns.next_at - now))
        if self.outbox.urgent and not self.sender.in_flight:
            soonest = min(soonest, max(0.0, self.outbox.since + sender.LINGER_SECONDS - now))
        if self.sender.idle.state is State.PROBING and not self.sender.in_flight:
            soonest = min(soonest, max(0.0, self.sender.idle.next_at - now))
        if self.sender.idle.look_at is not None:
            soonest = min(soonest, max(0.0, self.sender.idle.look_at - now))
        return soonest

    def _over(self) -> bool:
        if self.slots.failed_starts >= slotwork.FAILED_STARTS and not self.leaving:
            log.error("the code cannot be loaded; this worker leaves")
            self.exit_code = 1
            self.leaving = True
        if not self.leaving:
            return False
        said = not self.held and not self.sender.in_flight and not self.outbox.urgent
        return said or self.stops.waited_enough(clock.monotonic())

    def _close(self) -> None:
        if self.id:
            worker = self.id
            self.ledger.ask(lambda conn: rescue.leave(conn, worker), lambda _: None, lambda _: None)
        self.turns.close()
        self.ledger.close()
        self.desk.close()
        for thread in (self.heart, self.joining.listener, self.upkeep):
            if thread is not None:
                thread.close()
        self.slots.close()
        threads = (self.ledger, self.desk, self.turns.ledger, self.heart, self.joining.listener)
        for one in (*threads, self.upkeep):
            if one is not None and one.is_alive():
                one.join(timeout=5.0)
        self._selector.close()

    # ------------------------------------------------------------------ what is held

    def hold(self, row: Claimed) -> Held:
        held = Held(row, next(self._numbers), attempt=row.attempt, interruptions=row.interruptions)
        self.held[row.id] = held
        return held

    def holder(self, held: Held) -> Holder:
        return Holder(held.run.id, held.run.claim_no, self.id)

    def enqueue(self, held: Held) -> None:
        """It has a program and inputs: the next slot with room takes it."""
        if held.cancel:
            self.results.failed_try(held, 0, {"kind": "cancelled"})
            return
        held.token = next(self._numbers)
        self.tokens[held.token] = held
        if held.run.alone >= rescue.ALONE_IN_WORKER:
            self.solitary.add(held.token)
        assert held.program is not None
        if held.program.destination is not None:
            self.turns.enter(held)
        else:
            self.waiting.append(held)

    def send_to_slot(self, held: Held, line: bytes) -> None:
        slot = self.slots.table.get(held.slot) if held.slot is not None else None
        if slot is not None:
            slot.handle.send(line)

    @property
    def lost_answers(self) -> int:
        """How often an answer was lost with its connection; then holdings are compared."""
        return self.ledger.lost_answers + self.desk.lost_answers

    def drop(self, held: Held) -> None:
        """Not held any more: ended, parked, released or lost. A slot that has it is not heard."""
        held.gone = True
        if self.held.get(held.run.id) is held:
            del self.held[held.run.id]
        self.solitary.discard(held.token)
        if held.slot is None:
            self.tokens.pop(held.token, None)
            if held.asks_turns:
                self.turns.over(held)

    def lost(self, held: Held) -> None:
        """The fence refused a write: somebody else has this run, or it was asked to stop."""
        if held.cancel or held.run.id not in self.held:
            return
        log.warning("run %s: not ours any more, or asked to stop", held.run.id)
        self.stops.stop_in_slot(held)
        self.sender.reconcile_soon()

    def failed(self, held: Held, error: Exception) -> None:
        """The ledger could not do what this run needs."""
        if not held.gone:
            self.outbox.could_not(held, error)

    # ------------------------------------------------------------------ slots tell

    def slot_died(
        self, slot: Slot, begun: list[Held], rest: list[Held], cause: str, *, alone: int
    ) -> None:
        """Sort the runs of a dead slot: timed out, cancelled, too large, interrupted, not begun."""
        marked = any(h.failing for h in begun)
        for held in (*begun, *rest):
            if held.asks_turns:
                self.turns.over(held, badly=True)
        for held in begun:
            held.slot = None
            self.tokens.pop(held.token, None)
            if held.gone:
                continue
            if held.failing == "timed_out":
                assert held.program is not None
                text = f"it ran longer than its timeout of {held.program.timeout_s:g} s"
                self.results.failed_try(
                    held, 0, {"type": "TimedOut", "message": text, "kind": "timeout"}
                )
            elif held.cancel or held.failing == "cancelled":
                held.cancel = True
                self.results.failed_try(held, 0, {"kind": "cancelled"})
            elif held.failing == "deadline":
                self.results.failed_try(held, 0, deadline_passed())
            elif held.failing is not None:
                kind = "ProcessLimit" if held.failing.startswith(TOO_MANY) else "MemoryLimit"
                self.results.failed_try(
                    held, 0, {"type": kind, "message": held.failing, "kind": "error"}
                )
            elif marked:
                self._back(held)  # an innocent neighbour of an async task that was ended
            else:
                log.warning(
                    "run %s was at work in slot %d when it ended (%s)", held.run.id, slot.no, cause
                )
                self.outbox.interrupt(held, alone=alone)
        for held in reversed(rest):
            held.slot = None
            if not held.gone:
                self._back(held)
        slot.given.clear()

    def _back(self, held: Held) -> None:
        """To another slot of this worker, or to the queue when it is leaving."""
        if self.leaving or self.stops.drain_asked:
            self.outbox.release(held.fence, begun=held.run.begun)
        elif held.cancel:
            self.results.failed_try(held, 0, {"kind": "cancelled"})
        elif held.program is not None and held.program.destination is not None:
            self.turns.enter(held)
        else:
            self.waiting.appendleft(held)

    def given_back(self, slot: Slot, tokens: Iterable[int]) -> None:
        """What a slot had not begun; its first run is slow, or the worker drains."""
        slot.asked_back = False
        now = clock.monotonic()
        for token in sorted(tokens, reverse=True):
            held = self.tokens.get(token)
            if held is not None and held.slot == slot.no:
                slot.take(held, now)
                if held.asks_turns:
                    self.turns.over(held)
                held.waited_since = now
                if not held.gone:
                    self._back(held)

    def _release_unplaced(self, now: float) -> None:
        """Runs that no slot takes go back, so that another worker can have them."""
        if not self.waiting or self.solitary:
            return
        busy = all(s.busy for s in self.slots.table.values() if s.ready)
        if self.stops.drain_asked or (
            busy and now - self._oldest_wait() > slotwork.UNPLACED_SECONDS
        ):
            for held in self.waiting:
                self.outbox.release(held.fence, begun=held.run.begun)
            self.waiting.clear()

    def _oldest_wait(self) -> float:
        first = self.waiting[0]
        if not first.waited_since:
            first.waited_since = clock.monotonic()
        return first.waited_since
