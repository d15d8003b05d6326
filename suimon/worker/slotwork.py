"""The slots of a worker: started, fed, watched, ended and replaced.

A slot executes its runs in order and writes each result before it begins the next, so of the runs
it was given only the first one can have begun (or, of async tasks, the first few). That is why its
death repeats only what was unfinished: the others go to another slot, uncounted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from suimon.core import clock
from suimon.run import rescue
from suimon.worker import guardian, wire
from suimon.worker.held import AHEAD_RUNS, AHEAD_SECONDS, Held, Slot
from suimon.worker.slots import Event, Exited, Guardian, GuardianDied, Silent, Started

if TYPE_CHECKING:
    from suimon.worker.worker import Worker

log = logging.getLogger("suimon.worker")

#: A first run that takes longer than this makes its slot give back what stands behind it.
RECALL_SECONDS: Final = 0.25
#: What no slot takes for this long goes back to the queue.
UNPLACED_SECONDS: Final = 1.0
#: An async task ends itself at its timeout; a slot that does not answer for this much longer is
#: ended.
ASYNC_GRACE_SECONDS: Final = 5.0
#: So many runs in a row may be passed by while a slot is replaced for them.
PASSED_RUNS: Final = 100
MEMORY_LOOK_SECONDS: Final = 0.5
#: So many slots in a row that end before they are ready: the code cannot be loaded at all.
FAILED_STARTS: Final = 5
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Slots:
    """The table of slots and the guardian above them."""

    def __init__(self, worker: Worker, selector: selectors.BaseSelector) -> None:
        self._worker = worker
        self._selector = selector
        options = worker.options
        self.guardian = Guardian(
            folder=options.folder,
            silence_ms=int(options.heartbeat_s * 2750),
            pass_environment=options.pass_environment,
            processes_per_slot=options.processes_per_slot,
        )
        self.table: dict[int, Slot] = {}
        self.failed_starts = 0
        self.mean_s: float | None = None
        self._watched_guardian = -1
        self._watch_guardian()

    # ------------------------------------------------------------------ start and end

    def start_all(self) -> None:
        for no in range(self._worker.options.slots):
            self.start(no)

    def start(self, no: int) -> None:
        """Ask the guardian for a slot; it is fed once it says that the code is loaded."""
        handle = self.guardian.start_slot(no)
        slot = Slot(no, handle, moved_at=clock.monotonic())
        self.table[no] = slot
        handle.send(
            wire.init(self._worker.options.root, async_slots=self._worker.options.async_per_slot)
        )
        for fd in (handle.from_fd, handle.out_fd, handle.err_fd):
            self._selector.register(fd, selectors.EVENT_READ, slot)

    def kill(self, slot: Slot, why: str) -> None:
        """End a slot with all below it; its exit is dealt with when the guardian reports it."""
        if slot.killed is None:
            slot.killed = why
            self.guardian.kill_slot(slot.no)

    def kill_all(self, why: str) -> None:
        for slot in self.table.values():
            self.kill(slot, why)

    def close(self) -> None:
        for slot in self.table.values():
            self._forget(slot)
        self.guardian.close()

    def events(self) -> None:
        """What the guardian reports."""
        for event in self.guardian.read_events():
            self._event(event)
        self._watch_guardian()

    def _event(self, event: Event) -> None:
        match event:
            case Started():
                pass  # it is fed once it says that the code is loaded
            case Exited(no=no):
                slot = self.table.pop(no, None)
                if slot is not None:
                    self._exited(slot, event)
            case GuardianDied():
                log.error("the guardian died and was replaced; its slots died with it")
                self._watch_guardian(replaced=True)
            case Silent(age_ms=age_ms):
                log.error("this worker was frozen for %d ms; its guardian ended its slots", age_ms)

    def _exited(self, slot: Slot, event: Exited) -> None:
        """A slot is gone: sort its runs into those that may have begun and the rest."""
        for line_batch in iter(slot.handle.read_lines, None):
            if not line_batch:
                break
            self._worker.results.lines(slot, line_batch)
        self._worker.results.drain_raw(slot)
        self._forget(slot)
        begun = slot.begun(self._worker.options.async_per_slot) if slot.ready else []
        rest = [held for held in slot.given if held not in begun]
        if event.reason.startswith(guardian.TOO_MANY):
            for held in begun:
                held.failing = held.failing or event.reason
        if not slot.ready and slot.killed is None:
            self.failed_starts += 1
            log.error("slot %d ended before its code was loaded (%s)", slot.no, event.cause)
        elif slot.killed is None or not self._worker.leaving:
            level = logging.INFO if slot.retiring else logging.WARNING
            why = slot.killed or event.reason
            log.log(level, "slot %d ended: %s (%s)", slot.no, why, event.cause)
        # all slots die with a guardian: next time a suspect runs alone in the worker
        alone = rescue.ALONE_IN_WORKER if event.reason == "guardian_died" else rescue.ALONE_IN_SLOT
        self._worker.slot_died(slot, begun, rest, event.cause, alone=alone)
        if not self._worker.leaving and self.failed_starts < FAILED_STARTS:
            self.start(slot.no)

    def _forget(self, slot: Slot) -> None:
        handle = slot.handle
        for fd in (handle.from_fd, handle.out_fd, handle.err_fd, handle.to_fd):
            try:
                self._selector.unregister(fd)
            except (KeyError, ValueError):
                continue
        handle.close()

    def _watch_guardian(self, *, replaced: bool = False) -> None:
        """Watch the guardian's socket; that of a new guardian may have the old one's number."""
        fd = self.guardian.fileno()
        if replaced or fd != self._watched_guardian:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._watched_guardian)
            self._selector.register(fd, selectors.EVENT_READ, "guardian")
            self._watched_guardian = fd

    def watch_writes(self) -> None:
        """Watch the pipes that took less than they were sent."""
        for slot in self.table.values():
            fd = slot.handle.to_fd
            watched = fd in self._selector.get_map()
            if slot.handle.wants_write and not watched:
                self._selector.register(fd, selectors.EVENT_WRITE, slot)
            elif watched and not slot.handle.wants_write:
                self._selector.unregister(fd)
        if self.guardian.wants_write:
            self.guardian.flush()

    # ------------------------------------------------------------------ feeding

    def capacity(self, waiting: int) -> int:
        """How many runs may be claimed for what the slots have room for."""
        mean = self.mean_s
        total = 0
        for slot in self.table.values():
            if not slot.ready or slot.killed is not None:
                continue
            if mean is None or slot.slow or self._worker.sender.capped:
                room = 0 if slot.given else 1  # (under a cap nothing is taken that cannot begin)
            else:
                spare_s = AHEAD_SECONDS - slot.ahead_s
                room = min(AHEAD_RUNS - len(slot.given), int(spare_s / mean))
                if not slot.given:
                    room = max(1, room)
            shared = self._worker.options.async_per_slot
            if shared > 1 and slot.shares(shared):
                room = max(room, shared - len(slot.given))
            total += max(0, room)
        return max(0, total - waiting)

    def starve(self) -> bool:
        """Whether a slot does nothing, or could run one more `async def` task beside others."""
        shared = self._worker.options.async_per_slot
        return any(
            (slot.ready and not slot.busy) or (shared > 1 and slot.shares(shared))
            for slot in self.table.values()
        )

    def learn(self, cost_s: float) -> None:
        """The mean over all programs sizes the next claim; a much longer run counts at once."""
        if self.mean_s is None or cost_s > 4 * self.mean_s:
            self.mean_s = cost_s
        else:
            self.mean_s += 0.05 * (cost_s - self.mean_s)

    def assign(self, waiting: deque[Held]) -> None:
        """Give waiting runs to slots with room, in order, many of one program at a time."""
        if self._worker.programs.evicted:
            self._forget_programs()
        if not waiting:
            return
        now = clock.monotonic()
        if self._worker.solitary and any(s.busy for s in self.table.values()):
            return  # one runs alone in this worker, so that no neighbour is blamed
        share = AHEAD_SECONDS / max(1, sum(1 for s in self.table.values() if s.ready))
        passed: list[Held] = []
        while waiting:
            held = waiting[0]
            slot = self._slot_for(held)
            if slot is None:
                if len(passed) < PASSED_RUNS and self._kept_out(held):
                    passed.append(waiting.popleft())
                    continue
                if not passed and held.program is not None and held.program.spawns:
                    passed.append(waiting.popleft())  # a list waits for an empty slot; others go on
                    continue
                break
            group = [waiting.popleft()]
            while waiting and waiting[0].program is held.program and len(group) < AHEAD_RUNS:
                if not self._fits(slot, waiting[0], len(group), share):
                    break
                group.append(waiting.popleft())
            slot.give(group, now)
            if held.run.alone >= 2:
                break
        waiting.extendleft(reversed(passed))

    def _kept_out(self, held: Held) -> bool:
        """Whether an idle slot does not take it because of secrets. Then one is replaced."""
        idle = [
            slot
            for slot in self.table.values()
            if slot.ready and slot.killed is None and not slot.given and not slot.may_serve(held)
        ]
        if idle and all(slot.ready and slot.killed is None for slot in self.table.values()):
            idle[0].retiring = True
            self.kill(idle[0], f"it has held secrets of {idle[0].bound}")
        return bool(idle)

    def _forget_programs(self) -> None:
        """Slots drop what the worker has dropped; a program that is used again is sent again."""
        evicted, self._worker.programs.evicted = self._worker.programs.evicted, []
        for slot in self.table.values():
            known = [n for n in evicted if n in slot.programs]
            if known:
                slot.programs.difference_update(known)
                slot.handle.send(wire.forget(known))

    def _fits(self, slot: Slot, held: Held, group: int, share: float) -> bool:
        program = held.program
        assert program is not None
        if held.run.alone or program.spawns:
            return False
        if program.is_async and self._worker.options.async_per_slot > 1:
            return len(slot.given) + group < self._worker.options.async_per_slot
        ahead = slot.ahead_s + group * program.expected_s
        return ahead + program.expected_s <= max(share, AHEAD_SECONDS - slot.ahead_s)

    def _slot_for(self, held: Held) -> Slot | None:
        """The least loaded one; of equals one that its pipeline's secrets have bound already."""
        best: Slot | None = None
        least = (0.0, 0, False)
        shared = self._worker.options.async_per_slot
        for slot in self.table.values():
            if not slot.may_serve(held):
                continue
            if slot.room(held) or (shared > 1 and slot.room_async(held, shared)):
                load = (slot.ahead_s, len(slot.given), slot.bound != held.run.pipeline)
                if best is None or load < least:
                    best, least = slot, load
        return best

    # ------------------------------------------------------------------ watching

    def watch(self, now: float) -> None:
        """Timeouts, stubborn cancels, memory, and first runs that are slow."""
        for slot in list(self.table.values()):
            if not slot.given or slot.killed is not None:
                continue
            first = slot.given[0]
            assert first.program is not None
            for held in slot.begun(self._worker.options.async_per_slot):
                self._watch_run(slot, held, now)
            self._watch_memory(slot, now)
            if now - slot.moved_at > RECALL_SECONDS and not first.program.is_async:
                slot.slow = True
            if slot.slow and len(slot.given) > 1 and not slot.asked_back:
                slot.asked_back = True
                slot.handle.send(wire.GIVE_BACK)

    def _watch_run(self, slot: Slot, held: Held, now: float) -> None:
        program = held.program
        assert program is not None
        if (
            held.cancel_at is not None
            and now - held.cancel_at > self._worker.options.cancel_grace_s
        ):
            held.failing = "cancelled"
            self.kill(slot, f"run {held.run.id} did not stop when asked")
        elif held.deadline_at is not None and now > held.deadline_at:
            held.failing = "deadline"
            self.kill(slot, f"the deadline of run {held.run.id} has passed")
        elif program.timeout_s is not None:
            grace_s = ASYNC_GRACE_SECONDS if program.is_async else 0.0
            since = held.waited_since if program.is_async else slot.moved_at
            if now - since > program.timeout_s + grace_s:
                held.failing = "timed_out"
                self.kill(slot, f"run {held.run.id} ran longer than its timeout")

    def _watch_memory(self, slot: Slot, now: float) -> None:
        limit = self._worker.options.memory_per_slot_mb
        if limit is None or slot.handle.pid is None or now - slot.rss_at < MEMORY_LOOK_SECONDS:
            return
        slot.rss_at = now
        try:
            pages = Path(f"/proc/{slot.handle.pid}/statm").read_text(encoding="ascii").split()[1]
            used_mb = int(pages) * _PAGE // 1_000_000
        except (OSError, ValueError, IndexError):
            return
        if used_mb > limit:
            for held in slot.begun(self._worker.options.async_per_slot):
                held.failing = f"memory: {used_mb} MB used, {limit} MB allowed"
            self.kill(slot, f"{used_mb} MB used, {limit} MB allowed")

    def next_look(self, now: float) -> float:
        """Seconds until ``watch`` has something to do; at most half a second."""
        soonest = 0.5
        for slot in self.table.values():
            if slot.given and slot.killed is None:
                first = slot.given[0]
                assert first.program is not None
                if first.program.timeout_s is not None:
                    soonest = min(soonest, slot.moved_at + first.program.timeout_s - now)
                if first.deadline_at is not None:
                    soonest = min(soonest, first.deadline_at - now)
                if len(slot.given) > 1 and not slot.asked_back:
                    soonest = min(soonest, slot.moved_at + RECALL_SECONDS - now)
                if first.cancel_at is not None:
                    soonest = min(
                        soonest, first.cancel_at + self._worker.options.cancel_grace_s - now
                    )
        return max(0.005, soonest)
