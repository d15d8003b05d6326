"""The main loop of a worker: claims for one pool, feeds slots, folds their results into few transactions.

It runs no user code and never waits: the database is another thread's (``ledger``), heartbeats have their own
(``beat``), slots and guardian are processes behind non-blocking pipes. Everything it knows is in memory and
may be lost at any moment; the database and the fence make that harmless.

    turn:  events from slots → replies of the ledger → what other threads said → timeouts → feed the slots →
           send what has gathered, with the next claim

What it promises: a result that was not stored is not reported; a run whose slot died goes back at once; a
run it holds no longer is written by it no more. What it does not: a *frozen* worker cannot end its slots at
once; its guardian does, and their writes are refused.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import selectors
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from suimon.core import clock
from suimon.run import claim, rescue
from suimon.run.claim import Claimed, Floors
from suimon.run.finish import Again, Ended, Settled
from suimon.run.spawn import Holder
from suimon.run.step import LogText, Step
from suimon.worker import batch as batches
from suimon.worker import intake, results, slotwork, wire
from suimon.worker.batch import Batch, Outcome, Want
from suimon.worker.beat import Events, Heart
from suimon.worker.drive import Driver
from suimon.worker.held import Held, Slot
from suimon.worker.idle import Idle, State
from suimon.worker.ledger import Ledger
from suimon.worker.listener import Listener
from suimon.worker.programs import Programs
from suimon.worker.upkeep import Upkeep

log = logging.getLogger("suimon.worker")

#: Results wait this long for others to share their transaction, while the slots have work.
LINGER_SECONDS: Final = 0.004
LINGER_RUNS: Final = 400
TURN_SECONDS: Final = 0.5
LOG_BYTES: Final = 1_000_000


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
    pass_environment: tuple[str, ...] = ()
    folder: str = ""
    name: str = ""
    duties: bool = True


@dataclass(slots=True)
class Outbox:
    """What waits to be written by the next batch."""

    ended: list[Ended] = field(default_factory=list)
    again: list[Again] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    logs: list[LogText] = field(default_factory=list)
    interrupted: list[tuple[str, int | None]] = field(default_factory=list)
    alone: int = rescue.ALONE_IN_SLOT
    released: list[tuple[str, int]] = field(default_factory=list)
    held_back: list[tuple[str, int, str]] = field(default_factory=list)
    lanes: set[str] = field(default_factory=set)
    fanouts: set[int] = field(default_factory=set)
    since: float = 0.0
    log_bytes: int = 0

    @property
    def urgent(self) -> int:
        """Rows that somebody waits for; log lines alone are not."""
        return (
            len(self.ended) + len(self.again) + len(self.steps) + len(self.interrupted)
            + len(self.released) + len(self.held_back)
        )  # fmt: skip


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
        self.programs = Programs()
        self.floors = Floors()
        self.idle = Idle()
        self.leaving = False
        self.exit_code = 0
        self._numbers = itertools.count(1)
        self._in_flight = False
        self._reconciling = False
        self._lost_answers = 0
        self._drain_asked = 0
        self._drain_ends_at: float | None = None
        self._inbox: deque[Callable[[], None]] = deque()
        self._selector = selectors.DefaultSelector()
        self._bell_out, self._bell_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._bell_out, selectors.EVENT_READ, "bell")
        self._rung = False
        self.ledger = Ledger(options.url, name="worker", notify=self._ring)
        self.slots = slotwork.Slots(self, self._selector)
        self.results = results.Results(self)
        self.driver = Driver(self)
        self._intake = intake.Intake(self)
        self.heart: Heart | None = None
        self.upkeep = Upkeep(options.url, 0, options.sweep_s, duties=options.duties)
        self._listener: Listener | None = None

    # ------------------------------------------------------------------ life

    def run(self) -> int:
        """Work until drained, buried for good, or unable to run code; returns the exit code."""
        self.ledger.start()
        self.slots.start_all()
        try:
            while not self._over():
                self._turn()
        finally:
            self._close()
        return self.exit_code

    def drain(self) -> None:
        """Called from a signal handler: once to finish what runs and leave, twice to leave now."""
        self._drain_asked += 1
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
        while self._inbox:
            self._inbox.popleft()()
        now = clock.monotonic()
        if self.heart is not None:
            self.heart.check()
        self.slots.watch(now)
        self._release_unplaced(now)
        self._drain_step(now)
        if self.idle.due(now):
            log.debug("looking, since another worker was named")
        if not self.leaving:
            self.slots.assign(self.waiting)
        self._probe(now)
        self._flush(now)
        self.slots.watch_writes()

    def _dispatch(self, key: selectors.SelectorKey, events: int) -> None:
        if key.data == "bell":
            self._rung = False
            try:
                os.read(self._bell_out, 4096)
            except BlockingIOError:
                return
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
        if self.outbox.urgent and not self._in_flight:
            soonest = min(soonest, max(0.0, self.outbox.since + LINGER_SECONDS - now))
        if self.idle.state is State.PROBING and not self._in_flight:
            soonest = min(soonest, max(0.0, self.idle.next_at - now))
        if self.idle.look_at is not None:
            soonest = min(soonest, max(0.0, self.idle.look_at - now))
        return soonest

    def _over(self) -> bool:
        if self.slots.failed_starts >= slotwork.FAILED_STARTS and not self.leaving:
            log.error("the code cannot be loaded; this worker leaves")
            self.exit_code = 1
            self.leaving = True
        if not self.leaving:
            return False
        return not self.held and not self._in_flight and not self.outbox.urgent

    def _close(self) -> None:
        if self.id:
            worker = self.id
            self.ledger.ask(lambda conn: rescue.leave(conn, worker), lambda _: None, lambda _: None)
        self.ledger.close()
        for thread in (self.heart, self._listener, self.upkeep):
            if thread is not None:
                thread.close()
        self.slots.close()
        for one in (self.ledger, self.heart, self._listener, self.upkeep):
            if one is not None and one.is_alive():
                one.join(timeout=5.0)
        self._selector.close()

    # ------------------------------------------------------------------ joining

    def slot_ready(self, slot: Slot, hello: dict[str, Any]) -> None:
        """A slot has loaded the code. The first one's list of functions makes this worker known."""
        slot.ready = True
        self.slots.failed_starts = 0
        for error in hello.get("errors", []):
            log.error("module %s was not loaded: %s", error.get("module"), error.get("message"))
        self.programs.tasks = hello.get("tasks", {})
        if self.heart is None and not self._registering:
            self._register()

    _registering = False

    def _register(self) -> None:
        self._registering = True
        facts = intake.facts_of_worker(self.options, sorted(self.programs.tasks))

        def work(conn: Any) -> int:
            return rescue.register(conn, facts)

        def failed(error: Exception) -> None:
            log.error("cannot register: %s", error)
            self.exit_code = 1
            self.leaving = True

        self.ledger.ask(work, self._registered, failed)

    def _registered(self, worker: int) -> None:
        self._registering = False
        self.id = worker
        log.info("worker %d claims for pool %s", worker, self.pool)
        events = Events(
            buried_me=lambda: self.post(self._start_over),
            buried=lambda _: self.upkeep.rescue_soon(),
            asked_to_cancel=lambda: self.post(self.look_for_cancels),
            must_end_slots=lambda: self.post(self._end_slots),
        )
        self.heart = Heart(self.options.url, worker, self.options.heartbeat_s, events)
        self.heart.start()
        self.upkeep.set_worker(worker)
        if self._listener is None:
            self.upkeep.start()
            self._listener = Listener(
                self.options.listen_url, woken=self._heard, look=lambda: self.post(self.hungry)
            )
            self._listener.start()
        self._readmit()
        self.hungry()

    def _readmit(self) -> None:
        reasons = [f"no_code:{task}" for task in self.programs.tasks]
        work = functools.partial(intake.readmit_all, pool=self.pool, reasons=reasons)
        self.ledger.ask(work, lambda n: self.hungry() if n else None, lambda e: log.warning("%s", e))

    def _start_over(self) -> None:
        """Declared dead: nothing held is ours. End the slots, and come back as a new worker."""
        log.warning("starting over as a new worker: %d runs are not ours any more", len(self.held))
        for held in list(self.held.values()):
            self.drop(held)
        self.waiting.clear()
        self.outbox = Outbox()
        self.slots.kill_all("its worker was declared dead")
        if self.heart is not None:
            self.heart.close()
            self.heart = None
        self.id = 0
        self.idle = Idle()

    def _end_slots(self) -> None:
        log.error("no heartbeat was accepted for too long: ending the slots before others take over")
        self.slots.kill_all("no heartbeat was accepted")

    def _heard(self, channel: str, payload: str) -> None:
        if channel == "suimon_cancel":
            if payload == str(self.id):
                self.post(self.look_for_cancels)
            return
        pool, _, worker = payload.rpartition(" ")
        if pool != self.pool:
            return
        if worker in (str(self.id), "*"):
            self.post(self.hungry)
        else:
            self.post(lambda: self.idle.look_later(clock.monotonic()))

    # ------------------------------------------------------------------ what is held

    def hold(self, row: Claimed) -> Held:
        held = Held(row, next(self._numbers), attempt=row.attempt, interruptions=row.interruptions)
        self.held[row.id] = held
        return held

    def holder(self, held: Held) -> Holder:
        return Holder(held.run.id, held.run.claim_no, self.id)

    def enqueue(self, held: Held) -> None:
        """It has a program and inputs: the next slot with room takes it."""
        held.token = next(self._numbers)
        self.tokens[held.token] = held
        if held.run.alone >= rescue.ALONE_IN_WORKER:
            self.solitary.add(held.token)
        self.waiting.append(held)

    def send_to_slot(self, held: Held, line: bytes) -> None:
        slot = self.slots.table.get(held.slot) if held.slot is not None else None
        if slot is not None:
            slot.handle.send(line)

    def drop(self, held: Held) -> None:
        """Not held any more: ended, parked, released or lost. A slot that has it is not listened to."""
        held.gone = True
        if self.held.get(held.run.id) is held:
            del self.held[held.run.id]
        self.solitary.discard(held.token)
        if held.slot is None:
            self.tokens.pop(held.token, None)

    def lost(self, held: Held) -> None:
        """The fence refused a write: somebody else has this run, or it was asked to stop."""
        if held.cancel or held.run.id not in self.held:
            return
        log.warning("run %s: not ours any more, or asked to stop", held.run.id)
        self._stop_in_slot(held)
        self._reconcile_soon()

    def failed(self, held: Held, error: Exception) -> None:
        """The ledger could not do what this run needs: it goes back uncounted, and the log says why."""
        if held.gone:
            return
        log.error("run %s: %s: %s", held.run.id, type(error).__name__, error)
        self.end_failed(held, "failed", {"type": type(error).__name__, "message": str(error)[:2000]})

    # ------------------------------------------------------------------ records

    def _touch(self, lane: str | None, fanout_id: int | None) -> None:
        if not self.outbox.urgent:
            self.outbox.since = clock.monotonic()
        if lane is not None:
            self.outbox.lanes.add(lane)
        if fanout_id is not None:
            self.outbox.fanouts.add(fanout_id)

    def end(self, held: Held, ended: Ended) -> None:
        self._touch(held.run.lane, held.run.fanout_id)
        self.outbox.ended.append(ended)

    def end_failed(self, held: Held, status: str, error: Any) -> None:
        run, text = held.run, orjson.dumps(error).decode()
        self.end(held, Ended(run.id, run.claim_no, status, "", text, 0, run.fanout_id, run.lane))

    def end_cancelled(self, held: Held) -> None:
        self.end_failed(held, "cancelled", {"type": "Cancelled", "message": "asked to stop, and stopped"})

    def try_again(self, held: Held, again: Again) -> None:
        self._touch(None, None)
        self.outbox.again.append(again)

    def record_step(
        self, held: Held, vertex: str, status: str, took_us: int, output: str, error: str
    ) -> None:
        self._touch(None, None)
        run = held.run
        self.outbox.steps.append(Step(run.id, run.claim_no, vertex, status, took_us, output, error))

    def hold_back(self, held: Held, reason: str) -> None:
        self._touch(held.run.lane, None)
        self.outbox.held_back.append((*held.fence, reason))

    def release(self, held: Held) -> None:
        """It never began here: back to the queue, uncounted."""
        self._touch(None, None)
        self.outbox.released.append(held.fence)

    def interrupt(self, held: Held, *, alone: bool) -> None:
        """Its slot died while it may have been at work."""
        self._touch(held.run.lane, held.run.fanout_id)
        self.outbox.interrupted.append(held.fence)
        if alone:
            self.outbox.alone = rescue.ALONE_IN_SLOT

    def add_log(self, held: Held, stream: str, text: str) -> None:
        run = held.run
        self.outbox.logs.append(LogText(run.id, run.claim_no, stream, text))
        self.outbox.log_bytes += len(text)
        if len(self.outbox.logs) == 1 and not self.outbox.urgent:
            self.outbox.since = clock.monotonic()

    # ------------------------------------------------------------------ slots tell

    def slot_died(self, slot: Slot, begun: list[Held], rest: list[Held], cause: str) -> None:
        """Sort the runs of a dead slot: timed out, cancelled, too large, interrupted, not begun."""
        marked = any(h.failing for h in begun)
        for held in begun:
            held.slot = None
            self.tokens.pop(held.token, None)
            if held.gone:
                continue
            if held.failing == "timed_out":
                assert held.program is not None
                text = f"it ran longer than its timeout of {held.program.timeout_s:g} s"
                self.results.failed_try(held, 0, {"type": "TimedOut", "message": text, "kind": "timeout"})
            elif held.cancel or held.failing == "cancelled":
                held.cancel = True
                self.results.failed_try(held, 0, {"kind": "cancelled"})
            elif held.failing is not None:
                self.results.failed_try(
                    held, 0, {"type": "MemoryLimit", "message": held.failing, "kind": "error"}
                )
            elif marked:
                self._back(held)  # an innocent neighbour of an async task that was ended
            else:
                log.warning("run %s was at work in slot %d when it ended (%s)", held.run.id, slot.no, cause)
                self.interrupt(held, alone=len(begun) > 1)
        for held in reversed(rest):
            held.slot = None
            if not held.gone:
                self._back(held)
        slot.given.clear()

    def _back(self, held: Held) -> None:
        """To another slot of this worker, or to the queue when it is leaving."""
        if self.leaving or self._drain_asked:
            self.release(held)
        elif held.cancel:
            self.results.failed_try(held, 0, {"kind": "cancelled"})
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
                held.waited_since = now
                if not held.gone:
                    self._back(held)

    def _release_unplaced(self, now: float) -> None:
        """Runs that no slot takes go back, so that another worker can have them."""
        if not self.waiting or self.solitary:
            return
        busy = all(s.busy for s in self.slots.table.values() if s.ready)
        if self._drain_asked or (busy and now - self._oldest_wait() > slotwork.UNPLACED_SECONDS):
            for held in self.waiting:
                self.release(held)
            self.waiting.clear()

    def _oldest_wait(self) -> float:
        first = self.waiting[0]
        if not first.waited_since:
            first.waited_since = clock.monotonic()
        return first.waited_since

    # ------------------------------------------------------------------ cancel and drain

    def look_for_cancels(self) -> None:
        """Somebody asked one of our runs to stop: which?"""
        worker = self.id
        self.ledger.ask(
            lambda conn: conn.execute(claim.SQL.cancel_requests, {"worker": worker}).fetchall(),
            self._cancel_these,
            lambda error: log.warning("cannot read cancels: %s", error),
        )

    def _cancel_these(self, rows: Iterable[tuple[str, int]]) -> None:
        for run_id, claim_no in rows:
            held = self.held.get(run_id)
            if held is None or held.run.claim_no != claim_no or held.cancel:
                continue
            held.cancel = True
            if held.slot is not None:
                self._stop_in_slot(held)
            elif held in self.waiting:
                self.waiting.remove(held)
                self.results.failed_try(held, 0, {"kind": "cancelled"})

    def _stop_in_slot(self, held: Held) -> None:
        if held.slot is not None and held.cancel_at is None:
            held.cancel_at = clock.monotonic()
            self.send_to_slot(held, wire.cancel(held.token))

    def _drain_step(self, now: float) -> None:
        if not self._drain_asked or self.leaving:
            return
        if self._drain_ends_at is None:
            timeout_s = self.options.drain_timeout_s
            self._drain_ends_at = float("inf") if timeout_s is None else now + timeout_s
            log.info("draining: %d runs are held", len(self.held))
            if self.heart is not None:
                self.heart.draining = True
            for slot in self.slots.table.values():
                slot.handle.send(wire.GIVE_BACK)
        if self._drain_asked > 1 or now >= self._drain_ends_at:
            log.warning("leaving now: %d runs go back", len(self.held))
            self.leaving = True
            for held in list(self.held.values()):
                self.release(held)
                held.gone = True
            self.slots.kill_all("its worker leaves")
        elif not self.held and not self._in_flight and not self.outbox.urgent:
            self.leaving = True

    # ------------------------------------------------------------------ the batch

    def hungry(self) -> None:
        """There may be work: claim as soon as there is room."""
        if self.idle.state is not State.HUNGRY:
            self.idle.wake()

    def touched(self, pools: Iterable[str]) -> None:
        """Runs of these pools became claimable."""
        others = {p for p in pools if p != self.pool}
        if len(others) != len(set(pools)):
            self.hungry()
        self.upkeep.wake(tuple(sorted(others)))

    def follow(self, settled: Settled) -> None:
        """What a settle asks for."""
        self.touched(settled.pools)
        self.upkeep.end_parents(settled.stopped_parents)
        if settled.stragglers:
            self.upkeep.cancel_soon()

    def _room(self) -> int:
        """How many runs to claim now."""
        if self.id == 0 or self._drain_asked or self.heart is None or not self.heart.may_claim:
            return 0
        if self.idle.state is not State.HUNGRY or self.solitary:
            return 0
        return self.slots.capacity(len(self.waiting))

    def _flush(self, now: float) -> None:
        """Send what has gathered, with the next claim; one batch is under way at a time."""
        if self._in_flight or self._reconciling or self.id == 0:
            return
        if self._lost_answers != self.ledger.lost_answers:
            self._reconcile()
            return
        out = self.outbox
        room = self._room()
        starving = room > 0 and any(s.ready and not s.busy for s in self.slots.table.values())
        logs_due = bool(out.logs) and (out.log_bytes > LOG_BYTES or now - out.since > TURN_SECONDS)
        if not out.urgent and not logs_due and room == 0 and not self.idle.flagged_off_due:
            return
        if out.urgent and not starving and out.urgent < LINGER_RUNS and now - out.since < LINGER_SECONDS:
            return
        if not out.urgent and not starving and not logs_due and room < claim.SMALL_CLAIM:
            if not self.idle.flagged_off_due and any(s.busy for s in self.slots.table.values()):
                return
        self._send(now, room)

    def _send(self, now: float, room: int) -> None:
        out, self.outbox = self.outbox, Outbox()
        batch = Batch(
            self.id, self.options.name, out.ended, out.again, out.steps, out.logs, out.interrupted,
            out.alone, out.released, out.held_back, out.lanes, out.fanouts,
            wake_from_idle=self.idle.flagged_off_due, heads=self._heads,
        )  # fmt: skip
        self._heads = {}
        self.idle.flagged_off_due = False
        if room > 0:
            floors, unfloored = self.floors.start(now, unfloored=self.idle.unfloored)
            batch.want = Want(self.pool, room, floors, unfloored)
        self._in_flight = True
        self.ledger.ask(
            functools.partial(batches.execute, batch=batch),
            functools.partial(self._sent, batch),
            functools.partial(self._not_sent, batch),
        )

    _heads: dict[int, int] = {}  # noqa: RUF012  (replaced, never changed)

    def _sent(self, batch: Batch, outcome: Outcome) -> None:
        """A batch is committed: drop what has left, go on with what was recorded, take what came."""
        self._in_flight = False
        for ended in batch.ended:
            self._left(ended.id, ended.claim_no)
        for again in batch.again:
            self._parked(again, outcome)
        for left in (*batch.interrupted, *batch.released, *(h[:2] for h in batch.held_back)):
            self._left(left[0], left[1] or 0)
        for step in batch.steps:
            held = self.held.get(step.id)
            if held is None or held.run.claim_no != step.claim_no or held.gone:
                continue
            if (step.id, step.vertex) in outcome.steps:
                held.attempt, held.interruptions = 1, 0
                self.driver.advance(held)
            else:
                self.lost(held)
        self.follow(outcome.settled)
        self.touched(outcome.pools)
        if batch.released and not self._drain_asked:
            self.hungry()
        if batch.want is not None:
            self._learn(batch.want, outcome)

    def _left(self, run_id: str, claim_no: int) -> None:
        held = self.held.get(run_id)
        if held is not None and held.run.claim_no == claim_no:
            self.drop(held)

    def _parked(self, again: Again, outcome: Outcome) -> None:
        held = self.held.get(again.id)
        if held is None or held.run.claim_no != again.claim_no:
            return
        if again.id in outcome.again:
            self.upkeep.arm(again.delay_s)
            self.drop(held)
        else:
            held.cancel = True  # asked to stop meanwhile, or lost: a fenced end decides
            self.results.failed_try(held, 0, {"kind": "cancelled"})

    def _learn(self, want: Want, outcome: Outcome) -> None:
        now = clock.monotonic()
        assert self.heart is not None or self.id == 0
        self.floors.workers = self.heart.workers if self.heart is not None else 1
        self.floors.learn(now, outcome.claimed, unfloored=want.unfloored, took=outcome.took)
        self._heads = self.floors.heads_to_publish(now, outcome.claimed)
        if outcome.claimed:
            self.idle.unfloored = False
            if self.idle.flagged:
                self.idle.flagged = False
                self.idle.flagged_off_due = True
            self._intake.take(outcome.claimed)
        elif not want.unfloored:
            self.idle.unfloored = True  # an empty floored claim proves nothing
        else:
            self.idle.nothing_found(now)

    def _not_sent(self, batch: Batch, error: Exception) -> None:
        """PostgreSQL refuses the batch as a whole: a defect, or a full disk. Nothing is dropped."""
        self._in_flight = False
        log.error("a batch was refused: %s", str(error).splitlines()[0] if str(error) else error)
        out = self.outbox
        out.ended[:0], out.again[:0], out.steps[:0] = batch.ended, batch.again, batch.steps
        out.interrupted[:0], out.released[:0] = batch.interrupted, batch.released
        out.held_back[:0] = batch.held_back
        out.lanes |= batch.lanes
        out.fanouts |= batch.fanouts
        out.since = clock.monotonic() + 1.0  # once a second, not as fast as it can
        self._in_flight = True
        self.upkeep.call_later(1.0, lambda: self.post(self._may_send_again))

    def _may_send_again(self) -> None:
        self._in_flight = False

    # ------------------------------------------------------------------ silence

    def _probe(self, now: float) -> None:
        """Prove that nobody was missed, then be silent."""
        idle = self.idle
        if idle.state is not State.PROBING or self._in_flight or now < idle.next_at or self.id == 0:
            return
        if self.outbox.urgent or self.slots.capacity(len(self.waiting)) == 0 or self._drain_asked:
            idle.state = State.HUNGRY if not self._drain_asked else idle.state
            return
        self._in_flight = True
        room = self.slots.capacity(len(self.waiting))
        work = functools.partial(
            batches.probe, worker=self.id, worker_name=self.options.name, pool=self.pool, n=room,
            mark=idle.mark,
        )  # fmt: skip
        self.ledger.ask(work, self._probed, self._probe_failed)

    def _probed(self, answer: batches.Probe) -> None:
        self._in_flight = False
        idle, now = self.idle, clock.monotonic()
        if answer.mark is None:
            return  # buried: the heart says so
        idle.mark, idle.flagged = answer.mark, True
        if idle.state is not State.PROBING and not answer.outcome.claimed:
            return  # woken meanwhile
        idle.probed(now, found=bool(answer.outcome.claimed), safe=answer.safe)
        if answer.outcome.claimed:
            want = Want(self.pool, len(answer.outcome.claimed), [0] * claim.PRIORITIES, unfloored=True)
            self._learn(want, answer.outcome)

    def _probe_failed(self, error: Exception) -> None:
        self._in_flight = False
        self.idle.next_at = clock.monotonic() + 1.0
        log.warning("probe: %s", error)

    # ------------------------------------------------------------------ reconcile

    def _reconcile_soon(self) -> None:
        self._lost_answers = -1

    def _reconcile(self) -> None:
        """An answer was lost: compare what the database says we hold with what we do hold."""
        self._reconciling = True
        self._lost_answers = self.ledger.lost_answers
        worker = self.id
        self.ledger.ask(
            lambda conn: claim.holdings(conn, worker), self._compare, self._cannot_compare
        )

    def _cannot_compare(self, error: Exception) -> None:
        self._reconciling = False
        self._lost_answers = -1
        log.warning("cannot compare holdings: %s", error)

    def _compare(self, rows: list[tuple[str, int, bool]]) -> None:
        self._reconciling = False
        theirs = {(run_id, claim_no) for run_id, claim_no, _ in rows}
        ours = {held.fence: held for held in self.held.values()}
        unknown = sorted(theirs - set(ours))
        if unknown:
            log.warning("releasing %d claims whose answer was lost", len(unknown))
            self._touch(None, None)
            self.outbox.released += unknown
        for fence, held in ours.items():
            if fence not in theirs:
                self._stop_in_slot(held)
                self.drop(held)
                if held in self.waiting:
                    self.waiting.remove(held)
        self._cancel_these([(i, c) for i, c, asked in rows if asked])
        self.hungry()
