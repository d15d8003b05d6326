"""What does this run do next? A pure answer from the graph and the steps recorded so far.

The worker asks after every step, and again whenever it claims the run: there is no replay and no
program counter, only the records. `Plan` holds what depends on the graph alone and may be kept per
graph hash; `Plan.next` looks at one run. The answers are described in `core/actions.py`.

While nothing has failed, every step whose needs are met may start, and those whose condition is
false are skipped with all that refers to them. What parks the run comes last, and what is `open`
first among that, since it may be over by now. A caller that can wait for several things at once
names those it has looked at (`waiting`): when the answer is one of them, nothing else can be done.

After a failure nothing new starts but branches for it (`runIf`), as soon as all that they come
after is over: ended, or out of reach now. A step that can no longer run because one before it
failed counts as failed for them. When they have ended the run fails with its first cause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from suimon.core import refs, shape
from suimon.core.actions import (
    BAD,
    NOT_REQUIRED,
    Action,
    Approve,
    Execute,
    Fail,
    Finish,
    ListSource,
    Merge,
    NextAction,
    ReadSource,
    Record,
    Skip,
    Source,
    Spawn,
    Start,
    StepRecord,
    StepStatus,
    TaskSource,
    Wait,
)
from suimon.core.shape import Graph
from suimon.core.step_action import Steps, condition, specials
from suimon.errors import InputRefused

__all__ = [
    "NOT_REQUIRED",
    "Action",
    "Approve",
    "Execute",
    "Fail",
    "Finish",
    "ListSource",
    "Merge",
    "NextAction",
    "Plan",
    "ReadSource",
    "Record",
    "Skip",
    "Source",
    "Spawn",
    "Start",
    "StepRecord",
    "StepStatus",
    "TaskSource",
    "Wait",
    "next_action",
    "specials",
]


@dataclass(frozen=True, slots=True)
class _Needs:
    """What one step comes after. Needs of a folded vertex are those of its spawner."""

    data: frozenset[str]
    after: frozenset[str]
    run_if: str


@dataclass(frozen=True, slots=True)
class _Look:
    """One run at one moment: its steps' states, and what references may name."""

    status: Mapping[str, str]
    sources: Mapping[str, Any]
    waiting: Collection[str]

    def is_in(self, step: str, *states: str) -> bool:
        return self.status.get(step) in states


class Plan:
    """The order of one graph's steps. Keep it per graph hash and set of generator tasks."""

    __slots__ = ("_branches", "_folded", "_needs", "_order", "_steps", "_unmerged", "graph")

    def __init__(self, graph: Graph, generators: Collection[str] = ()) -> None:
        self.graph = graph
        self._folded = shape.folded(graph, generators)
        self._order = [name for name in shape.order(graph) if name not in self._folded]
        self._unmerged = shape.unmerged(graph)
        self._needs = self._all_needs()
        self._steps = Steps(graph, self._folded)
        self._branches = any(shape.is_conditional(graph, name) for name in self._order)

    def steps(self) -> list[str]:
        """Every step a run of this graph may record, in order; implicit merges at the end."""
        return [*self._order, *(shape.implicit_merge(name) for name in self._unmerged)]

    def next(
        self,
        steps: Mapping[str, StepRecord],
        *,
        run_input: Any,
        run: Mapping[str, Any],
        waiting: Collection[str] = (),
    ) -> NextAction:
        """The next action. `run` holds `id`, `pipeline` and `created_at`, for references to it.

        `waiting` are steps that were just found to be not over; they come after all others.
        """
        status = {name: record.status for name, record in steps.items()}
        look = _Look(status, self._sources(steps, run_input, run), waiting)
        failure = self._recorded_failure(steps)
        if failure is None and (skipped := self._skipped(look)):
            return Skip(skipped)
        if failure is None or self._needs[failure.vertex or ""].run_if != shape.SUCCEEDED:
            # a branch that broke may have been started by a step that could not even be begun
            action = self._first(look, self._ready(look))
            if isinstance(action, Fail):
                failure = action
            elif failure is None:
                return action or self._finish(look, steps)
        branches = self._ready_after_failure(look, failure)
        return self._first(look, branches, failed=True) or failure

    # ----------------------------------------------------------------- which step

    def _ready(self, look: _Look) -> Iterator[str]:
        """Steps that may start while nothing has failed, in order."""
        for name in self.steps():
            needs = self._needs[name]
            if (
                not look.is_in(name, "succeeded", "skipped", *BAD)
                and all(look.is_in(other, "succeeded") for other in needs.data)
                and all(look.is_in(other, "succeeded", "skipped") for other in needs.after)
                and needs.run_if != shape.FAILED
                and not self._is_off(name, look)
            ):
                yield name

    def _skipped(self, look: _Look) -> tuple[str, ...]:
        """Steps that will not run in this run, as far as can be told now."""
        if not self._branches:
            return ()
        found: dict[str, None] = {}
        for name in self.steps():
            if look.is_in(name, "succeeded", "skipped", *BAD):
                continue
            needs = self._needs[name]
            if any(look.is_in(other, "skipped") or other in found for other in needs.data) or (
                all(look.is_in(other, "succeeded") for other in needs.data)
                and all(
                    look.is_in(other, "succeeded", "skipped") or other in found
                    for other in needs.after
                )
                and (needs.run_if == shape.FAILED or self._is_off(name, look))
            ):
                found[name] = None
        return tuple(found)

    def _ready_after_failure(self, look: _Look, failure: Fail) -> Iterator[str]:
        """Branches for a failed run whose `after` is over. Nothing else starts any more."""
        down = {failure.vertex}  # failed, or out of reach because something before it failed
        for name in self.steps():
            needs = self._needs[name]
            blocked = any(other in down for other in needs.data) or (
                needs.run_if == shape.SUCCEEDED and any(other in down for other in needs.after)
            )
            if look.is_in(name, *BAD) or name == failure.vertex or blocked:
                down.add(name)
            elif (
                needs.run_if != shape.SUCCEEDED
                and not look.is_in(name, "succeeded", "skipped")
                and all(look.is_in(other, "succeeded") for other in needs.data)
                and (needs.run_if == shape.ENDED or any(other in down for other in needs.after))
                and not self._is_off(name, look)
            ):
                yield name  # what stands before it in order has ended, or never will run

    def _first(
        self, look: _Look, ready: Iterator[str], *, failed: bool = False
    ) -> NextAction | None:
        """The first action that does not park the run, else the most promising one that does."""
        parking: dict[int, NextAction] = {}
        for name in ready:
            action = self._steps.action(name, look.sources)
            if isinstance(action, Fail):
                if failed:
                    continue  # a branch that cannot begin does not keep the others from running
                return action
            parks = name not in shape.vertices(self.graph) or shape.parks(self.graph, name)
            if not parks and name not in look.waiting:  # (a spawner may have been deferred)
                return action
            rank = 2 if name in look.waiting else 0 if look.is_in(name, "open") else 1
            parking.setdefault(rank, action)
        return parking[min(parking)] if parking else None

    def _is_off(self, step: str, look: _Look) -> bool:
        """Is its condition false? What cannot be judged is not off: it fails when it starts."""
        if step not in shape.vertices(self.graph):
            return False
        try:
            return not condition(step, shape.vertices(self.graph)[step], look.sources)
        except InputRefused:
            return False

    # ----------------------------------------------------------------- the run's end

    def _recorded_failure(self, steps: Mapping[str, StepRecord]) -> Fail | None:
        """The first step that ended badly; one of the work before one of a branch."""
        bad = [name for name in self.steps() if name in steps and steps[name].status in BAD]
        work = [name for name in bad if self._needs[name].run_if == shape.SUCCEEDED]
        first = next(iter(work or bad), None)
        return None if first is None else _failure(first, steps[first])

    def _finish(self, look: _Look, steps: Mapping[str, StepRecord]) -> NextAction:
        for name in self.steps():
            if not look.is_in(name, "succeeded", "skipped"):
                msg = f'step "{name}" can neither run nor be skipped'
                raise AssertionError(msg)
        skipped = {name for name, record in steps.items() if record.status == "skipped"}
        try:
            return Finish(self._output(look.sources, skipped))
        except InputRefused as error:
            return Fail(error.to_json(), vertex=None)

    def _output(self, sources: Mapping[str, Any], skipped: Collection[str]) -> Any:
        if "output" in self.graph:
            output = _without(self.graph["output"], skipped)
            return refs.resolve(output, sources, vertex="output", field="output")
        last = [name for name in shape.last_vertices(self.graph) if name not in self._folded]
        if len(last) == 1:
            return sources.get(last[0])
        return {name: sources.get(name) for name in last}

    # ----------------------------------------------------------------- what a step is

    def _all_needs(self) -> dict[str, _Needs]:
        data, after = shape.data_needs(self.graph), shape.after_needs(self.graph)
        needs: dict[str, _Needs] = {}
        for name in self._order:
            is_merge = shape.kind(self.graph, name) == shape.MERGE
            before = {name, *(data[name] & self._folded)}
            needs[name] = _Needs(
                frozenset().union(*(data[one] for one in before)) - self._folded,
                frozenset() if is_merge else frozenset().union(*(after[one] for one in before)),
                shape.run_if(self.graph, name),
            )
            if is_merge and needs[name].run_if != shape.SUCCEEDED:
                # its spawner has run, so its branch is on
                needs[name] = _Needs(needs[name].data, frozenset(), shape.ENDED)
        for spawner in self._unmerged:
            own = shape.run_if(self.graph, spawner)
            kind = own if own == shape.SUCCEEDED else shape.ENDED
            needs[shape.implicit_merge(spawner)] = _Needs(frozenset({spawner}), frozenset(), kind)
        return needs

    def _sources(
        self, steps: Mapping[str, StepRecord], run_input: Any, run: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What references may name: input, run, and the outputs of the steps that have ended."""
        sources: dict[str, Any] = {"input": run_input, "run": run}
        for name, record in steps.items():
            if record.status == "succeeded" and name in shape.vertices(self.graph):
                sources[name] = record.output
        for spawner in self._unmerged:
            merged = steps.get(shape.implicit_merge(spawner))
            if merged is not None and merged.status == "succeeded":
                sources[spawner] = merged.output
        return sources


def next_action(
    graph: Graph,
    steps: Mapping[str, StepRecord],
    *,
    run_input: Any,
    run: Mapping[str, Any],
    generators: Collection[str] = (),
) -> NextAction:
    """`Plan(graph, generators).next(...)` for one look."""
    return Plan(graph, generators).next(steps, run_input=run_input, run=run)


def _without(value: Any, skipped: Collection[str]) -> Any:
    """An output in which what refers to a skipped vertex is null."""
    if refs.is_quoted(value):
        return value
    if refs.is_reference(value):
        root = refs.parse_path(value[refs.REF])[0]
        gone = root in skipped or shape.implicit_merge(str(root)) in skipped
        return {refs.VALUE: None} if gone else value
    if isinstance(value, dict):
        return {key: _without(inner, skipped) for key, inner in value.items()}
    return [_without(inner, skipped) for inner in value] if isinstance(value, list) else value


def _failure(step: str, record: StepRecord) -> Fail:
    error = record.error or {"type": "StepFailed", "message": f'step "{step}" {record.status}'}
    status = record.status
    assert status in ("failed", "timed_out", "cancelled")
    return Fail(error, step, status)
