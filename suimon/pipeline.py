"""Building a pipeline in Python: verbs that add vertices to a graph.

Nothing runs here and nothing is traced: each verb adds one vertex and returns a reference to its
result, which later verbs take as an input. What comes out is the same canonical graph that a JSON
or YAML definition gives. Mistakes are collected with the line they stand on and reported all at
once, when the graph is asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from suimon import graph as graphs
from suimon import graph_fields as fields
from suimon.builder import After, Order
from suimon.core import refs
from suimon.destination import Destination
from suimon.outside import Outside
from suimon.reference import Reference
from suimon.source_line import shown
from suimon.task import options_of, task
from suimon.trigger_types import Trigger, fields_of

__all__ = ["Limit", "Pipeline", "Reference", "pipeline", "pipeline_of", "task"]

F = TypeVar("F", bound=Callable[..., Any])

_PIPELINE_MARK: Final = "__suimon_pipeline__"
_WHOLE_INPUT: Final = {refs.REF: "input"}


@dataclass(frozen=True, slots=True)
class Limit:
    """`concurrency=Limit(3, per="customer")`: three at a time for each value of a field."""

    limit: int
    per: str

    def to_json(self) -> dict[str, Any]:
        return {"limit": self.limit, "per": self.per}


class Pipeline(Outside):
    """A graph under construction. `concurrency=None` means no limit; the default is one by one."""

    def __init__(
        self,
        name: str,
        *,
        pool: str = "default",
        concurrency: int | str | Limit | None = 1,
        priority: int = 2,
        max_queued: int | None = 1_000,
        max_interruptions: int = 3,
        pause_after: int | str | None = 5,
        on_failure: str | None = None,
        deadline: str | None = None,
        keep: Mapping[str, Any] | None = None,
        labels: Sequence[str] = (),
    ) -> None:
        """`on_failure="hold"` keeps the lane closed behind a failed run until a person decides;
        after `pause_after` bad ends in a row the triggers stop (None: never); `deadline` is for the
        whole run; `keep={"age": "30d", "count": 1000}` says how long finished runs stay;
        `labels=["tenant:acme"]` are those of each run, by which quotas count.
        """
        limit = concurrency.to_json() if isinstance(concurrency, Limit) else concurrency
        head = {
            "suimon": fields.FORMAT,
            "pipeline": name,
            "pool": pool,
            "concurrency": fields.UNLIMITED if limit is None else limit,
            "priority": priority,
            "maxQueued": fields.UNLIMITED if max_queued is None else max_queued,
            "maxInterruptions": max_interruptions,
            "pauseAfter": fields.NEVER if pause_after is None else pause_after,
            "onFailure": on_failure,
            "deadline": deadline,
            "keep": None if keep is None else dict(keep),
            "labels": labels if isinstance(labels, str) else list(labels),
        }
        super().__init__(name, head)
        #: Declarations that its HTTP vertices were given.
        self.destinations: list[Destination] = []
        #: The run's input: `p.input.path` is the field "path" of what the run is started with.
        self.input = Reference(self, ("input",))
        #: The run itself: `p.meta.id`, `p.meta.pipeline`, `p.meta.created_at`.
        self.meta = Reference(self, ("run",))

    def __repr__(self) -> str:
        return f"<Pipeline {self.name!r}: {len(self._vertices)} vertices>"

    if not TYPE_CHECKING:  # type checkers know by themselves what is not there

        def __getattr__(self, name):
            """Only asked for what does not exist; the verbs of later versions are among that."""
            listed = ", ".join(_VERBS)
            msg = f'a Pipeline has no "{name}"; this version has the verbs {listed}'
            raise AttributeError(msg, name=name, obj=self)

    # ----------------------------------------------------------------- verbs

    def run(
        self,
        id: str,  # noqa: A002 - the word of the design
        task: Callable[..., Any],
        /,
        *args: Any,
        after: After = (),
        when: Reference | None = None,
        unless: Reference | None = None,
        run_if: str | None = None,
        pool: str | None = None,
        **inputs: Any,
    ) -> Reference:
        """Call a task. Arguments are constants or references, by position or by name.

        `after` orders without data, `when` and `unless` name a result that is true or false, and
        `run_if="failed"` or `"ended"` makes it a branch that runs although something failed.
        """
        config = self._task_config(id, task, pool)
        bound = self._bind(id, task, args, inputs) if config else {}
        return self._add(id, graphs.TASK, bound, config, Order(after, when, unless, run_if))

    def spawn(
        self,
        id: str,  # noqa: A002
        target: Callable[..., Any] | Pipeline | str,
        items: Any,
        /,
        *,
        key: str | None = None,
        concurrency: int | None = None,
        pool: str | None = None,
        max_items: int | None = None,
        after: After = (),
        when: Reference | None = None,
        unless: Reference | None = None,
        run_if: str | None = None,
        **shared: Any,
    ) -> Reference:
        """Start one child run per item. The target is a task, a Pipeline or a pipeline's name.

        A task gets the item as its first parameter that `shared` does not name; a pipeline gets it
        as its input. `key` is the path of a field that tells the items apart.
        """
        if options_of(target) is not None and pipeline_of(target) is None:
            assert callable(target)
            config = self._task_config(id, target, pool)
        else:
            config = self._pipeline_target(id, target, pool, "spawned")
        config |= {"itemKey": key, "concurrency": concurrency, "maxItems": max_items}
        inputs = {"items": items, **({"shared": shared} if shared else {})}
        return self._add(id, graphs.SPAWNER, inputs, config, Order(after, when, unless, run_if))

    def merge(
        self,
        id: str,  # noqa: A002
        spawner: Reference,
        /,
        *,
        tolerate: Sequence[str] = (),
        max_failure_ratio: float | None = None,
        max_failures: int | None = None,
        fail_fast: bool = False,
        stragglers: str | None = None,
        grace: str | None = None,
    ) -> Reference:
        """Wait for the children of a spawn. Without `tolerate`, one failed child fails the run."""
        bounds = {"maxFailureRatio": max_failure_ratio, "maxFailures": max_failures}
        bounds = {name: value for name, value in bounds.items() if value is not None}
        states = [tolerate] if isinstance(tolerate, str) else list(tolerate)
        config = {
            "tolerateChildFailures": states or None,
            "failureTolerance": bounds or None,
            "failFast": fail_fast,
            "stragglers": stragglers,
            "grace": grace,
        }
        return self._add(id, graphs.MERGE, {}, config, Order(after=[spawner]))

    def start(
        self,
        id: str,  # noqa: A002
        pipeline: Pipeline | Callable[..., Any] | str,
        /,
        *,
        input: Any = None,  # noqa: A002
        wait: bool = True,
        pool: str | None = None,
        after: After = (),
        when: Reference | None = None,
        unless: Reference | None = None,
        run_if: str | None = None,
    ) -> Reference:
        """Start one run of another pipeline and take its output; it fails when that run fails.

        With `wait=False` nothing is waited for: the result is `{"run_id": ...}`, and the run lives
        on by itself.
        """
        config = {**self._pipeline_target(id, pipeline, pool, "started"), "wait": wait}
        inputs = {} if input is None else {"input": input}
        return self._add(id, graphs.START, inputs, config, Order(after, when, unless, run_if))

    def wait(
        self,
        id: str,  # noqa: A002
        /,
        *,
        timer: str | None = None,
        until: Reference | str | None = None,
        signal: str | None = None,
        timeout: str | None = None,
        after: After = (),
        when: Reference | None = None,
        unless: Reference | None = None,
        run_if: str | None = None,
    ) -> Reference:
        """Wait without holding a slot: for a time, until an instant, or for a signal.

        A signal's data is the result; one that came early is kept, and the first one wins.
        """
        inputs = {} if until is None else {"until": until}
        config = {"timer": timer, "signal": signal, "timeout": timeout}
        return self._add(id, graphs.WAIT, inputs, config, Order(after, when, unless, run_if))

    def approve(
        self,
        id: str,  # noqa: A002
        /,
        *,
        show: Any = None,
        required: Reference | bool = True,
        title: str | None = None,
        role: str | None = None,
        quorum: int = 1,
        expires: str | None = None,
        on_reject: str = "fail",
        after: After = (),
        when: Reference | None = None,
        unless: Reference | None = None,
        run_if: str | None = None,
    ) -> Reference:
        """Ask people. `ok.approved`, `ok.decision`, `ok.by`, `ok.at` and `ok.comment` say what they
        decided. A rejection fails the run unless `on_reject="continue"`; when `required` is false
        nobody is asked and it counts as approved.
        """
        inputs = {"required": required, **({} if show is None else {"show": show})}
        config = {
            "title": title,
            "role": role,
            "quorum": quorum,
            "expires": expires,
            "onReject": on_reject,
        }
        return self._add(id, graphs.APPROVAL, inputs, config, Order(after, when, unless, run_if))

    def on(self, *triggers: Trigger) -> None:
        """What starts runs by itself: `p.on(File("inbox/*.csv"), Cron("0 6 * * *"))`."""
        for trigger in triggers:
            stored = fields_of(trigger)
            if stored is None:
                hint = "File, Cron, Every, Webhook or Event"
                self._mistake(None, "triggers", f"{shown(trigger)} is no trigger", hint)
            else:
                self._triggers.append(stored)

    # ----------------------------------------------------------------- inside

    def whole_input(self, function: Callable[..., Any]) -> None:
        """The one vertex of a `@pipeline`: the function takes the fields of the input it names."""
        called = function.__name__.lower()
        usable = fields.ID.fullmatch(called) and called not in fields.RESERVED_IDS
        vertex = called if usable else "main"
        config = self._task_config(vertex, function, None)
        self._add(vertex, graphs.TASK, _WHOLE_INPUT, config, Order())

    def _pipeline_target(
        self,
        id: str,  # noqa: A002
        target: Any,
        pool: str | None,
        done: str,
    ) -> dict[str, Any]:
        named = pipeline_of(target) or target
        if isinstance(named, Pipeline):
            named = named.name
        if not isinstance(named, str):
            message = f"{shown(target)} cannot be {done}"
            a_task = "a function with @task, " if done == "spawned" else ""
            hint = f"the target is {a_task}a Pipeline, or the name of one"
            self._mistake(id, "config", message, hint)
            return {}
        return {"pipeline": named, "pool": pool}


_VERBS: Final = (
    "approve", "http", "merge", "on", "read", "returns", "run", "spawn", "start", "wait",
)  # fmt: skip

# --------------------------------------------------------------------------- @pipeline


@overload
def pipeline(function: F, /) -> F: ...
@overload
def pipeline(
    *,
    name: str | None = ...,
    pool: str = ...,
    concurrency: int | str | Limit | None = ...,
    priority: int = ...,
    max_queued: int | None = ...,
    pause_after: int | str | None = ...,
    on_failure: str | None = ...,
    keep: Mapping[str, Any] | None = ...,
    labels: Sequence[str] = ...,
    on: Trigger | Sequence[Trigger] = ...,
    **task_options: Any,
) -> Callable[[F], F]: ...


def pipeline(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    pool: str = "default",
    concurrency: int | str | Limit | None = 1,
    priority: int = 2,
    max_queued: int | None = 1_000,
    pause_after: int | str | None = 5,
    on_failure: str | None = None,
    keep: Mapping[str, Any] | None = None,
    labels: Sequence[str] = (),
    on: Trigger | Sequence[Trigger] = (),
    **task_options: Any,
) -> Any:
    """Make a one-task pipeline of a function. It gets the fields of the input that it names.

    The other options are those of `@task`. The function stays a plain function.
    """

    def mark(target: F) -> F:
        marked = task(**task_options)(target)
        made = Pipeline(
            name or target.__name__,
            pool=pool,
            concurrency=concurrency,
            priority=priority,
            max_queued=max_queued,
            pause_after=pause_after,
            on_failure=on_failure,
            keep=keep,
            labels=labels,
        )
        made.on(*([on] if isinstance(on, Trigger) else on))
        made.whole_input(target)
        setattr(marked, _PIPELINE_MARK, made)
        return marked

    return mark if function is None else mark(function)


def pipeline_of(function: object) -> Pipeline | None:
    """The pipeline that `@pipeline` made of a function."""
    found = getattr(function, _PIPELINE_MARK, None) if inspect.isfunction(function) else None
    return found if isinstance(found, Pipeline) else None
