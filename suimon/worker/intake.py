"""From a claim's rows to runs in slots: graphs, shared inputs, step records, missing code.

What a claim does not bring is fetched in one request: graphs never seen, a fan-out's shared inputs,
and the records of runs with several vertices. A run whose function this worker's code has not is
held back with its reason (``no_code:...``); it is never failed for that. So is one that may not
begin since its pipeline is paused (``paused:...``).
"""

from __future__ import annotations

import functools
import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from suimon.core import clock, plan
from suimon.core.plan import StepRecord
from suimon.db.connect import Connection, retrying, transaction
from suimon.run import claim, lane, spawn, step
from suimon.run.claim import Claimed
from suimon.run.spawn import FanoutState
from suimon.worker.drive import facts_of, internal

if TYPE_CHECKING:
    from suimon.worker.held import Held
    from suimon.worker.worker import Worker, WorkerOptions

log = logging.getLogger("suimon.worker")


@dataclass(slots=True)
class Extras:
    """What a claim's rows need beside themselves."""

    graphs: list[tuple[int, str, str]] = field(default_factory=list)
    shared: dict[int, str | None] = field(default_factory=dict)
    steps: dict[str, dict[str, StepRecord]] = field(default_factory=dict)
    fanouts: dict[str, dict[str, FanoutState]] = field(default_factory=dict)


def fetch(
    conn: Connection, graphs: Sequence[int], fanouts: Sequence[int], parents: Sequence[str]
) -> Extras:
    """Read the extras in at most four statements."""
    found = Extras()
    if graphs:
        found.graphs = [
            tuple(r) for r in conn.execute(claim.SQL.graphs, {"ids": list(graphs)}).fetchall()
        ]
    if fanouts:
        found.shared = spawn.shared_of(conn, fanouts)
    if parents:
        for run_id, vertex, status, output, error in step.of_runs(conn, parents):
            record = StepRecord(
                status,  # type: ignore[arg-type]
                None if output is None else orjson.loads(output),
                None if error is None else orjson.loads(error),
            )
            found.steps.setdefault(run_id, {})[vertex] = record
        for state in spawn.of_parents(conn, parents):
            found.fanouts.setdefault(state.parent_id, {})[state.vertex] = state
    return found


def facts_of_worker(options: WorkerOptions, tasks: list[str]) -> dict[str, Any]:
    """What the workers table says of this boot."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return {
        "name": options.name,
        "pool": options.pool,
        "slots": options.slots,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "boot_id": boot.read_text(encoding="ascii").strip() if boot.exists() else "",
        "pid_started": Path("/proc/self/stat")
        .read_text(encoding="ascii")
        .rsplit(") ", 1)[1]
        .split()[19],
        "package_version": metadata.version("suimon"),
        "beat_ms": int(options.heartbeat_s * 1000),
        "tasks": tasks,
    }


def take_back(
    conn: Connection, *, worker: int, pool: str, reasons: Sequence[str], n: int
) -> list[Claimed]:
    """Claim at most ``n`` runs that were held back for want of code that this worker has.

    One transaction from held back to running: in between, a worker without the code would take
    them again, hold them back again, and so on.
    """

    def act() -> list[Claimed]:
        with transaction(conn):
            found = claim.held_back(conn, pool, reasons, n)
            if not found:
                return []
            ids = [run_id for run_id, _ in found]
            lanes = {name for _, name in found if name is not None}
            if lanes:
                lane.lock(conn, lanes)
            claim.readmit(conn, ids, reasons)
            if lanes:
                lane.send_admit(conn, lanes)
            return claim.take(conn, worker, pool, ids)

    rows = retrying(act)
    claim.fill_inputs(conn, rows)
    return rows


class Intake:
    """Takes claimed rows in."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def take(self, claimed: Sequence[Claimed]) -> None:
        """Hold the rows, fetch what is missing, then hand each one on.

        What met a pause of its pipeline goes back at once: a run that was asked to stop does not.
        """
        back = [row for row in claimed if row.paused and not row.cancel_requested]
        for row in back:
            self._worker.outbox.hold_back(self._worker.hold(row), f"paused:{row.paused}")
        claimed = [row for row in claimed if not row.paused or row.cancel_requested]
        if not claimed:
            return
        held = [self._worker.hold(row) for row in claimed]
        programs = self._worker.programs
        graphs = sorted({r.graph_id for r in claimed if r.graph_id not in programs.graphs})
        fanouts = sorted(
            {r.fanout_id for r in claimed if r.fanout_id is not None and self._asks(r)}
        )
        parents = [r.id for r in claimed if r.vertex is None and r.claim_no > 1]
        if not graphs and not fanouts and not parents:
            self._accept(held, Extras())
            return
        work = functools.partial(fetch, graphs=graphs, fanouts=fanouts, parents=parents)

        def failed(error: Exception) -> None:
            for one in held:
                self._worker.failed(one, error)

        self._worker.ledger.ask(work, lambda extras: self._accept(held, extras), failed)

    def _asks(self, row: Claimed) -> bool:
        assert row.fanout_id is not None
        if row.vertex is None:
            return True  # a pipeline's input is its item with the shared fields
        return not self._worker.programs.knows_child(row.graph_id, row.vertex, row.fanout_id)

    def _accept(self, held: list[Held], extras: Extras) -> None:
        for graph_id, _, body in extras.graphs:
            self._worker.programs.add_graph(graph_id, body)
        before = len(self._worker.outbox.held_back)
        for one in held:
            if not one.gone:
                try:
                    self._accept_one(one, extras)
                except Exception as error:
                    log.exception("run %s: the engine itself failed", one.run.id)
                    self._worker.outbox.end_failed(one, "failed", internal(error))
        held_back = len(self._worker.outbox.held_back) - before
        self._worker.pace.began(len(held) - held_back)

    def _accept_one(self, held: Held, extras: Extras) -> None:
        run, programs = held.run, self._worker.programs
        if run.deadline_in_s is not None:
            held.deadline_at = clock.monotonic() + run.deadline_in_s
        missing = programs.missing(run.graph_id, run.vertex)
        if missing is not None:
            self._worker.outbox.hold_back(held, f"no_code:{missing}")
        elif run.unreadable and not run.cancel_requested:
            self._worker.outbox.park_unreadable(held)
        elif run.cancel_requested:
            held.cancel = True
            if run.vertex is None and not programs.is_single(run.graph_id):
                self._worker.driver.stop(held)
            else:
                self._worker.outbox.end_cancelled(held)
        elif run.vertex is not None:
            assert run.fanout_id is not None
            shared = extras.shared.get(run.fanout_id)
            held.program = programs.child(run.graph_id, run.vertex, run.fanout_id, shared)
            held.given = (run.input or "null").encode()
            self._worker.waiter.begin(held, None)
        else:
            if run.fanout_id is not None and (shared := extras.shared.get(run.fanout_id)):
                run.input = _merged(run.input or "null", shared)
            if programs.is_single(run.graph_id):
                self._single(held)
            else:
                steps = extras.steps.get(run.id, {})
                self._worker.driver.begin(held, steps, extras.fanouts.get(run.id, {}))

    def _single(self, held: Held) -> None:
        """One TASK and nothing else: it writes no step row, its result is the run's."""
        run = held.run
        action = self._worker.programs.plan(run.graph_id).next(
            {}, run_input=orjson.loads(run.input or "null"), run=facts_of(run.id, run.pipeline)
        )
        match action:
            case plan.Execute():
                held.program = self._worker.programs.task(run.graph_id, action)
                held.given = action.inputs
                self._worker.waiter.begin(held, None)
            case plan.Fail(error, _, status):
                self._worker.outbox.end_failed(held, status, error)
            case other:
                msg = f"a graph of one task cannot ask for {other!r}"
                raise AssertionError(msg)


def _merged(item: str, shared: str) -> str:
    value: dict[str, Any] = {**orjson.loads(item), **orjson.loads(shared)}
    return orjson.dumps(value).decode()
