"""How a worker becomes known, and what it hears from outside: heartbeats, wake-ups, its own burial.

The first slot that has loaded the code says which functions there are; with that list the worker
registers, and from then on it beats and listens. Declared dead (it was silent for too long, or the
database was), it holds nothing any more: it ends its slots and comes back under a new id.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from suimon.core import clock, words
from suimon.db import migrate
from suimon.errors import SchemaMismatch
from suimon.run import rescue, wake
from suimon.worker import intake
from suimon.worker.beat import Events, Heart
from suimon.worker.held import Slot
from suimon.worker.listener import Listener
from suimon.worker.outbox import Outbox

if TYPE_CHECKING:
    from suimon.worker.worker import Worker

log = logging.getLogger("suimon.worker")


class Joining:
    """Registration, heart and listener of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.listener: Listener | None = None
        self._registering = False

    def slot_ready(self, slot: Slot, hello: dict[str, Any]) -> None:
        """A slot has loaded the code. The first one's list of functions makes this worker known."""
        slot.ready = True
        self._worker.slots.failed_starts = 0
        for error in hello.get("errors", []):
            log.error("module %s was not loaded: %s", error.get("module"), error.get("message"))
        self._worker.programs.set_tasks(hello.get("tasks", {}))
        if self._worker.heart is None and not self._registering:
            self._register()

    def _register(self) -> None:
        self._registering = True
        facts = intake.facts_of_worker(self._worker.options, sorted(self._worker.programs.tasks))

        def work(conn: Any) -> int:
            return rescue.register(conn, facts)

        def failed(error: Exception) -> None:
            log.error("cannot register: %s", error)
            self._worker.exit_code = 1
            self._worker.leaving = True

        self._worker.ledger.ask(work, self._registered, failed)

    def _registered(self, worker: int) -> None:
        self._registering = False
        self._worker.id = worker
        log.info("worker %d claims for pool %s", worker, self._worker.pool)
        events = Events(
            buried_me=lambda: self._worker.post(self._start_over),
            buried=lambda _: self._worker.upkeep.rescue_soon(),
            asked_to_cancel=lambda: self._worker.post(self._worker.stops.look_for_cancels),
            code_waits=lambda: self._worker.post(self._worker.sender.code_may_wait),
            capped=lambda: self._worker.post(self._worker.sender.cap_seen),
            must_end_slots=lambda: self._worker.post(self._end_slots),
            schema_changed=lambda found: self._worker.post(lambda: self._schema_changed(found)),
        )
        self._worker.heart = Heart(
            self._worker.options.url,
            worker,
            self._worker.options.heartbeat_s,
            events,
            self._worker.pace.last_minute,
        )
        self._worker.heart.start()
        self._worker.upkeep.set_worker(worker)
        if self.listener is None:
            self._worker.upkeep.start()
            self.listener = Listener(
                self._worker.options.listen_url,
                woken=self._heard,
                look=self._look,
            )
            self.listener.start()
        self._worker.sender.code_waits = True
        self._worker.turns.look_for_parked()
        self._worker.sender.hungry()

    def _schema_changed(self, found: int | None) -> None:
        """The database was migrated: write nothing into what we do not understand, and leave. What
        was held is taken back from here as from a dead worker.
        """
        log.error(
            "the database is at schema version %s now, this Suimon (%s) knows %d: leaving with "
            "exit code %d; %s left to other workers. Upgrade Suimon on this machine.",
            found,
            migrate.package_version(),
            migrate.schema_version(),
            SchemaMismatch.exit_code,
            words.count(len(self._worker.held), "run is", "runs are"),
        )
        self._let_go("the schema was migrated")
        self._worker.id = 0  # not even the leave is written
        self._worker.exit_code = SchemaMismatch.exit_code
        self._worker.leaving = True

    def _let_go(self, why: str) -> None:
        """Nothing held is ours any more; what has gathered is not written."""
        for held in list(self._worker.held.values()):
            self._worker.drop(held)
        self._worker.waiting.clear()
        self._worker.turns.start_over()
        self._worker.outbox = Outbox()
        self._worker.slots.kill_all(why)

    def _start_over(self) -> None:
        """Declared dead: nothing held is ours. End the slots, and come back as a new worker."""
        log.warning(
            "starting over as a new worker: %s not ours any more",
            words.count(len(self._worker.held), "run is", "runs are"),
        )
        self._let_go("its worker was declared dead")
        if self._worker.heart is not None:
            self._worker.heart.close()
            self._worker.heart = None
        self._worker.id = 0
        self._worker.sender.start_over()

    def _end_slots(self) -> None:
        log.error(
            "no heartbeat was accepted for too long: ending the slots before others take over"
        )
        self._worker.slots.kill_all("no heartbeat was accepted")

    def _look(self) -> None:
        """Notifications may be missing."""
        self._worker.upkeep.may_have_missed()
        self._worker.post(self._worker.sender.hungry)

    def _heard(self, channel: str, payload: str) -> None:
        if channel == wake.DOORS_CHANNEL:
            self._worker.upkeep.heard(payload)
            return
        if channel == wake.LIMITS_CHANNEL and payload.startswith("pool "):
            if payload == f"pool {self._worker.pool}":
                self._worker.post(self._worker.sender.told_of_cap)
            return
        if channel == wake.LIMITS_CHANNEL:
            self._worker.post(lambda: self._worker.turns.heard(payload))
            return
        if channel == "suimon_cancel":
            if payload == str(self._worker.id):
                self._worker.post(self._worker.stops.look_for_cancels)
            return
        pool, _, worker = payload.rpartition(" ")
        if pool != self._worker.pool:
            return
        if worker in (str(self._worker.id), "*"):
            self._worker.post(self._worker.sender.hungry)
        else:
            self._worker.post(lambda: self._worker.sender.idle.look_later(clock.monotonic()))
