"""Ways to stop: a run that was asked to, and the worker itself.

A run that executes is told first (``ctx.cancelled``, ``Cancelled`` inside it) and its slot is ended
only when it does not listen. A worker drains: it claims no more, gives back what has not begun,
finishes what has, and leaves; asked twice, or out of time, it leaves at once and what it held goes
back uncounted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from suimon.core import clock, words
from suimon.run import claim
from suimon.worker import wire
from suimon.worker.held import Held

if TYPE_CHECKING:
    from suimon.worker.worker import Worker

log = logging.getLogger("suimon.worker")

#: A worker that leaves without waiting for its runs waits so long for a database that is away, to
#: give them back; without it they are taken back by whoever sees its heartbeat end.
GOODBYE_SECONDS: Final = 10.0


class Stops:
    """Cancels and the drain of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.drain_asked = 0
        self._drain_ends_at: float | None = None
        self._gone_at = float("inf")

    def look_for_cancels(self) -> None:
        """Somebody asked one of our runs to stop: which?"""
        worker = self._worker.id
        self._worker.ledger.ask(
            lambda conn: conn.execute(claim.SQL.cancel_requests, {"worker": worker}).fetchall(),
            self.cancel_these,
            lambda error: log.warning("cannot read cancels: %s", error),
        )

    def cancel_these(self, rows: Iterable[tuple[str, int]]) -> None:
        for run_id, claim_no in rows:
            held = self._worker.held.get(run_id)
            if held is None or held.run.claim_no != claim_no or held.cancel:
                continue
            held.cancel = True
            if held.slot is not None:
                self.stop_in_slot(held)
            elif held in self._worker.waiting or self._worker.turns.withdraw(held):
                if held in self._worker.waiting:
                    self._worker.waiting.remove(held)
                self._worker.results.failed_try(held, 0, {"kind": "cancelled"})

    def stop_in_slot(self, held: Held) -> None:
        if held.slot is not None and held.cancel_at is None:
            held.cancel_at = clock.monotonic()
            self._worker.send_to_slot(held, wire.cancel(held.token))

    def drain_step(self, now: float) -> None:
        if not self.drain_asked or self._worker.leaving:
            return
        if self._drain_ends_at is None:
            timeout_s = self._worker.options.drain_timeout_s
            self._drain_ends_at = float("inf") if timeout_s is None else now + timeout_s
            count = words.count(len(self._worker.held), "run is", "runs are")
            log.info("draining: %s held", count)
            if self._worker.heart is not None:
                self._worker.heart.draining = True
            for slot in self._worker.slots.table.values():
                slot.handle.send(wire.GIVE_BACK)
        if self.drain_asked > 1 or now >= self._drain_ends_at:
            back = words.count(len(self._worker.held), "run goes", "runs go")
            log.warning("leaving now: %s back", back)
            self._leave(now)
            for held in list(self._worker.held.values()):
                self._worker.outbox.release(held.fence, begun=held.run.begun)
                held.gone = True
            self._worker.slots.kill_all("its worker leaves")
        elif (
            not self._worker.held
            and not self._worker.outbox.urgent
            # a claim that is on its way to a database that is away brings nothing any more
            and not (self._worker.sender.in_flight and self._worker.ledger.connected)
        ):
            self._leave(now)

    def _leave(self, now: float) -> None:
        self._worker.leaving = True
        self._gone_at = now + GOODBYE_SECONDS

    def waited_enough(self, now: float) -> bool:
        """Whether a worker that leaves goes although the database has not heard all it says."""
        return now >= self._gone_at
