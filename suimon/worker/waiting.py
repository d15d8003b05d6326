"""Vertices that wait, and single children: timers, signals, approvals, another pipeline's run.

Nothing here holds a slot. A wait parks the run as a row; a START (or a task of another pool) is a
fan-out of one child, with the same ids, fences and wake-ups as any other, whose end is the step's
result.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from suimon.core import clock, jsonsafe, plan, shape
from suimon.core.durations import seconds
from suimon.db.connect import Connection
from suimon.errors import QuotaExceeded, SuimonError
from suimon.run import approvals, spawn, step, stream, submit, wait
from suimon.run.spawn import Child, FanoutState, Holder, Policy
from suimon.run.wait import On
from suimon.worker.spawning import child_of_pipeline

if TYPE_CHECKING:
    from suimon.worker.drive import Drive
    from suimon.worker.held import Held
    from suimon.worker.worker import Worker

#: (status, output JSON, error) of the one child, or None while it is not over.
One = tuple[str, bytes | None, Mapping[str, Any] | None] | None


def deadline_passed() -> dict[str, Any]:
    """The error of a run or step whose deadline has passed."""
    return {"type": "DeadlinePassed", "message": "its deadline has passed", "kind": "deadline"}


class Waiter:
    """Carries out the waiting vertices among the runs of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def wait(self, held: Held, action: plan.Wait) -> None:
        """A timer, an instant or a signal: over by now, or parked."""
        work = functools.partial(
            wait.wait_for,
            holder=self._worker.holder(held),
            vertex=action.vertex,
            after_s=action.timer_s if action.timer_s is not None else action.timeout_s,
            until=action.until,
            signal=action.signal,
        )

        def answered(found: wait.Waited) -> None:
            if not found.over:
                self.not_over(held, action.vertex, On(signal=action.signal, in_s=found.in_s))
            elif found.timed_out:
                text = f'the signal "{action.signal}" did not come within {action.timeout_s:g} s'
                error = {"type": "SignalTimedOut", "message": text}
                self._done(held, action.vertex, "timed_out", None, error)
            else:
                self._done(held, action.vertex, "succeeded", found.value.encode(), None)

        self._worker.driver.ask(held, work, answered)

    def approve(self, held: Held, action: plan.Approve) -> None:
        """Ask people: decided by now, or parked."""
        config = action.config
        expires = config.get("expires")
        work = functools.partial(
            approvals.ask,
            holder=self._worker.holder(held),
            vertex=action.vertex,
            pipeline=held.run.pipeline,
            show=jsonsafe.dumps(action.show, what="show"),
            required=action.required,
            title=config.get("title"),
            role=config.get("role"),
            quorum=int(config.get("quorum", 1)),
            expires_s=seconds(expires) if expires is not None else None,
        )

        def answered(found: approvals.Decision | float | None) -> None:
            if not isinstance(found, approvals.Decision):
                self.not_over(held, action.vertex, On(approval=action.vertex, in_s=found))
                return
            output = found.to_json()
            if output["approved"] or config.get("onReject", "fail") == "continue":
                self._done(held, action.vertex, "succeeded", orjson.dumps(output), None)
                return
            text = f'"{action.vertex}" was {found.decision} by {found.by}'
            error = {"type": "NotApproved", "message": text, **output}
            self._done(held, action.vertex, "failed", None, error)

        self._worker.driver.ask(held, work, answered)

    def start(self, held: Held, action: plan.Start) -> None:
        """One run of another pipeline; awaited, or only noted."""
        text = jsonsafe.dumps(action.input, what="input").decode()
        if not action.wait:
            self._submit(held, action, text)
            return

        def child(conn: Connection) -> Child:
            return child_of_pipeline(
                conn,
                held.run,
                action.pipeline,
                pool=action.config.get("pool"),
                fanout_lane=None,
                limit=None,
            )

        self._one(held, action.vertex, text, child)

    def elsewhere(self, held: Held, action: plan.Execute, given: Mapping[str, Any]) -> None:
        """A task whose pool is not the run's: it is executed as a child run there."""
        run = held.run
        text = jsonsafe.dumps(dict(given), what="inputs").decode()
        interruptions = int(action.config.get("maxInterruptions", 3))

        def child(_: Connection) -> Child:
            return Child(
                run.pipeline, run.graph_id, action.vertex, action.config["pool"], run.priority,
                interruptions, None, None, own_lane=False,
            )  # fmt: skip

        self._one(held, action.vertex, text, child)

    def begin(self, held: Held, vertex: str | None) -> None:
        """A task is ready: to a slot, once its deadline (if it has one) has begun.

        ``vertex`` is None for a run of one vertex.
        """
        program = held.program
        assert program is not None
        if program.secrets and held.secrets is None:
            self._worker.grants.give(held, lambda: self.begin(held, vertex))
            return
        if program.deadline_s is None:
            self._worker.enqueue(held)
            return
        work = functools.partial(
            wait.open_deadline,
            holder=self._worker.holder(held),
            vertex=vertex,
            deadline_s=program.deadline_s,
        )

        def opened(left_s: float) -> None:
            held.deadline_at = clock.monotonic() + left_s
            if left_s > 0:
                self._worker.enqueue(held)
            else:
                self._worker.results.failed_try(held, 0, deadline_passed())

        self._worker.driver.ask(held, work, opened)

    def skip(self, held: Held, action: plan.Skip) -> None:
        """Conditions that are false: recorded all at once, and the run goes on."""
        work = functools.partial(
            step.skip, holder=self._worker.holder(held), vertices=action.vertices
        )

        def recorded(_: None) -> None:
            assert held.drive is not None
            for vertex in action.vertices:
                held.drive.steps[vertex] = plan.StepRecord("skipped")
            self._worker.driver.advance(held)

        self._worker.driver.ask(held, work, recorded)

    # ------------------------------------------------------------------ one child

    def _one(self, held: Held, vertex: str, text: str, child: Any) -> None:
        work = functools.partial(
            _one_child, holder=self._worker.holder(held), vertex=vertex, text=text,
            root_id=held.run.root_id, child=child,
        )  # fmt: skip

        def answered(answer: tuple[int, One]) -> None:
            fanout, found = answer
            if held.drive is not None:
                held.drive.is_parent = True
            if found is None:
                self.not_over(held, vertex, On(fanout=fanout))
                return
            status, output, error = found
            self._done(held, vertex, status, output, error)

        self._worker.driver.ask(
            held, work, answered, lambda error: self._refused(held, vertex, error)
        )

    def _submit(self, held: Held, action: plan.Start, text: str) -> None:
        key = f"start:{held.run.id}:{action.vertex}"
        request = submit.Request(text.encode(), key)

        def work(conn: Connection) -> list[submit.Submitted]:
            labels = submit.labels_of(conn, held.run.root_id)  # what a run starts has its labels
            return submit.submit(conn, action.pipeline, [request], labels=labels)

        def submitted(answers: list[submit.Submitted]) -> None:
            output = orjson.dumps({"run_id": answers[0].id})
            self._done(held, action.vertex, "succeeded", output, None)

        self._worker.driver.ask(
            held, work, submitted, lambda error: self._refused(held, action.vertex, error)
        )

    def _refused(self, held: Held, vertex: str, error: SuimonError) -> None:
        """A single run that was not born: for a quota this run waits, else its step has failed."""
        if isinstance(error, QuotaExceeded) and error.quota is None:  # it could not be asked now
            self.not_over(held, vertex, On(in_s=1.0))
        elif isinstance(error, QuotaExceeded):
            self.not_over(held, vertex, On(quota=error.quota, in_s=max(error.renews_in_s, 0.1)))
        else:
            self._done(held, vertex, "failed", None, error.to_json())

    def not_over(self, held: Held, vertex: str, on: On) -> None:
        """Remember it and look at the others; when all that is left waits, the run is parked."""
        assert held.drive is not None
        held.drive.waits[vertex] = on
        self._worker.driver.advance(held)

    def park(self, held: Held) -> None:
        """Everything that could be done is done: wait as a row, held by nobody."""
        drive = held.drive
        assert drive is not None
        work = functools.partial(
            wait.park,
            holder=self._worker.holder(held),
            waits=list(drive.waits.values()),
            grace_s=drive.grace_s,
            merged=_merged(drive),
        )

        def answered(found: tuple[bool, float | None]) -> None:
            parked, in_s = found
            if not parked:
                drive.waits.clear()  # one of them is over by now
                self._worker.driver.advance(held)
                return
            self._worker.drop(held)
            self._worker.sender.place_freed()
            if in_s is not None:
                self._worker.upkeep.arm(in_s)

        self._worker.driver.ask(held, work, answered)

    def _done(
        self,
        held: Held,
        vertex: str,
        status: str,
        output: bytes | None,
        error: Mapping[str, Any] | None,
    ) -> None:
        self._worker.driver.step_done(held, vertex, status, 0, output, error)


def _merged(drive: Drive) -> dict[int, list[str]]:
    """The fan-outs whose end this run has used, each with the steps from there on."""
    found = {}
    for name, fanout in drive.fanouts.items():
        steps = shape.affected_by_remerge(drive.graph, name)
        if not steps.isdisjoint(drive.steps):
            found[fanout.id] = sorted(steps)
    return found


def _one_child(
    conn: Connection, *, holder: Holder, vertex: str, text: str, root_id: str, child: Any
) -> tuple[int, One]:
    """Make the child if it is not there, then look: (its fan-out, its end or None)."""
    fanout = spawn.open_fanout(
        conn,
        holder,
        vertex=vertex,
        base=submit.fanout_base(),
        policy=Policy(),
        limit=None,
        shared=None,
    )
    if fanout.expected is None:
        print_ = jsonsafe.content_hash(text.encode())
        spawn.chunk(
            conn, holder, fanout, child(conn), root_id=root_id, first=0, n=1,
            hashes="{" + str(print_) + "}", keys=None, items=text,
        )  # fmt: skip
        spawn.seal(conn, holder, fanout, n=1, keyed=False)
    state = next(f for f in spawn.of_parents(conn, [holder.run_id]) if f.vertex == vertex)
    return state.id, (_end_of(conn, state) if state.complete else None)


def _end_of(conn: Connection, fanout: FanoutState) -> One:
    if fanout.succeeded:
        _, _, _, value, _, _ = stream.page(conn, fanout.id, fanout.base, "succeeded", -1, 1)[0]
        return "succeeded", (value or "null").encode(), None
    _, _, state, _, error, run_id = stream.page(conn, fanout.id, fanout.base, "failed", -1, 1)[0]
    found = (
        orjson.loads(error) if error else {"type": "ChildEnded", "message": f"the child {state}"}
    )
    return ("timed_out" if state == "timed_out" else "failed"), None, {**found, "run_id": run_id}
