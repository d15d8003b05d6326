"""Runs with more than one vertex: what a worker does between the steps.

The planner (``core/plan.py``) says what comes next; this file carries it out: a task or a spawner's
list goes to a slot, a merge parks the run, a finish ends it. Every step is stored under the fence
before the next one begins. A parent that waits for its children is not held here at all: it is an
ordinary ``waiting`` row.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from suimon.core import jsonsafe, plan, shape
from suimon.core.durations import seconds
from suimon.core.plan import StepRecord
from suimon.db.connect import Connection
from suimon.errors import SuimonError
from suimon.run import merge, spawn, wait
from suimon.run.finish import Ended
from suimon.run.spawn import FanoutState, Holder, LostRunError
from suimon.run.step import Step
from suimon.worker.spawning import Spawning

if TYPE_CHECKING:
    from suimon.worker.held import Held
    from suimon.worker.worker import Worker

log = logging.getLogger("suimon.worker")

DEFAULT_GRACE = "10s"


@dataclass(slots=True)
class Drive:
    """Where one run stands between its steps."""

    plan: plan.Plan
    input: Any
    run: dict[str, Any]
    steps: dict[str, StepRecord] = field(default_factory=dict)
    fanouts: dict[str, FanoutState] = field(default_factory=dict)
    spawning: Spawning | None = None
    is_parent: bool = False
    #: Steps that were looked at and are not over, and what each of them waits for.
    waits: dict[str, wait.On] = field(default_factory=dict)
    grace_s: float = 0.0

    @property
    def graph(self) -> Mapping[str, Any]:
        return self.plan.graph


def facts_of(run_id: str, pipeline: str) -> dict[str, Any]:
    """What references to ``run`` may see; a run's id carries its birth."""
    born = datetime.fromtimestamp(int(run_id.replace("-", "")[:12], 16) / 1000, tz=UTC)
    return {
        "id": run_id,
        "pipeline": pipeline,
        "created_at": born.isoformat(timespec="milliseconds"),
    }


def internal(error: Exception) -> dict[str, Any]:
    """The error of a run that met a defect of the engine."""
    text = f"{type(error).__name__}: {error}"
    return {"type": "InternalError", "code": "SUI-5005", "message": text[:2000]}


class Driver:
    """Carries out the planner's actions for the runs of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def begin(
        self, held: Held, steps: dict[str, StepRecord], fanouts: dict[str, FanoutState]
    ) -> None:
        """A run with several vertices was claimed; its records have been read."""
        run = held.run
        held.drive = Drive(
            self._worker.programs.plan(run.graph_id),
            orjson.loads(run.input or "null"),
            facts_of(run.id, run.pipeline),
            steps,
            fanouts,
        )
        self.advance(held)

    def advance(self, held: Held) -> None:
        """Do what comes next; what cannot be done ends the run, never the worker."""
        try:
            self._advance(held)
        except SuimonError as error:
            self._worker.outbox.end_failed(held, "failed", error.to_json())
        except Exception as error:
            log.exception("run %s: the engine itself failed", held.run.id)
            self._worker.outbox.end_failed(held, "failed", internal(error))

    def _advance(self, held: Held) -> None:
        drive = _drive(held)
        if held.cancel:
            self.stop(held)
            return
        action = drive.plan.next(
            drive.steps, run_input=drive.input, run=drive.run, waiting=tuple(drive.waits)
        )
        if getattr(action, "vertex", None) in drive.waits:
            self._worker.waiter.park(held)
        else:
            self._carry_out(held, action)

    def _carry_out(self, held: Held, action: plan.NextAction) -> None:
        match action:
            case plan.Execute():
                self._execute(held, action)
            case plan.Record(vertex, output):
                self.step_done(held, vertex, "succeeded", 0, orjson.dumps(output), None)
            case plan.Spawn():
                self._worker.spawner.begin(held, action)
            case plan.Merge():
                self._merge(held, action)
            case plan.Wait():
                self._worker.waiter.wait(held, action)
            case plan.Approve():
                self._worker.waiter.approve(held, action)
            case plan.Start():
                self._worker.waiter.start(held, action)
            case plan.Skip():
                self._worker.waiter.skip(held, action)
            case plan.Finish(output):
                text = jsonsafe.dumps(output, what="output")
                self._end(held, "succeeded", text.decode(), "")
            case plan.Fail(error, _, status):
                self._end(held, status, "", orjson.dumps(error).decode())

    # ------------------------------------------------------------------ tasks

    def _execute(self, held: Held, action: plan.Execute) -> None:
        drive = _drive(held)
        given = self._with_fanouts(drive, action)
        if action.config.get("pool", self._worker.pool) != self._worker.pool:
            self._worker.waiter.elsewhere(held, action, given)
            return
        program = self._worker.programs.task(held.run.graph_id, action)
        held.program = program
        held.vertex = action.vertex
        held.given = given
        held.secrets = None  # those of the step before
        self._worker.waiter.begin(held, action.vertex)

    def _with_fanouts(self, drive: Drive, action: plan.Execute) -> dict[str, Any]:
        """Merge results among the inputs get their fan-out's number, for their streams."""
        inputs = action.inputs
        named = shape.vertices(drive.graph)[action.vertex].get("inputs") or {}
        for path, what in action.specials:
            if what != "merge":
                continue
            root = named
            for part in path:
                root = root[part]
            reference = root["$ref"]
            vertex = reference if isinstance(reference, str) else reference[0]
            fanout = drive.fanouts[shape.merges(drive.graph)[vertex]]
            place: Any = inputs
            for part in path[:-1]:
                place = place[part]
            place[path[-1]] = {**place[path[-1]], "fanout": str(fanout.id)}
        return inputs

    def step_done(
        self,
        held: Held,
        vertex: str,
        status: str,
        duration_us: int,
        output: bytes | None,
        error: Mapping[str, Any] | None,
    ) -> None:
        """A vertex has ended; its record is written, and then the run goes on."""
        drive = _drive(held)
        value = orjson.loads(output) if output is not None else None
        drive.steps[vertex] = StepRecord(status, value, error)  # type: ignore[arg-type]
        run = held.run
        self._worker.outbox.step(
            Step(
                run.id,
                run.claim_no,
                vertex,
                status,
                duration_us,
                output.decode() if output is not None else "",
                orjson.dumps(error).decode() if error is not None else "",
                held.take_told() if held.told is not None and status == "succeeded" else None,
            )
        )

    # ------------------------------------------------------------------ merge and end

    def _merge(self, held: Held, action: plan.Merge) -> None:
        """Record what the fan-out means if it is over; if not, the run will wait for it."""
        drive = _drive(held)
        drive.grace_s = max(drive.grace_s, seconds(action.config.get("grace", DEFAULT_GRACE)))
        work = functools.partial(_merge, self._worker.holder(held), action, drive.grace_s)

        def answered(found: tuple[FanoutState, merge.Judged | None]) -> None:
            fanout, judged = found
            drive.fanouts[action.spawner] = fanout
            if judged is None:
                drive.waits[action.vertex] = wait.On(fanout=fanout.id)
                self.advance(held)
                return
            output = orjson.dumps(judged.output) if judged.output is not None else None
            status = "succeeded" if judged.error is None else "failed"
            self.step_done(held, action.vertex, status, 0, output, judged.error)

        self.ask(held, work, answered)

    def _end(self, held: Held, status: str, output: str, error: str) -> None:
        run = held.run
        ended = Ended(run.id, run.claim_no, status, output, error, 0, run.fanout_id, run.lane)
        drive = _drive(held)
        if not (drive.is_parent or drive.fanouts or shape.of_kind(drive.graph, shape.SPAWNER)):
            self._worker.outbox.end(ended)
            return
        graph = dict(_drive(held).graph)
        work = functools.partial(
            merge.finish_parent,
            holder=self._worker.holder(held),
            ended=ended,
            graph=graph,
            grace_s=seconds(DEFAULT_GRACE),
        )

        def answered(end: merge.ParentEnd) -> None:
            self._worker.sender.follow(end.settled)
            self._worker.sender.touched(end.pools)
            if not (end.done or end.parked):
                self._worker.lost(held)  # not ours any more, or asked to stop: compare holdings
            self._worker.drop(held)
            self._worker.sender.place_freed()

        self.ask(held, work, answered)

    def stop(self, held: Held) -> None:
        """Asked to stop, and nothing of it executes: end it, or wait for its children."""
        work = functools.partial(merge.stop_parent, holder=self._worker.holder(held))

        def answered(waits: bool) -> None:
            self._worker.upkeep.cancel_soon()
            if waits:
                self._worker.drop(held)
                self._worker.sender.place_freed()
            else:
                self._worker.outbox.end_cancelled(held)

        self.ask(held, work, answered)

    # ------------------------------------------------------------------ the ledger

    def ask(
        self,
        held: Held,
        work: Callable[[Connection], Any],
        then: Callable[[Any], None],
        refused: Callable[[SuimonError], None] | None = None,
    ) -> None:
        """Ask the ledger; a lost run is stopped, a refusal fails the step, the rest is an error."""

        def failed(error: Exception) -> None:
            if isinstance(error, LostRunError):
                # asked to stop, or not ours any more: then the fence makes nothing of it
                held.cancel = True
                if held.drive is None:
                    self._worker.outbox.end_cancelled(held)
                else:
                    self.stop(held)
            elif isinstance(error, SuimonError) and refused is not None:
                refused(error)
            else:
                self._worker.failed(held, error)

        self._worker.desk.ask(work, then, failed)


def _drive(held: Held) -> Drive:
    assert held.drive is not None
    return held.drive


def _merge(
    holder: Holder, action: plan.Merge, grace_s: float, conn: Connection
) -> tuple[FanoutState, merge.Judged | None]:
    """Judge the fan-out if it is over."""
    states = [f for f in spawn.of_parents(conn, [holder.run_id]) if f.vertex == action.spawner]
    if not states:
        raise LostRunError(holder.run_id)
    over = merge.is_over(states[0], grace_s)
    return states[0], (merge.judge(conn, states[0]) if over else None)
