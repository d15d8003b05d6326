"""A spawner at work: its list is read in a slot, its children are stored chunk by chunk.

The fan-out is opened first (who the children are, in which pool and lane, how the merge will
judge), then the slot reads the list and sends chunks, each stored under the parent's fence before
it is acknowledged; last comes the seal. A chunk that is refused (``ItemsChanged``), or that meets a
fan-out which has ended early, makes the slot stop reading.

A spawner that cannot go on ends its step ``failed``: the parent never waits for children that
nobody will create; those that exist run on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from suimon.core import jsonsafe, plan, shape
from suimon.db.connect import Connection
from suimon.errors import QuotaExceeded, SuimonError
from suimon.run import lane, merge, quotas, spawn, submit
from suimon.run.claim import Claimed
from suimon.run.finish import Settled
from suimon.run.spawn import Child, DeferredError, Fanout, Holder, LostRunError, Policy
from suimon.run.wait import On
from suimon.worker import wire

if TYPE_CHECKING:
    from suimon.worker.drive import Drive
    from suimon.worker.held import Held
    from suimon.worker.worker import Worker


#: Deaths of workers or slots that a child survives, unless its task says otherwise.
INTERRUPTIONS: Final = 3


#: A chunk that met a quota which a transaction holds comes again after this long.
BUSY_SECONDS: Final = 1.0


class BusyError(Exception):
    """A quota could not be asked now."""


@dataclass(slots=True)
class Spawning:
    """A spawner whose list is being read in a slot."""

    action: plan.Spawn
    fanout: Fanout
    child: Child
    error: SuimonError | None = None
    stopped: bool = False
    created: int = 0
    next_seq: int = 0
    #: The store had no room for a chunk: seconds until the next try. Set where chunks are stored,
    #: so that a chunk behind that one, already on its way, is not stored either.
    later_s: float | None = None


class Spawner:
    """Carries out the spawners among the runs of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def begin(self, held: Held, action: plan.Spawn) -> None:
        """Open the fan-out and give its list to a slot."""
        drive = _drive(held)
        work = functools.partial(
            _open, self._worker.holder(held), held, self._worker.pool, drive, action
        )

        def opened(found: tuple[Fanout, Child, bool, float | None]) -> None:
            fanout, child, counted, later_s = found
            if held.cancel:
                self._worker.driver.stop(held)
                return
            if later_s is not None:
                self._deferred(held, action.vertex, later_s)
                return
            if fanout.expected is not None:
                # sealed by an earlier try that died before its record: it is not read again
                self._sealed(held, action.vertex, fanout.expected)
                return
            drive.spawning = Spawning(action, fanout, child)
            program, given = self._worker.programs.spawn(
                action, to_pipeline=child.vertex is None, counted=counted, watched=fanout.watched
            )
            held.program, held.vertex, held.given = program, action.vertex, given
            held.secrets = None
            if program.secrets:
                self._worker.grants.give(held, lambda: self._worker.enqueue(held))
            else:
                self._worker.enqueue(held)

        self._worker.driver.ask(held, work, opened)

    def chunk(self, held: Held, rest: bytes) -> None:
        """A chunk of the list has come from the slot: store it, then acknowledge."""
        spawning = _spawning(held)
        head, hashes, items = rest.split(wire.RS, 2)
        header = orjson.loads(head)
        vertex = spawning.action.vertex
        store = functools.partial(
            spawn.chunk,
            holder=self._worker.holder(held),
            fanout=spawning.fanout,
            child=spawning.child,
            root_id=held.run.root_id,
            first=header["first"],
            n=header["n"],
            hashes="{" + hashes.decode() + "}",
            keys=header["keys"],
            items=items.decode(),
            total=header.get("total"),
            list_=spawn.List(vertex, header.get("ahead"), _was_deferred(held, vertex)),
        )

        work = functools.partial(_in_order, spawning, header["seq"], store)

        def stored(answer: tuple[int, bool]) -> None:
            created, stop = answer
            spawning.created += created
            spawning.stopped = spawning.stopped or stop
            self._acknowledge(held, header["seq"], go_on=not spawning.stopped)
            if created:
                self._worker.sender.hungry()

        def refused(error: Exception) -> None:
            if isinstance(error, BusyError) and not held.gone:
                self._worker.upkeep.call_later(BUSY_SECONDS, lambda: self._worker.post(ask))
                return
            spawning.stopped = spawning.stopped or isinstance(error, SuimonError)
            self._acknowledge(held, header["seq"], go_on=False)
            if isinstance(error, LostRunError):
                held.cancel = True  # stopped when its slot says that it reads no more
            elif not isinstance(error, SuimonError):
                self._worker.failed(held, error)

        def ask() -> None:
            self._worker.desk.ask(work, stored, refused)

        ask()

    def _acknowledge(self, held: Held, seq: int, *, go_on: bool) -> None:
        self._worker.send_to_slot(held, wire.acknowledge(held.token, seq, go_on=go_on))

    def list_ended(self, held: Held, n: int) -> None:
        """The list has ended, or was left: seal it, or fail as its chunks said."""
        spawning = _spawning(held)
        if spawning.error is not None:
            self._spawn_failed(held, spawning.error)
            return
        if spawning.later_s is not None:
            self._deferred(held, spawning.action.vertex, spawning.later_s)
            return
        if spawning.stopped:
            # settled early or cancelled: what exists is what there is
            self._stopped_early(held, spawning)
            return
        keyed = spawning.action.config.get("itemKey") is not None
        work = functools.partial(
            spawn.seal, holder=self._worker.holder(held), fanout=spawning.fanout, n=n, keyed=keyed
        )

        def sealed(answer: tuple[int | None, Settled]) -> None:
            self._worker.sender.follow(answer[1])
            self._sealed(held, spawning.action.vertex, n)

        self._worker.driver.ask(held, work, sealed, lambda error: self._spawn_failed(held, error))

    def _sealed(self, held: Held, vertex: str, n: int) -> None:
        _drive(held).spawning = None
        self._worker.driver.step_done(
            held, vertex, "succeeded", 0, orjson.dumps({"expected": n}), None
        )

    def _stopped_early(self, held: Held, spawning: Spawning) -> None:
        """Fail-fast or a cancel ended the fan-out while its list was read."""
        holder = self._worker.holder(held)
        work = functools.partial(merge.seal_short, holder=holder, fanout=spawning.fanout)

        def sealed(answer: tuple[int, Settled]) -> None:
            self._worker.sender.follow(answer[1])
            self._worker.upkeep.cancel_soon()
            self._sealed(held, spawning.action.vertex, answer[0])

        self._worker.driver.ask(held, work, sealed)

    def list_failed(self, held: Held, status: str, error: Mapping[str, Any]) -> None:
        """The source raised, or an item cannot be one: the step fails, the children run on."""
        spawning = _spawning(held)
        vertex = spawning.action.vertex
        if spawning.error is not None:
            self._spawn_failed(held, spawning.error)
            return
        if spawning.later_s is not None:
            self._deferred(held, vertex, spawning.later_s)  # the next try will meet it again
            return
        _drive(held).spawning = None
        self._worker.driver.step_done(held, vertex, status, 0, None, error)

    def _deferred(self, held: Held, vertex: str, later_s: float) -> None:
        """The store has no room: the list is read again, from its start, when there is some."""
        drive = _drive(held)
        drive.spawning = None
        drive.steps[vertex] = plan.StepRecord("deferred")
        self._worker.waiter.not_over(held, vertex, On(storage=True, in_s=later_s))

    def _spawn_failed(self, held: Held, error: SuimonError) -> None:
        vertex = _spawning(held).action.vertex
        _drive(held).spawning = None
        self._worker.driver.step_done(held, vertex, "failed", 0, None, error.to_json())


def _in_order(
    spawning: Spawning, seq: int, store: Callable[[Connection], tuple[int, bool]], conn: Connection
) -> tuple[int, bool]:
    """Store a chunk, in the desk's thread. What was sent behind a refused one is not stored, and
    what comes behind one that has to come again waits for it: positions have no gaps.
    """
    if spawning.error is None and spawning.later_s is None:
        if seq != spawning.next_seq:
            raise BusyError
        try:
            found = store(conn)
            spawning.next_seq += 1
            return found
        except DeferredError as error:
            spawning.later_s = error.later_s
        except SuimonError as error:
            if isinstance(error, QuotaExceeded) and error.quota is None:
                raise BusyError from error  # somebody's transaction holds the quota
            spawning.error = error
    if spawning.error is not None:
        raise spawning.error
    return 0, True


def _was_deferred(held: Held, vertex: str) -> bool:
    record = _drive(held).steps.get(vertex)
    return record is not None and record.status == "deferred"


def _drive(held: Held) -> Drive:
    assert held.drive is not None
    return held.drive


def _spawning(held: Held) -> Spawning:
    spawning = _drive(held).spawning
    assert spawning is not None
    return spawning


def _open(
    holder: Holder, held: Held, pool: str, drive: Drive, action: plan.Spawn, conn: Connection
) -> tuple[Fanout, Child, bool, float | None]:
    """Open the fan-out: who the children are, in which pool and lane, and how the merge judges.

    Then: whether its list is to be counted before its first chunk, because a quota applies; and the
    seconds until its next try, if the store has no room for it now.
    """
    fanout, child = _open_fanout(holder, held, pool, drive, action, conn)
    counted = quotas.counts_fanout(conn, held.run.root_id, child.pipeline)
    later_s = None
    if fanout.expected is None:
        list_ = spawn.List(action.vertex, deferred=_was_deferred(held, action.vertex))
        later_s = spawn.room_to_begin(conn, holder, fanout, list_)
    return fanout, child, counted, later_s


def _open_fanout(
    holder: Holder, held: Held, pool: str, drive: Drive, action: plan.Spawn, conn: Connection
) -> tuple[Fanout, Child]:
    config, run = action.config, held.run
    limit = config.get("concurrency")
    base = submit.fanout_base()
    own = isinstance(limit, int)
    merge_step = shape.merge_step(drive.graph, action.vertex)
    merge_config = (shape.vertices(drive.graph).get(merge_step) or {}).get("config") or {}
    shared = jsonsafe.dumps(action.shared, what="shared").decode() if action.shared else None
    fanout = spawn.open_fanout(
        conn,
        holder,
        vertex=action.vertex,
        base=base,
        policy=_policy(merge_config),
        limit=limit if own else None,
        shared=shared,
    )
    if "task" in config:
        interruptions = int(config.get("maxInterruptions", INTERRUPTIONS))
        child = Child(
            run.pipeline, run.graph_id, action.vertex, config.get("pool", pool), run.priority,
            interruptions, fanout.lane, limit if own else None, own_lane=own,
            follows="pool" not in config,
        )  # fmt: skip
    else:
        child = child_of_pipeline(
            conn, run, config["pipeline"], pool=config.get("pool"), fanout_lane=fanout.lane,
            limit=limit if own else None,
        )  # fmt: skip
    return fanout, child


def child_of_pipeline(
    conn: Connection,
    run: Claimed,
    pipeline: str,
    *,
    pool: str | None,
    fanout_lane: str | None,
    limit: int | None,
) -> Child:
    """A pipeline as target: its current graph, and its own lane if it has a limit."""
    target = submit.target(conn, pipeline)
    child_lane, lane_limit = fanout_lane, limit
    per = target.lane_per
    if target.lane_limit is not None:
        child_lane, lane_limit = lane.pipeline_lane(pipeline), target.lane_limit
        if per is None:
            child_lane = spawn.sub_lane(conn, run.id, child_lane)
            lane_limit = target.lane_limit if "/" not in child_lane else 1
            lane.make_rows(conn, [(child_lane, lane_limit, None)])
    return Child(
        pipeline, target.graph_id, None, pool or target.pool, run.priority, INTERRUPTIONS,
        child_lane, lane_limit, own_lane=child_lane is not None and child_lane == fanout_lane,
        lane_per=per if target.lane_limit is not None else None,
        holds_lane=target.holds_lane, follows=pool is None,
    )  # fmt: skip


def _policy(config: Mapping[str, Any]) -> Policy:
    bounds = config.get("failureTolerance") or {}
    ratio = bounds.get("maxFailureRatio")
    return Policy(
        tolerate=tuple(sorted(s.lower() for s in config.get("tolerateChildFailures", []))),
        max_failures=bounds.get("maxFailures"),
        max_failure_ratio=None if ratio is None else repr(ratio),
        fail_fast=bool(config.get("failFast", False)),
        stragglers=config.get("stragglers", "cancel"),
    )
