"""When to write and when to claim: one batch under way at a time, sized by what there is.

Results linger a few milliseconds for others to share their transaction, unless a slot starves.
Claims follow the room in the slots. When nothing is there the worker proves that it missed nobody
(``idle``) and is silent. After a lost answer it compares what the database says it holds with what
it does hold, and releases the rest: such claims have a healthy heartbeat, and nobody else would
ever free them.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from suimon.core import clock, words
from suimon.run import claim
from suimon.run.claim import Claimed, Floors
from suimon.run.finish import Settled
from suimon.worker import batch as batches
from suimon.worker import intake
from suimon.worker.batch import Batch, Outcome, Want
from suimon.worker.idle import Idle, State
from suimon.worker.outbox import Outbox

if TYPE_CHECKING:
    from suimon.worker.worker import Worker

log = logging.getLogger("suimon.worker")

#: Results wait this long for others to share their transaction, while the slots have work.
LINGER_SECONDS: Final = 0.004
LINGER_RUNS: Final = 400
#: A batch that PostgreSQL refused as a whole is sent again after this long.
REFUSED_SECONDS: Final = 1.0


class Sender:
    """Sends the outbox and claims, for one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.floors = Floors()
        self.idle = Idle()
        self.in_flight = False
        self.code_waits = False
        self.capped = False  # the pool has a cap, as far as this worker knows
        self._freed = 0
        self._heads: dict[int, int] = {}
        self._reconciling = False
        self._lost_answers = 0

    def start_over(self) -> None:
        """A new worker id: nothing is known about the queue."""
        self.idle = Idle()

    def hungry(self) -> None:
        """There may be work: claim as soon as there is room."""
        if self.idle.state is not State.HUNGRY:
            self.idle.wake()

    def touched(self, pools: Iterable[str]) -> None:
        """Runs of these pools became claimable."""
        others = set(pools)
        if self._worker.pool in others:
            self.hungry()
            if self._room() > 0:
                others.discard(self._worker.pool)  # this worker takes them itself
        self._worker.upkeep.wake(tuple(sorted(others)))

    def follow(self, settled: Settled) -> None:
        """What a settle asks for."""
        self.touched(settled.pools)
        self._worker.upkeep.end_parents(settled.stopped_parents)
        if settled.stragglers:
            self._worker.upkeep.cancel_soon()

    def told_of_cap(self) -> None:
        """Somebody set the cap of this pool, or took it away: the next claim locks it and sees."""
        self.capped = True
        self.hungry()

    def cap_seen(self) -> None:
        """The heartbeat saw a cap; a worker whose slots are all busy has claimed nothing since."""
        if not self.capped:
            self.told_of_cap()

    def place_freed(self) -> None:
        """A run left outside a batch: under a cap somebody may begin one, and may be waiting."""
        if not self.capped:
            return
        self.hungry()
        if self._room() > 0:
            self._freed += 1
        else:
            self._worker.upkeep.wake((self._worker.pool,))

    def code_may_wait(self) -> None:
        """Somebody held runs back for want of code that this worker has."""
        self.code_waits = True

    def _may_claim(self) -> bool:
        heart = self._worker.heart
        if self._worker.id == 0 or self._worker.stops.drain_asked or heart is None:
            return False
        return heart.may_claim

    def _room(self) -> int:
        """How many runs to claim now."""
        if not self._may_claim():
            return 0
        if self.idle.state is not State.HUNGRY or self._worker.solitary:
            return 0
        return self._worker.slots.capacity(len(self._worker.waiting))

    def flush(self, now: float) -> None:
        """Send what has gathered, with the next claim; one batch is under way at a time."""
        if self.in_flight or self._reconciling or self._worker.id == 0:
            return
        if self._lost_answers != self._worker.lost_answers:
            self._reconcile()
            return
        if self.code_waits and self._may_claim() and self._worker.slots.starve():
            self._take_back()
            return
        out = self._worker.outbox
        if self.capped and out.frees:
            self.hungry()  # what leaves makes room, for the claim that goes with it
        room = self._room()
        starving = room > 0 and self._worker.slots.starve()
        logs_due = out.logs_due(now)
        if not out.urgent and not logs_due and room == 0 and not self.idle.flagged_off_due:
            return
        if (
            out.urgent
            and not starving
            and out.urgent < LINGER_RUNS
            and now - out.since < LINGER_SECONDS
        ):
            return
        small = not out.urgent and not logs_due and room < claim.SMALL_CLAIM
        busy = any(s.busy for s in self._worker.slots.table.values())
        if small and busy and not starving and not self.idle.flagged_off_due:
            return
        self._send(now, room)

    def _take_back(self) -> None:
        """Claim what was held back for want of this code, as much as there is room for."""
        worker = self._worker.id
        reasons = [f"no_code:{task}" for task in self._worker.programs.tasks]
        work = functools.partial(
            intake.take_back,
            worker=worker,
            pool=self._worker.pool,
            reasons=reasons,
            n=self._worker.slots.capacity(len(self._worker.waiting)),
        )

        def taken(rows: list[Claimed]) -> None:
            self.in_flight = False
            self.code_waits = bool(rows)
            if not rows or self._worker.id != worker:
                return
            if self.idle.flagged:
                self.idle.flagged, self.idle.flagged_off_due = False, True
            self._worker.intake.take(rows)

        def failed(error: Exception) -> None:
            self.in_flight = self.code_waits = False  # the next heartbeat says it again
            log.warning("cannot take back what was held for want of code: %s", error)

        self.in_flight = True
        self._worker.ledger.ask(work, taken, failed)

    def _send(self, now: float, room: int) -> None:
        batch = self._worker.outbox.batch(self._worker.id, self._worker.options.name)
        self._worker.outbox = Outbox()
        batch.wake_from_idle = self.idle.flagged_off_due
        batch.heads = self._heads
        self._heads = {}
        if self.capped:
            batch.capped, batch.freed, self._freed = self._worker.pool, self._freed, 0
        self.idle.flagged_off_due = False
        if room > 0:
            floors, unfloored = self.floors.start(now, unfloored=self.idle.unfloored)
            batch.want = Want(self._worker.pool, room, floors, unfloored)
        self.in_flight = True
        self._worker.ledger.ask(
            functools.partial(batches.execute, batch=batch),
            functools.partial(self._sent, batch),
            functools.partial(self._not_sent, batch),
        )

    def _sent(self, batch: Batch, outcome: Outcome) -> None:
        """A batch is committed: drop what left, go on with what was recorded, take what came."""
        self.in_flight = False
        if batch.worker != self._worker.id:
            return  # of a life before this one: what it claimed is taken back by whoever buried it
        self._worker.pace.ended(len(batch.ended))
        for ended in batch.ended:
            self._left(ended.id, ended.claim_no)
        for again in batch.again:
            self._parked(again.id, again.claim_no, again.delay_s, ok=again.id in outcome.again)
        for run_id, claim_no, delay_s, _ in batch.later:
            self._parked(run_id, claim_no, delay_s, ok=run_id in outcome.later)
        for left in (*batch.interrupted, *batch.released, *(h[:2] for h in batch.held_back)):
            self._left(left[0], left[1] or 0)
        for step in batch.steps:
            held = self._worker.held.get(step.id)
            if held is None or held.run.claim_no != step.claim_no or held.gone:
                continue
            if (step.id, step.vertex) in outcome.steps:
                held.attempt, held.interruptions = 1, 0
                self._worker.driver.advance(held)
            else:
                self._worker.lost(held)
        self.follow(outcome.settled)
        self.touched(outcome.pools)
        if batch.released and not self._worker.stops.drain_asked:
            self.hungry()
        if batch.want is not None:
            if batch.capped is not None:
                self.capped = outcome.capped
            self._learn(batch.want, outcome)

    def _left(self, run_id: str, claim_no: int) -> None:
        held = self._worker.held.get(run_id)
        if held is not None and held.run.claim_no == claim_no:
            self._worker.drop(held)

    def _parked(self, run_id: str, claim_no: int, delay_s: float, *, ok: bool) -> None:
        held = self._worker.held.get(run_id)
        if held is None or held.run.claim_no != claim_no:
            return
        if ok:
            self._worker.upkeep.arm(delay_s)
            self._worker.drop(held)
        else:
            held.cancel = True  # asked to stop meanwhile, or lost: a fenced end decides
            self._worker.results.failed_try(held, 0, {"kind": "cancelled"})

    def _learn(self, want: Want, outcome: Outcome) -> None:
        now = clock.monotonic()
        assert self._worker.heart is not None or self._worker.id == 0
        self.floors.workers = self._worker.heart.workers if self._worker.heart is not None else 1
        self.floors.learn(now, outcome.claimed, unfloored=want.unfloored, took=outcome.took)
        self._heads = self.floors.heads_to_publish(now, outcome.claimed)
        if outcome.claimed:
            self.idle.unfloored = False
            if self.idle.flagged:
                self.idle.flagged = False
                self.idle.flagged_off_due = True
            self._worker.intake.take(outcome.claimed)
        elif not want.unfloored:
            self.idle.unfloored = True  # an empty floored claim proves nothing
        else:
            self.idle.nothing_found(now)

    def _not_sent(self, batch: Batch, error: Exception) -> None:
        """PostgreSQL refuses the batch as a whole: a defect, or a full disk. Nothing is dropped."""
        self.in_flight = False
        log.error("a batch was refused: %s", str(error).splitlines()[0] if str(error) else error)
        self._worker.outbox.put_back(batch)
        self._freed += batch.freed
        self.idle.flagged_off_due = self.idle.flagged_off_due or batch.wake_from_idle
        self.in_flight = True
        self._worker.upkeep.call_later(
            REFUSED_SECONDS, lambda: self._worker.post(self._may_send_again)
        )

    def _may_send_again(self) -> None:
        self.in_flight = False

    def probe(self, now: float) -> None:
        """Prove that nobody was missed, then be silent."""
        idle = self.idle
        if (
            idle.state is not State.PROBING
            or self.in_flight
            or now < idle.next_at
            or self._worker.id == 0
        ):
            return
        if (
            self._worker.outbox.urgent
            or self._worker.slots.capacity(len(self._worker.waiting)) == 0
            or self._worker.stops.drain_asked
        ):
            idle.state = State.HUNGRY if not self._worker.stops.drain_asked else idle.state
            return
        self.in_flight = True
        room = self._worker.slots.capacity(len(self._worker.waiting))
        work = functools.partial(
            batches.probe,
            worker=self._worker.id,
            worker_name=self._worker.options.name,
            pool=self._worker.pool,
            n=room,
            mark=idle.mark,
            capped=self.capped,
        )
        self._worker.ledger.ask(work, self._probed, self._probe_failed)

    def _probed(self, answer: batches.Probe) -> None:
        self.in_flight = False
        idle, now = self.idle, clock.monotonic()
        if answer.mark is None:
            return  # buried: the heart says so
        idle.mark, idle.flagged = answer.mark, True
        if answer.capped is not None:
            self.capped = answer.capped
        if idle.state is not State.PROBING and not answer.outcome.claimed:
            return  # woken meanwhile
        idle.probed(now, found=bool(answer.outcome.claimed), safe=answer.safe)
        if answer.outcome.claimed:
            want = Want(
                self._worker.pool,
                len(answer.outcome.claimed),
                [0] * claim.PRIORITIES,
                unfloored=True,
            )
            self._learn(want, answer.outcome)

    def _probe_failed(self, error: Exception) -> None:
        self.in_flight = False
        self.idle.next_at = clock.monotonic() + 1.0
        log.warning("probe: %s", error)

    def reconcile_soon(self) -> None:
        self._lost_answers = -1

    def _reconcile(self) -> None:
        """An answer was lost: compare what the database says we hold with what we do hold."""
        self._reconciling = True
        self._lost_answers = self._worker.lost_answers
        worker = self._worker.id
        self._worker.ledger.ask(
            lambda conn: claim.holdings(conn, worker), self._compare, self._cannot_compare
        )

    def _cannot_compare(self, error: Exception) -> None:
        self._reconciling = False
        self._lost_answers = -1
        log.warning("cannot compare holdings: %s", error)

    def _compare(self, rows: list[tuple[str, int, bool]]) -> None:
        self._reconciling = False
        theirs = {(run_id, claim_no) for run_id, claim_no, _ in rows}
        ours = {held.fence: held for held in self._worker.held.values()}
        unknown = sorted(theirs - set(ours))
        if unknown:
            claims = words.count(len(unknown), "claim")
            log.warning("releasing %s whose answer was lost", claims)
            for fence in unknown:
                self._worker.outbox.release(fence)
        for fence, held in ours.items():
            if fence not in theirs:
                self._worker.stops.stop_in_slot(held)
                self._worker.drop(held)
                if held in self._worker.waiting:
                    self._worker.waiting.remove(held)
        self._worker.stops.cancel_these([(i, c) for i, c, asked in rows if asked])
        self.hungry()
