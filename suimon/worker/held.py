"""What a worker holds in memory: claimed runs, the programs they execute, and what each slot has.

All of it belongs to the worker's main thread; nothing here is locked. A run is *held* from its
claim until the database has confirmed its end (or its parking, or its release).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from suimon.core import backoff
from suimon.core.durations import seconds
from suimon.core.events import Event
from suimon.core.redact import Redactor
from suimon.run.claim import Claimed
from suimon.worker import wire
from suimon.worker.rawlog import RawLog

if TYPE_CHECKING:
    from suimon.worker.drive import Drive
    from suimon.worker.slots import SlotHandle

#: How much work, in seconds, a slot is given ahead: long runs one by one, microsecond runs by the
#: hundred.
AHEAD_SECONDS: Final = 0.05
#: Runs a slot has at most, begun or not.
AHEAD_RUNS: Final = 1000
#: A slot that has seen more values of secrets is replaced.
MAX_VALUES: Final = 100
#: Weight of the newest duration in a program's mean.
_NEWEST: Final = 0.1
#: What a slot spends on a run beside the function itself.
_OVERHEAD_SECONDS: Final = 15e-6


@dataclass(slots=True)
class Program:
    """A vertex made ready to execute: what slots are told, and the policy for its failures."""

    number: int
    task: str
    definition: dict[str, Any]
    retries: int = 0
    backoff: backoff.Backoff = field(default_factory=lambda: backoff.parse(backoff.DEFAULT))
    timeout_s: float | None = None
    deadline_s: float | None = None
    secrets: tuple[str, ...] = ()
    destination: str | None = None  # whose turn a run of it takes before it begins
    is_async: bool = False
    spawns: bool = False
    mean_s: float | None = None

    def learn(self, duration_s: float) -> None:
        """Take one more measured duration into the mean; a longer one counts at once."""
        cost = duration_s + _OVERHEAD_SECONDS
        if self.mean_s is None or cost > 4 * self.mean_s:
            self.mean_s = cost
        else:
            self.mean_s += _NEWEST * (cost - self.mean_s)

    @property
    def expected_s(self) -> float:
        """What the next run of it is thought to take; unknown: a slot's whole share."""
        return AHEAD_SECONDS if self.mean_s is None else self.mean_s


def policy(config: dict[str, Any]) -> dict[str, Any]:
    """The failure policy in a vertex's config, as ``Program`` takes it."""
    found: dict[str, Any] = {"retries": int(config.get("retries", 0))}
    if "backoff" in config:
        found["backoff"] = backoff.parse(config["backoff"])
    if "timeout" in config:
        found["timeout_s"] = seconds(config["timeout"])
    if "deadline" in config:
        found["deadline_s"] = seconds(config["deadline"])
    return found


@dataclass(slots=True)
class Held:
    """One claimed run. ``token`` names this try of it inside the worker's slots."""

    run: Claimed
    token: int
    program: Program | None = None
    given: bytes | dict[str, Any] | None = None
    vertex: str | None = None  # the step under way, of a run with several
    attempt: int = 0  # tries of that step
    interruptions: int = 0
    slot: int | None = None
    drive: Drive | None = None
    cancel: bool = False
    cancel_at: float | None = None  # when its slot was told
    failing: str | None = None  # why its slot is being killed: timed_out, cancelled, memory
    deadline_at: float | None = None  # when all its tries must be over (monotonic)
    waited_since: float = 0.0  # when it was given to its slot
    gone: bool = False  # not ours any more; whatever its slot still says is dropped
    raw: RawLog | None = None
    secrets: dict[str, str] | None = field(default=None, repr=False)
    turn: tuple[int, float, float, Any] | None = None  # at its destination (`turns`)
    asks_turns: bool = False  # it may have turns, or wait for one
    limited: str | None = None  # the reason its slot was told to park it with
    told: tuple[int, list[Event]] | None = None  # the token of a try, and the events it told

    @property
    def fence(self) -> tuple[str, int]:
        return self.run.id, self.run.claim_no

    def take_told(self) -> list[Event] | None:
        """What the try that just ended well has told, once."""
        told, self.told = self.told, None
        return told[1] if told is not None and told[0] == self.token else None


@dataclass(slots=True)
class Slot:
    """One slot as the main loop sees it."""

    no: int
    handle: SlotHandle
    ready: bool = False
    killed: str | None = None  # why we asked the guardian to end it
    given: deque[Held] = field(default_factory=deque)
    programs: set[int] = field(default_factory=set)
    ahead_s: float = 0.0
    moved_at: float = 0.0  # when its first run became the first
    asked_back: bool = False
    slow: bool = False  # its first run takes long: nothing is put behind it
    rss_at: float = 0.0
    #: The pipeline whose secrets it has held: it serves no other one, until it is replaced.
    bound: str | None = None
    retiring: bool = False  # ended only because it is bound
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    hidden: Redactor = field(default_factory=lambda: Redactor(raw=True))

    @property
    def busy(self) -> bool:
        return bool(self.given)

    def may_serve(self, held: Held) -> bool:
        """Secrets meet no other pipeline's run in one process, neither beside nor after them."""
        pipeline = held.run.pipeline
        if held.secrets is None:
            return self.bound is None or self.bound == pipeline
        if self.bound is None:
            return all(other.run.pipeline == pipeline for other in self.given)
        return self.bound == pipeline and (
            len(self.hidden) < MAX_VALUES or held.secrets.items() <= self.secrets.items()
        )

    def room(self, held: Held) -> bool:
        """Whether this run may be given to the slot now; one that must be alone needs it empty."""
        if not self.ready or self.killed is not None:
            return False
        if not self.given:
            return True
        if self.slow or held.run.alone or any(h.run.alone for h in self.given):
            return False
        assert held.program is not None
        if held.program.spawns or any(
            h.program is not None and h.program.spawns for h in self.given
        ):
            return False
        return (
            len(self.given) < AHEAD_RUNS and self.ahead_s + held.program.expected_s <= AHEAD_SECONDS
        )

    def room_async(self, held: Held, shared: int) -> bool:
        """`async def` tasks share a slot: up to ``shared`` of them at once, whatever they take."""
        if held.run.alone or held.program is None or not held.program.is_async:
            return False
        return self.shares(shared)

    def shares(self, shared: int) -> bool:
        """Whether one more `async def` task may join: all are of that kind, and fewer."""
        if not self.ready or self.killed is not None or len(self.given) >= shared:
            return False
        return all(
            h.program is not None and h.program.is_async and not h.run.alone for h in self.given
        )

    def begun(self, shared: int) -> list[Held]:
        """The runs that may have begun: the first one, or the first ``shared`` async ones."""
        found: list[Held] = []
        for held in self.given:
            if found and not (held.program and held.program.is_async and len(found) < shared):
                break
            found.append(held)
            if not (held.program and held.program.is_async):
                break
        return found

    def give(self, batch: list[Held], now: float) -> None:
        """Send runs of one program, in order."""
        program = batch[0].program
        assert program is not None
        lines = b""
        if program.number not in self.programs:
            self.programs.add(program.number)
            lines = wire.program(program.definition)
        if program.secrets:
            lines += self._bind(batch)
        entries = []
        for held in batch:
            held.slot = self.no
            held.waited_since = now
            if not self.given:
                self.moved_at, self.slow = now, False
            self.given.append(held)
            self.ahead_s += program.expected_s
            run = held.run
            meta: tuple[Any, ...] = (run.id, held.attempt, run.item_key, run.pipeline)
            if held.turn is not None:
                meta = (*meta, held.turn)
            entries.append((held.token, held.given, meta))
        self.handle.send(lines + wire.runs(program.number, entries))

    def _bind(self, batch: list[Held]) -> bytes:
        """The values that the slot does not have; from now on it belongs to this pipeline."""
        given: dict[str, str] = {}
        for held in batch:
            given |= held.secrets or {}
        self.bound = batch[0].run.pipeline
        fresh = {name: one for name, one in given.items() if self.secrets.get(name) != one}
        self.secrets |= fresh
        self.hidden.add(fresh)
        return wire.secrets(fresh) if fresh else b""

    def take(self, held: Held, now: float) -> None:
        """This run has left the slot (a result, or given back)."""
        if self.given and self.given[0] is held:
            self.given.popleft()
            self.moved_at, self.slow = now, False
        else:
            self.given.remove(held)
        held.slot = None
        if held.program is not None:
            self.ahead_s = max(0.0, self.ahead_s - held.program.expected_s) if self.given else 0.0
