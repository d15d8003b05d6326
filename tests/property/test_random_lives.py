"""Random lives: submits, claims, ends, crashes, cancels, retries, fan-outs, limit changes.

They come in any order, against the real database and a simple model. After every step promises 1
to 4 are checked:

1. every run that was submitted is there, in the state the model expects, and nobody is stuck;
2. one key, one run, and every execution has its own claim number;
3. a worker that lost its run writes nothing (late ends are tried, and must change nothing);
4. a lane never has more live runs than its limit allowed, and is entered oldest first.

Replay a failure by its seed: `pytest tests/property --hypothesis-seed=N`. `SUIMON_EXAMPLES` sets
how many lives there are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.lab import SPAWN_GRAPH, Lab, Parent

from suimon.db import connect
from suimon.duties import sweep
from suimon.run import cancel, lane, rescue, retry, wake
from suimon.run.claim import Claimed
from suimon.run.finish import Again
from suimon.run.spawn import Policy
from suimon.worker import batch as batches

EXAMPLES = int(os.environ.get("SUIMON_EXAMPLES", "300"))
STEPS = 40
LIMITS = {"free": None, "serial": 1, "three": 3, "fan": None}
ENDS = ("succeeded", "failed", "timed_out", "cancelled")
WIPE = """truncate suimon.runs, suimon.fanouts, suimon.steps, suimon.attempts,
 suimon.idempotency_keys, suimon.flows, suimon.workers, suimon.audit;
 update suimon.lanes set floor = 0, last_rank = 0;
 delete from suimon.lanes where name not like 'pipeline:%'"""

DATABASE: dict[str, str] = {}


@dataclass
class Run:
    """What the model knows of one run."""

    id: str
    pipeline: str
    status: str = "queued"
    worker: int | None = None
    claim_no: int = 0
    cancelling: bool = False
    parent: str | None = None
    tolerated: bool = False
    children: list[str] = field(default_factory=list)


class Lives(RuleBasedStateMachine):
    """The rules are what users, workers, operators and accidents do."""

    @initialize()
    def begin(self) -> None:
        self.conn = connect.connect(DATABASE["url"], name="model")
        self.lab = Lab(self.conn)
        self.conn.execute(WIPE.encode())
        for name, limit in LIMITS.items():
            if limit is not None:
                lane.set_limit(self.conn, f"pipeline:{name}", limit)
        self.limits = {name: limit for name, limit in LIMITS.items() if limit is not None}
        self.most = dict(self.limits)
        self.runs: dict[str, Run] = {}
        self.keys: dict[tuple[str, str], str] = {}
        self.workers = [self.lab.worker(), self.lab.worker()]
        self.held: list[tuple[int, Claimed]] = []
        self.stale: list[tuple[int, Claimed]] = []
        self.claims: set[tuple[str, int]] = set()
        self.order: dict[str, list[int]] = {"serial": []}
        self.retried: set[str] = set()

    def teardown(self) -> None:
        if hasattr(self, "conn"):
            self.conn.close()

    # ------------------------------------------------------------------ users

    @rule(
        pipeline=st.sampled_from(["free", "serial", "three"]), key=st.sampled_from([None, "a", "b"])
    )
    def submit(self, pipeline: str, key: str | None) -> None:
        run = self.lab.submit(pipeline, key=key)
        if key is not None and (pipeline, key) in self.keys:
            assert run == self.keys[pipeline, key], "one key made two runs"
            return
        assert run not in self.runs
        self.runs[run] = Run(run, pipeline)
        if key is not None:
            self.keys[pipeline, key] = run

    # ------------------------------------------------------------------ workers

    @rule(which=st.integers(0, 1), n=st.integers(1, 4))
    def claim(self, which: int, n: int) -> None:
        worker = self.workers[which]
        for row in self.lab.claim(worker, n):
            model = self.runs[row.id]
            assert model.status == "queued", f"{row.id} was claimed while {model.status}"
            assert (row.id, row.claim_no) not in self.claims, "a claim number came twice"
            self.claims.add((row.id, row.claim_no))
            model.status, model.worker, model.claim_no = "running", worker, row.claim_no
            self.held.append((worker, row))
            if row.lane == "pipeline:serial" and row.claim_no == 1 and row.id not in self.retried:
                place = self.lab.one("select lane_rank from suimon.runs where id = %s", row.id)
                assert not self.order["serial"] or place > self.order["serial"][-1], "out of order"
                self.order["serial"].append(place)

    @precondition(lambda self: self.held)
    @rule(at=st.integers(0, 50), status=st.sampled_from(["succeeded", "failed", "timed_out"]))
    def finish(self, at: int, status: str) -> None:
        worker, row = self._take(at)
        model = self.runs[row.id]
        if model.children:
            return self._park_or_end(worker, row)
        status = "cancelled" if model.cancelling else status
        outcome = batches.execute(self.conn, self.lab.batch(worker, [self.lab.ended(row, status)]))
        assert outcome.ended == {row.id}
        self._ended(model, status)
        self._follow(outcome.settled)
        return None

    @precondition(lambda self: self.held)
    @rule(at=st.integers(0, 50))
    def try_again_at_once(self, at: int) -> None:
        worker, row = self._take(at)
        made = self.lab.batch(worker, [])
        made.again = [Again(row.id, row.claim_no, 0.0, "failed", "", '{"message": "no"}')]
        outcome = batches.execute(self.conn, made)
        model = self.runs[row.id]
        if model.cancelling:
            assert not outcome.again, "a run that was asked to stop was parked for another try"
            self.held.append((worker, row))
            return
        assert outcome.again == {row.id}
        model.status, model.worker = "waiting", None
        wake.wake_due(self.conn)
        model.status = "queued"

    @precondition(lambda self: self.held)
    @rule(at=st.integers(0, 50))
    def release(self, at: int) -> None:
        worker, row = self._take(at)
        made = self.lab.batch(worker, [])
        made.released = [(row.id, row.claim_no)]
        batches.execute(self.conn, made)
        self.runs[row.id].status, self.runs[row.id].worker = "queued", None

    @rule(which=st.integers(0, 1))
    def a_worker_dies_and_is_rescued(self, which: int) -> None:
        dead = self.workers[which]
        self.lab.kill(dead)
        _, follows = rescue.rescue(self.conn)
        for worker, row in [h for h in self.held if h[0] == dead]:
            self.held.remove((worker, row))
            self.stale.append((worker, row))
            self._reread(row.id, {"queued", "failed"})
        self._follow(follows)
        self.workers[which] = self.lab.worker()

    @precondition(lambda self: self.stale)
    @rule(at=st.integers(0, 50), status=st.sampled_from(["succeeded", "failed"]))
    def a_dead_worker_writes_late(self, at: int, status: str) -> None:
        worker, row = self.stale[at % len(self.stale)]
        before = self.lab.sql("select * from suimon.runs where id = %s", row.id)
        outcome = batches.execute(self.conn, self.lab.batch(worker, [self.lab.ended(row, status)]))
        assert not outcome.ended, "the fence let a late end through"
        assert self.lab.sql("select * from suimon.runs where id = %s", row.id) == before

    # ------------------------------------------------------------------ fan-outs

    @rule(n=st.integers(0, 3), which=st.integers(0, 1), tolerate=st.booleans())
    def fan_out(self, n: int, which: int, tolerate: bool) -> None:
        worker = self.workers[which]
        run = self.lab.submit("fan", {"items": []})
        self.runs[run] = Run(run, "fan")
        row = self.lab.claim_run(worker, run)
        self.claims.add((row.id, row.claim_no))
        policy = Policy(tolerate=("failed", "timed_out", "cancelled")) if tolerate else Policy()
        parent: Parent = self.lab.parent(worker, "fan", policy=policy, row=row)
        if n:
            self.lab.chunk(parent, 0, n)
        model = self.runs[run]
        model.tolerated = tolerate
        for position in range(n):
            child = parent.child_id(position)
            self.runs[child] = Run(child, "fan", parent=run)
            model.children.append(child)
        self.lab.seal(parent, n)
        self.lab.spawned(parent)
        if self.lab.park(parent):
            model.status = "waiting"
        else:
            assert n == 0
            model.status, model.worker, model.claim_no = "running", worker, row.claim_no
            self.held.append((worker, row))

    def _park_or_end(self, worker: int, row: Claimed) -> None:
        """A parent that is claimed again: its fan-out has settled, or it was opened again."""
        model = self.runs[row.id]
        open_ = [c for c in model.children if self.runs[c].status not in ENDS]
        bad = [c for c in model.children if self.runs[c].status in ENDS[1:]]
        status = "failed" if bad and not model.tolerated else "succeeded"
        if model.cancelling:
            status = "cancelled"
        if open_ and status != "failed":
            self.held.append((worker, row))  # its worker parks it again; here it waits its turn
            return
        outcome = batches.execute(self.conn, self.lab.batch(worker, [self.lab.ended(row, status)]))
        assert outcome.ended == {row.id}
        self._ended(model, status)

    # ------------------------------------------------------------------ operators

    @precondition(lambda self: self.runs)
    @rule(at=st.integers(0, 200))
    def cancel(self, at: int) -> None:
        run = sorted(self.runs)[at % len(self.runs)]
        cancel.request(self.conn, [run])
        self._cancelled(self.runs[run])
        self._reread_all()

    def _cancelled(self, model: Run) -> None:
        if model.status in ENDS:
            return
        model.cancelling = True
        for child in model.children:
            self._cancelled(self.runs[child])

    @precondition(lambda self: any(r.status in ENDS[1:] for r in self.runs.values()))
    @rule(at=st.integers(0, 200))
    def retry(self, at: int) -> None:
        bad = sorted(i for i, r in self.runs.items() if r.status in ENDS[1:] and not r.children)
        if not bad:
            return
        run = bad[at % len(bad)]
        made = retry.plan(self.conn, [run])
        assert [r.id for r in made.runs] == [run]
        retry.apply(self.conn, made, actor="model")
        self.retried.add(run)
        self.runs[run].status, self.runs[run].cancelling = "queued", False
        parent = self.runs[run].parent
        if parent is not None and self.runs[parent].status in ENDS:
            self.runs[parent].cancelling = False
            self.retried.add(parent)
        self._reread_all()

    @rule(pipeline=st.sampled_from(["serial", "three"]), limit=st.integers(1, 4))
    def change_a_limit(self, pipeline: str, limit: int) -> None:
        live = self._live(pipeline)
        lane.set_limit(self.conn, f"pipeline:{pipeline}", limit)
        self.limits[pipeline] = limit
        self.most[pipeline] = max(limit, live)

    @rule()
    def the_sweep_finds_nothing_to_mend(self) -> None:
        assert sweep.repair(self.conn) == 0
        lane.sweep(self.conn)

    # ------------------------------------------------------------------ promises

    @invariant()
    def states_are_what_the_model_says(self) -> None:
        if not hasattr(self, "runs"):
            return
        rows = dict(self.lab.sql("select id::text, status::text from suimon.runs"))
        assert rows.keys() == self.runs.keys(), "a run vanished, or came from nowhere"
        wrong = {i: (s, self.runs[i].status) for i, s in rows.items() if s != self.runs[i].status}
        assert not wrong, f"(database, model): {wrong}"

    @invariant()
    def tallies_are_true_and_settled_means_all_have_ended(self) -> None:
        if hasattr(self, "runs"):
            assert not self.lab.wrong_tallies()
            stuck = self.lab.sql(
                "select p.id from suimon.runs p join suimon.fanouts f on f.parent_id = p.id"
                " where p.status = 'waiting' and p.reason in ('children', 'cancelling')"
                " and suimon.is_complete(f)"
            )
            assert not stuck, "a parent waits for children that have all ended"

    @invariant()
    def lanes_hold_no_more_than_they_may(self) -> None:
        if not hasattr(self, "runs"):
            return
        for pipeline, limit in self.limits.items():
            live = self._live(pipeline)
            assert live <= self.most[pipeline], f"{live} live runs of {pipeline}"
            self.most[pipeline] = max(limit, live)
            waiting = self.lab.one(
                "select count(*) from suimon.runs where lane = %s and status = 'queued'"
                " and not admitted",
                f"pipeline:{pipeline}",
            )
            assert not waiting or live >= limit, f"{waiting} runs wait in {pipeline} beside room"

    # ------------------------------------------------------------------ helpers

    def _live(self, pipeline: str) -> int:
        return int(
            self.lab.one(
                "select count(*) from suimon.runs where lane = %s and admitted"
                " and status in ('queued', 'running', 'waiting')",
                f"pipeline:{pipeline}",
            )
        )

    def _take(self, at: int) -> tuple[int, Claimed]:
        return self.held.pop(at % len(self.held))

    def _ended(self, model: Run, status: str) -> None:
        model.status, model.worker, model.cancelling = status, None, False
        self._reread_all()

    def _follow(self, follows: Any) -> None:
        if follows.stopped_parents:
            cancel.end_parents(self.conn, follows.stopped_parents)
        if follows.stragglers:
            cancel.sweep(self.conn)
        self._reread_all()

    def _reread(self, run: str, allowed: set[str]) -> None:
        status = self.lab.status(run)
        assert status in allowed, f"{run} is {status}, expected one of {allowed}"
        self.runs[run].status, self.runs[run].worker = status, None

    def _reread_all(self) -> None:
        """Parents wake and cancels spread: take over what follows from it, and only that."""
        rows = dict(self.lab.sql("select id::text, status::text from suimon.runs"))
        for run, model in self.runs.items():
            now, before = rows[run], model.status
            if now == before:
                continue
            woken = before == "waiting" and now == "queued" and model.children
            reopened = before in ENDS and now == "queued" and model.children
            stopped = model.cancelling and before in ("queued", "waiting") and now == "cancelled"
            assert woken or reopened or stopped, f"{run} went from {before} to {now} by itself"
            model.status = now


Lives.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_random_lives_keep_promises_one_to_four(db_url: str) -> None:
    """300 lives of 40 steps end without a broken promise."""
    DATABASE["url"] = db_url
    with connect.connect(db_url, name="model") as conn:
        lab = Lab(conn)
        for name, limit in LIMITS.items():
            vertices = SPAWN_GRAPH if name == "fan" else None
            lab.pipeline(name, vertices, concurrency="unlimited" if limit is None else limit)
    Lives.TestCase("runTest").runTest()
