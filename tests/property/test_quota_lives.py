"""What is counted is what was created and what is still reserved, whatever happens in between.

Submits, fan-outs of known and unknown length, chunks, seals, cancels, failures, timeouts, crashes
and rescues, poison, retries and sweeps, in any order, against two quotas that are too small for all
of it. After each step the counters are compared with the runs and the reservations, and after a
sweep nothing is reserved but for spawners that are alive: each way to die frees what it held.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.lab import SPAWN_GRAPH, Lab, Parent

from suimon.db import connect
from suimon.errors import Conflict, QuotaExceeded
from suimon.run import cancel, merge, quotas, rescue, retry, step
from suimon.run.claim import Claimed
from suimon.worker import batch as batches

EXAMPLES = max(int(os.environ.get("SUIMON_EXAMPLES", "300")) // 8, 20)
LABEL = "tenant:acme"
LIMITS = {"all": 40, f"label:{LABEL}": 18}
WIPE = """truncate suimon.runs, suimon.fanouts, suimon.steps, suimon.attempts, suimon.flows,
 suimon.workers, suimon.audit, suimon.quota_holds;
 update suimon.quotas set day_used = 0, month_used = 0"""
CREATED = {
    "all": "select count(*) from suimon.runs",
    f"label:{LABEL}": "select count(*) from suimon.runs r join suimon.runs o on o.id = r.root_id"
    f" where '{LABEL}' = any (o.labels)",
}
RESERVED = """
select coalesce(sum(greatest(h.from_position + h.n - greatest(h.from_position, c.made), 0)), 0)
from suimon.quota_holds h
cross join lateral (select count(*) as made from suimon.runs r where r.fanout_id = h.fanout_id) c
where h.quota = %s"""
HELD = "select distinct fanout_id from suimon.quota_holds"

DATABASE: dict[str, str] = {}


@dataclass
class Spawning:
    """A spawner in its worker's hands; its list has so many items, of which some are sent."""

    worker: int
    parent: Parent
    length: int
    known: bool
    at: int = 0


class QuotaLives(RuleBasedStateMachine):
    """The rules are what users, workers, operators and accidents do."""

    @initialize()
    def begin(self) -> None:
        self.conn = connect.connect(DATABASE["url"], name="model")
        self.lab = Lab(self.conn)
        self.conn.execute(WIPE.encode())
        self.workers = [self.lab.worker(), self.lab.worker()]
        self.spawning: list[Spawning] = []
        self.lists: dict[str, tuple[int, bool]] = {}

    def teardown(self) -> None:
        if hasattr(self, "conn"):
            self.conn.close()

    # ------------------------------------------------------------------ users and workers

    @rule(n=st.integers(1, 4), labelled=st.booleans())
    def submit(self, n: int, labelled: bool) -> None:
        for _ in range(n):
            self._ask(labelled, lambda: self.lab.submit("plain", labels=self._labels(labelled)))

    @rule(
        which=st.integers(0, 1),
        length=st.integers(0, 12),
        known=st.booleans(),
        labelled=st.booleans(),
        sent=st.integers(0, 6),
    )
    def begin_a_fan_out(
        self, which: int, length: int, known: bool, labelled: bool, sent: int
    ) -> None:
        labels = self._labels(labelled)
        run = self._ask(labelled, lambda: self.lab.submit("fan", {"items": []}, labels=labels))
        if run is not None:
            self.lists[run] = (length, known)
            worker = self.workers[which]
            self._begin(worker, self.lab.claim_run(worker, run))
            if sent:
                self._send(self.spawning[-1], sent)

    @rule(which=st.integers(0, 1), n=st.integers(1, 5))
    def claim(self, which: int, n: int) -> None:
        worker = self.workers[which]
        for row in self.lab.claim(worker, n):
            if row.id in self.lists:
                self._begin(worker, row)
            else:
                self._follow(self.lab.end(worker, row, "failed" if n == 5 else "succeeded"))

    def _begin(self, worker: int, row: Claimed) -> None:
        parent = self.lab.parent(worker, "fan", row=row)
        if parent.fanout.expected is not None:  # its children have ended
            status = "succeeded" if parent.fanout.state == "settled" else "failed"
            self._follow(self.lab.end(worker, row, status))
        else:
            self.spawning.append(Spawning(worker, parent, *self.lists[row.id]))

    @precondition(lambda self: self.spawning)
    @rule(at=st.integers(0, 20), n=st.integers(1, 6))
    def chunk(self, at: int, n: int) -> None:
        self._send(self.spawning[at % len(self.spawning)], n)

    def _send(self, one: Spawning, n: int) -> None:
        n = min(n, one.length - one.at)
        if n <= 0:
            self._seal(one)
            return
        total = one.length if one.known and one.at == 0 else None
        labelled = bool(self.lab.one("select labels from suimon.runs where id = %s", one.parent.id))
        made = self.lab.one(
            "select count(*) from suimon.runs where fanout_id = %s", one.parent.fanout.id
        )
        try:
            self.lab.chunk(one.parent, one.at, n, total=total)
        except QuotaExceeded as error:
            self._really_full(error, labelled)
            assert made == self.lab.one(
                "select count(*) from suimon.runs where fanout_id = %s", one.parent.fanout.id
            ), "a refused chunk left children"
            self._step_fails(one)
            return
        one.at += n

    @precondition(lambda self: self.spawning)
    @rule(at=st.integers(0, 20))
    def the_list_ends_here(self, at: int) -> None:
        """Perhaps before the length that was told."""
        one = self.spawning[at % len(self.spawning)]
        made = self.lab.one(
            "select count(*) from suimon.runs where fanout_id = %s", one.parent.fanout.id
        )
        if one.at >= made:  # else it would have become shorter than it was before
            self._seal(one)

    def _seal(self, one: Spawning) -> None:
        self.spawning.remove(one)
        self.lab.seal(one.parent, one.at)
        assert not self._holds(one), "the list is sealed and holds what it reserved"
        self.lab.spawned(one.parent)
        if not self.lab.park(one.parent):
            self._follow(self.lab.end(one.worker, one.parent.row))

    # ------------------------------------------------------------------ ways to end

    @precondition(lambda self: self.spawning)
    @rule(at=st.integers(0, 20))
    def the_fan_out_is_left_early(self, at: int) -> None:
        one = self.spawning.pop(at % len(self.spawning))
        merge.seal_short(self.conn, one.parent.holder, one.parent.fanout)
        self._freed(one, "the fan-out was left")
        self.lab.spawned(one.parent)
        if not self.lab.park(one.parent):
            self._follow(self.lab.end(one.worker, one.parent.row))

    @precondition(lambda self: self.spawning)
    @rule(at=st.integers(0, 20))
    def the_list_fails(self, at: int) -> None:
        self._step_fails(self.spawning[at % len(self.spawning)])

    def _step_fails(self, one: Spawning) -> None:
        """The step first; its run ends later, or goes on with other branches."""
        self.spawning.remove(one)
        row = one.parent.row
        made = self.lab.batch(one.worker, [])
        made.steps = [step.Step(row.id, row.claim_no, "kids", "failed", 1, "", '{"message": "x"}')]
        batches.execute(self.conn, made)
        self._freed(one, "the step has ended")
        self._follow(self.lab.end(one.worker, row, "failed"))

    @precondition(lambda self: self.spawning)
    @rule(at=st.integers(0, 20), status=st.sampled_from(["failed", "timed_out"]))
    def the_run_ends(self, at: int, status: str) -> None:
        one = self.spawning.pop(at % len(self.spawning))
        self._follow(self.lab.end(one.worker, one.parent.row, status))
        self._freed(one, f"the run has {status}")

    @precondition(lambda self: self.spawning)
    @rule(at=st.integers(0, 20))
    def cancel_a_spawner(self, at: int) -> None:
        one = self.spawning.pop(at % len(self.spawning))
        cancel.request(self.conn, [one.parent.id])
        if not merge.stop_parent(self.conn, one.parent.holder):
            self._follow(self.lab.end(one.worker, one.parent.row, "cancelled"))
        self._freed(one, "the run was cancelled")

    @rule(at=st.integers(0, 200))
    def cancel_any(self, at: int) -> None:
        busy = {one.parent.id for one in self.spawning}
        runs = [r for (r,) in self.lab.sql("select id::text from suimon.runs order by id")]
        idle = [run for run in runs if run not in busy]
        if idle:
            cancel.request(self.conn, [idle[at % len(idle)]])

    @rule(which=st.integers(0, 1), poison=st.booleans())
    def a_worker_dies_and_is_rescued(self, which: int, poison: bool) -> None:
        dead = self.workers[which]
        if poison:
            self.lab.sql("update suimon.runs set max_interruptions = 0 where worker_id = %s", dead)
        self.lab.kill(dead)
        _, follows = rescue.rescue(self.conn)
        for one in [one for one in self.spawning if one.worker == dead]:
            self.spawning.remove(one)
            if self.lab.status(one.parent.id) == "failed":
                self._freed(one, "the run was poisoned")
        if follows.stopped_parents:
            cancel.end_parents(self.conn, follows.stopped_parents)
        cancel.sweep(self.conn)
        self.workers[which] = self.lab.worker()

    @rule(at=st.integers(0, 200))
    def retry(self, at: int) -> None:
        bad = [r for (r,) in self.lab.sql(
            "select id::text from suimon.runs where status in ('failed', 'timed_out', 'cancelled')"
            " and parent_id is null order by id")]  # fmt: skip
        if bad:
            with contextlib.suppress(Conflict):  # its children ended badly, they are retried
                plan = retry.plan(self.conn, [bad[at % len(bad)]])
                retry.apply(self.conn, plan, actor="model")

    @rule()
    def sweep(self) -> None:
        """Nothing is reserved but for spawners that somebody holds, or that will be claimed."""
        quotas.sweep(self.conn)
        live = {one.parent.fanout.id for one in self.spawning}
        waiting = self.lab.sql(
            "select f.id from suimon.fanouts f join suimon.runs p on p.id = f.parent_id"
            " where f.expected is null and p.status = 'queued'"
        )
        held = {fanout for (fanout,) in self.lab.sql(HELD)}
        assert held <= live | {fanout for (fanout,) in waiting}, "the dead hold something"

    # ------------------------------------------------------------------ promises

    @invariant()
    def used_is_what_was_created_and_what_is_reserved(self) -> None:
        if not hasattr(self, "lists"):
            return
        for name, limit in LIMITS.items():
            used = self.lab.one("select day_used from suimon.quotas where name = %s", name)
            created, reserved = self.lab.one(CREATED[name]), self.lab.one(RESERVED, name)
            assert used == created + reserved, f"{name}: {used} != {created} + {reserved}"
            assert used <= limit

    # ------------------------------------------------------------------ helpers

    def _labels(self, labelled: bool) -> list[str]:
        return [LABEL] if labelled else []

    def _ask(self, labelled: bool, act: Any) -> Any:
        try:
            return act()
        except QuotaExceeded as error:
            self._really_full(error, labelled)
            return None

    def _really_full(self, error: QuotaExceeded, labelled: bool) -> None:
        """The refusal is true: after a sweep there is still no room."""
        assert error.quota in LIMITS
        assert labelled or error.quota == "all"
        quotas.sweep(self.conn)
        used = self.lab.one("select day_used from suimon.quotas where name = %s", error.quota)
        assert used + (error.asked or 0) > LIMITS[error.quota], "refused although there was room"

    def _freed(self, one: Spawning, why: str) -> None:
        quotas.sweep(self.conn)
        assert not self._holds(one), f"{why} and holds what it reserved"

    def _holds(self, one: Spawning) -> bool:
        return (one.parent.fanout.id,) in self.lab.sql(HELD)

    def _follow(self, outcome: Any) -> None:
        if outcome.settled.stopped_parents:
            cancel.end_parents(self.conn, outcome.settled.stopped_parents)
        if outcome.settled.stragglers:
            cancel.sweep(self.conn)


QuotaLives.TestCase.settings = settings(
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to make one smaller takes minutes
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_way_to_end_frees_what_it_held(db_url: str) -> None:
    """37 lives of 40 steps: used = created + reserved after every step."""
    DATABASE["url"] = db_url
    with connect.connect(db_url, name="model") as conn:
        lab = Lab(conn)
        lab.pipeline("plain")
        lab.pipeline("fan", SPAWN_GRAPH)
        for name, limit in LIMITS.items():
            quotas.change(conn, name, {"per_day": limit}, actor="model")
    QuotaLives.TestCase("runTest").runTest()
