"""One worker of a stress run: claims, works, ends, spawns, merges, and dies at two named points.

What a run does is decided by dice of its worker; what a parent spawns by its input alone, so that a
spawner that is read again meets the same list.
"""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import orjson

from suimon.db.connect import Connection
from suimon.run import cancel, claim, merge, rescue, spawn, step, wait
from suimon.run.claim import Claimed, Floors
from suimon.run.finish import Again, Ended
from suimon.run.spawn import LostRunError, Policy
from suimon.worker import batch as batches
from suimon.worker.batch import Batch, Want
from support.lab import Lab, Parent

if TYPE_CHECKING:
    from support.stress import World

POOLS: Final = ("default", "other")
KIDS: Final = {
    "kids": {
        "type": "SPAWNER", "inputs": {"items": {"$ref": "input.items"}}, "config": {"task": "m:f"},
    },
    "kids_merge": {"type": "MERGE", "after": ["kids"]},
}  # fmt: skip


@dataclass(slots=True)
class Found:
    """What went wrong, and what happened at all."""

    errors: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    retried: set[str] = field(default_factory=set)

    def note(self, what: str, n: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + n


class Life:
    """One boot of one worker: claims, works, ends, until it dies or the world stops."""

    def __init__(self, world: World, conn: Connection, pool: str, rng: random.Random) -> None:
        self.world, self.conn, self.pool, self.rng = world, conn, pool, rng
        self.lab = Lab(conn)
        self.id = self.lab.worker(pool)
        self.out = Batch(self.id, f"w{self.id}")
        self.floors = Floors(workers=5)
        self.unfloored = True
        self.tries: dict[str, Claimed] = {}  # that are to come again, until the batch is sent

    def work(self) -> None:
        while not self.world.stop.is_set():
            rows = self._batch(self.rng.choice((1, 2, 5, 20)))
            if rows and self.rng.random() < 0.03:
                self.world.found.note("deaths with claims")
                return
            if rows and self.rng.random() < 0.02:
                self._go_on_as_a_zombie(rows)
                return
            for row in rows:
                if not self._one(row):
                    return
            if not rows and self.out.empty and self.unfloored:
                time.sleep(0.005)

    def _batch(self, n: int) -> list[Claimed]:
        """Write what there is, with the next claim, as the sender does."""
        out, self.out = self.out, Batch(self.id, f"w{self.id}")
        out.wake_from_idle = self.rng.random() < 0.1
        now = time.monotonic()
        floors, unfloored = self.floors.start(now, unfloored=self.unfloored)
        out.want = Want(self.pool, n, floors, unfloored)
        out.heads = {}
        outcome = batches.execute(self.conn, out)
        self.floors.learn(now, outcome.claimed, unfloored=unfloored, took=outcome.took)
        self.unfloored = not outcome.claimed
        if heads := self.floors.heads_to_publish(now, outcome.claimed):
            claim.publish(self.conn, self.pool, heads)
        if self.unfloored:
            claim.publish_clock(self.conn, self.pool)
        self.world.found.note("ends", len(outcome.ended))
        for again in out.again:
            row = self.tries.pop(again.id)
            if again.id not in outcome.again:  # asked to stop meanwhile: a fenced end decides
                self._ended(row, "cancelled")
        self.world._follow(self.conn, outcome.settled)
        asked = {
            tuple(row) for row in self.conn.execute(claim.SQL.cancel_requests, {"worker": self.id})
        }
        for row in outcome.claimed:
            row.cancel_requested |= (row.id, row.claim_no) in asked
        return outcome.claimed

    def _go_on_as_a_zombie(self, rows: list[Claimed]) -> None:
        """Buried while it was frozen; its runs are elsewhere when it comes with its results."""
        with self.world.connect("undertaker") as other:
            rescue.bury(other, self.id, 0)
            self.world._follow(other, rescue.rescue(other)[1])
        for row in rows:
            self._ended(row, "succeeded")
        refused = batches.execute(self.conn, self.out).ended
        self.world.found.note("late finishes", len(rows))
        if refused:
            self.world.found.errors.append(f"a buried worker ended {refused}")

    def _ended(self, row: Claimed, status: str) -> None:
        output, error = ("1", "") if status == "succeeded" else ("", '{"message": "no"}')
        self.out.ended.append(
            Ended(row.id, row.claim_no, status, output, error, 3, row.fanout_id, row.lane)
        )
        self._touch(row)

    def _touch(self, row: Claimed) -> None:
        if row.lane is not None:
            self.out.lanes.add(row.lane)
        if row.fanout_id is not None:
            self.out.fanouts.add(row.fanout_id)

    def _one(self, row: Claimed) -> bool:
        """Work on one run; False: died over it."""
        if row.vertex is None and row.pipeline.startswith("parents"):
            try:
                return self._parent(row)
            except LostRunError:
                self._stop(row)
                return True
        dice = self.rng.random()
        if row.cancel_requested:
            self._ended(row, "cancelled")
        elif dice < 0.82:
            self._ended(row, "succeeded")
        elif dice < 0.90:
            self._ended(row, "failed")
        elif dice < 0.92:
            self._ended(row, "timed_out")
        elif dice < 0.95:
            self.tries[row.id] = row
            self.out.again.append(
                Again(
                    row.id,
                    row.claim_no,
                    self.rng.random() * 0.02,
                    "failed",
                    "",
                    '{"message": "no"}',
                )
            )
        elif dice < 0.98:
            self.out.released.append((row.id, row.claim_no))
        else:
            self.out.interrupted.append((row.id, row.claim_no))
            self._touch(row)
        return True

    def _stop(self, row: Claimed) -> None:
        """Asked to stop: end, or wait for the children."""
        holder = spawn.Holder(row.id, row.claim_no, self.id)
        if not merge.stop_parent(self.conn, holder):
            self._ended(row, "cancelled")
        cancel.sweep(self.conn)

    def _parent(self, row: Claimed) -> bool:
        if row.cancel_requested:
            self._stop(row)
            return True
        fanouts = spawn.of_parents(self.conn, [row.id])
        if fanouts and fanouts[0].state == "settled" and fanouts[0].expected is not None:
            self._merge(row, fanouts[0])
            return True
        parent = self._open(row)
        if parent.fanout.expected is None and not self._spawn(parent):
            self.world.found.note("deaths while spawning")
            return False
        done = step.Step(row.id, row.claim_no, "kids", "succeeded", 1, "{}", "")
        self.out.steps.append(done)
        self._batch(0)
        if not wait.park(self.conn, parent.holder, [wait.On(fanout=parent.fanout.id)], grace_s=0.2)[
            0
        ]:
            self._merge(row, spawn.of_parents(self.conn, [row.id])[0])
        return True

    def _open(self, row: Claimed) -> Parent:
        """What is spawned depends on the run's input alone, so that it is the same every time."""
        n, depth = self._shape(row)
        to = [None, "three", f"parents-{POOLS[n % 2]}"][depth]
        policies = (
            Policy(), Policy(tolerate=("failed", "timed_out", "cancelled")), Policy(fail_fast=True),
            Policy(tolerate=("failed",), max_failures=2, fail_fast=True, stragglers="finish"),
        )  # fmt: skip
        return self.lab.parent(
            self.id, row.pipeline, row=row, to=to, policy=policies[n % 4],
            limit=3 if n % 5 == 0 and depth == 0 else None,
        )  # fmt: skip

    def _shape(self, row: Claimed) -> tuple[int, int]:
        """(how many children, of which kind) from the input; a nested one has few, no parents."""
        given = orjson.loads(row.input or "0")
        return (given["n"], given["depth"]) if isinstance(given, dict) else (given % 7, given % 2)

    def _spawn(self, parent: Parent) -> bool:
        n, _ = self._shape(parent.row)
        size = self.rng.choice((1, 4, 40))
        for first in range(0, n, size):
            _, stop = self.lab.chunk(parent, first, min(size, n - first))
            if self.rng.random() < 0.02:
                return False
            if stop:
                follows = merge.seal_short(self.conn, parent.holder, parent.fanout)[1]
                self.world._follow(self.conn, follows)
                cancel.sweep(self.conn)
                return True
        self.world._follow(self.conn, self.lab.seal(parent, n))
        return True

    def _merge(self, row: Claimed, fanout: spawn.FanoutState) -> None:
        if not merge.is_over(fanout, 0.2):
            holder = spawn.Holder(row.id, row.claim_no, self.id)
            if wait.park(self.conn, holder, [wait.On(fanout=fanout.id)], grace_s=0.2)[0]:
                return
        status = "succeeded" if fanout.verdict == "succeeded" else "failed"
        output, error = ("1", "") if status == "succeeded" else ("", '{"message": "merge"}')
        ended = Ended(row.id, row.claim_no, status, output, error, 0, row.fanout_id, row.lane)
        holder = spawn.Holder(row.id, row.claim_no, self.id)
        end = merge.finish_parent(self.conn, holder, ended, {"vertices": KIDS}, grace_s=0.2)
        with contextlib.suppress(LostRunError):
            self.world._follow(self.conn, end.settled)
        if not (end.done or end.parked):
            self._stop(row)
