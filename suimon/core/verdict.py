"""Is it slow, stopped, or held on purpose? One sentence from counted facts, decided in one place.

``judge`` takes what ``run/health.py`` counted and says the first thing that is true, in this order:
the database is away; ready runs have no live worker; the duties stand still; deliveries wait for
nobody's reason; free workers start nothing; runs of dead workers are not taken back (STOPPED) ·
ready runs wait too long, and why (SLOW) · only what somebody holds is left (HELD) · nothing is to
do (IDLE) · OK. What separates slow from stopped is the number of starts in the last minute, not the
length of a queue. The thresholds stand here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from suimon.core import words

Level = Literal["stopped", "slow", "held", "idle", "ok"]

#: A ready run may wait this long before anybody calls it slow, or a free worker stuck.
READY_SECONDS: Final = 60.0
#: Ready runs without a live worker: a new machine gets this long to come.
GRACE_SECONDS: Final = 60.0
#: A duty that nobody took for this many of its intervals, and at least so long, is overdue.
OVERDUE_INTERVALS: Final = 3
OVERDUE_SECONDS: Final = 60.0
#: A delivery that nothing holds becomes a run within this time.
DELIVERY_SECONDS: Final = 300.0
#: Runs of a silent worker: three missed beats and two rounds of the rescue, in seconds.
LOST_SECONDS: Final = 90.0
#: Reasons named in a sentence; the others are counted.
NAMED: Final = 4

#: Waiting reasons that are somebody's or some clock's word: the run is held, nothing is stuck.
ON_PURPOSE: Final = frozenset(
    {
        "paused",
        "approval",
        "signal",
        "timer",
        "retry",
        "held",
        "lane_held",
        "limit",
        "quota",
        "storage",
        "no_code",
    }
)
#: Of those, what nobody has willed: it is said without "on purpose".
_BY_MISHAP: Final = frozenset({"retry", "no_code"})
#: What ends it, or where that is seen, by the reason's word; ``{name}`` is what stands behind it.
ENDED_BY: Final = {
    "paused": "suimon paused",
    "approval": "suimon approvals list",
    "signal": "suimon signal RUN {name}",
    "timer": "suimon runs list --reason timer",
    "retry": "suimon runs list --reason retry",
    "held": "suimon limits list",
    "limit": "suimon limits list",
    "lane_held": "suimon runs retry {name} (or skip, or cancel)",
    "quota": "suimon quotas list",
    "storage": "suimon storage",
    "no_code": "suimon runs list --reason no_code",
}


@dataclass(frozen=True, slots=True)
class Count:
    """A number that was counted up to a bound; ``more``: there may be more."""

    n: int = 0
    more: bool = False

    def __str__(self) -> str:
        return f"{self.n:,}{'+' if self.more else ''}"

    def __bool__(self) -> bool:
        return self.n > 0


@dataclass(frozen=True, slots=True)
class Pool:
    """What stands in one pool and who serves it. ``silent_s``: since a worker was last heard."""

    name: str
    ready: Count = Count()
    oldest_s: float | None = None
    live: int = 0
    slots: int = 0
    running: int = 0
    starts: int = 0
    ends: int = 0
    silent_s: float | None = None
    paused: bool = False
    cap: int | None = None  # at most so many runs are claimed at once

    @property
    def waited_s(self) -> float:
        return self.oldest_s or 0.0

    @property
    def places(self) -> int:
        """How many runs may be at work: the slots, or the cap."""
        return self.slots if self.cap is None else min(self.slots, self.cap)

    @property
    def free(self) -> int:
        return max(0, self.places - self.running)

    @property
    def capped(self) -> bool:
        """Whether it is the cap that keeps slots free."""
        return self.cap is not None and self.cap < self.slots

    @property
    def more(self) -> str:
        """What would let more runs begin."""
        if self.capped:
            return f"Its cap is {self.cap}: suimon pools set-cap {self.name} NUMBER"
        return "More slots or more workers."

    @property
    def unserved_s(self) -> float:
        """How long it has had ready runs and nobody alive to take them."""
        return min(self.waited_s, self.waited_s if self.silent_s is None else self.silent_s)


@dataclass(frozen=True, slots=True)
class Held:
    """Runs that do not run, by a reason; ``until`` completes the sentence where it is known."""

    reason: str
    runs: Count
    until: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What was counted at one moment."""

    unreachable: str | None = None
    pools: Sequence[Pool] = ()
    running: Count = Count()
    longest: tuple[str, str, float] | None = None  # run, pipeline, seconds
    lost: Count = Count()
    lost_s: float = 0.0
    held: Sequence[Held] = ()
    overdue: Sequence[tuple[str, float]] = ()  # duty, seconds since its last round
    deliveries: Count = Count()
    deliveries_stuck_s: float | None = None  # the oldest that nothing holds
    next_at: str | None = None  # of what lies ahead
    due_s: float | None = None  # how long ago the oldest start was due that nobody has made
    oldest_transaction_s: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """``level`` for programs, ``sentence`` for people, ``todo``: what to do about it."""

    level: Level
    sentence: str
    todo: str = ""
    problems: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        return f"{self.level.upper()}  {self.sentence}"


def overdue(every_s: float, since_s: float) -> bool:
    """Whether a duty with this interval has not been done for too long."""
    return since_s > max(OVERDUE_SECONDS, OVERDUE_INTERVALS * every_s)


def judge(facts: Facts) -> Verdict:
    """The first sentence that is true.

    >>> str(judge(Facts()))
    'IDLE  nothing is queued and nothing runs'
    """
    found = _stopped(facts) or _slow(facts)
    if found is not None:
        return found
    ready = sum(pool.ready.n for pool in facts.pools if not pool.paused)
    purposeful = [one for one in facts.held if one.runs and _word(one) in ON_PURPOSE]
    if not ready and not facts.running and purposeful:
        return _held(purposeful)
    if not ready and not facts.running and not facts.deliveries and not _any(facts.held):
        return _idle(facts)
    return Verdict("ok", _moving(facts))


def _held(held: Sequence[Held]) -> Verdict:
    """What ends it is named for each reason in the sentence, the most frequent first."""
    mishap = any(_word(one) in _BY_MISHAP for one in held)
    said = f"{'nothing can run now' if mishap else 'on purpose'}: {_listed(held)}"
    named = _by_number(held)[:NAMED]
    ends = [ENDED_BY[_word(one)].format(name=one.reason.partition(":")[2]) for one in named]
    return Verdict("held", said, f"See: {', '.join(dict.fromkeys(ends))}")


def _idle(facts: Facts) -> Verdict:
    said = "nothing is queued and nothing runs"
    if facts.due_s is not None:
        todo = "" if any(pool.live for pool in facts.pools) else "Start a worker or a serve."
        return Verdict("idle", f"{said}; a start has been due for {span(facts.due_s)}", todo)
    after = f", next start at {_to_seconds(facts.next_at)}" if facts.next_at else ""
    return Verdict("idle", said + after)


def _to_seconds(instant: str) -> str:
    return datetime.fromisoformat(instant).isoformat(timespec="seconds")


def _stopped(facts: Facts) -> Verdict | None:
    if facts.unreachable is not None:
        sentence = f"the database cannot be reached: {facts.unreachable}"
        return Verdict("stopped", sentence, "Start it, or mend the way to it.")
    for pool in _waiting_pools(facts):
        if not pool.live and pool.unserved_s > GRACE_SECONDS:
            return Verdict(
                "stopped",
                f"pool {pool.name} has {_runs(pool.ready)} ready and no live worker for "
                f"{span(pool.unserved_s)}",
                f"Start one: suimon worker PATH --pool {pool.name}",
            )
    coming = any(not pool.live for pool in _waiting_pools(facts))  # its worker still has its grace
    if facts.overdue and not coming and _any_work(facts):
        name, since = max(facts.overdue, key=lambda one: one[1])
        return Verdict(
            "stopped",
            f'nobody keeps the duties: "{name}" was not done for {span(since)}',
            "Start a worker or a serve.",
        )
    stuck = facts.deliveries_stuck_s
    if stuck is not None and stuck > DELIVERY_SECONDS:
        return Verdict(
            "stopped",
            f"deliveries do not become runs: {_wait(facts.deliveries)}, "
            f"the oldest for {span(stuck)}",
            "Start a worker or a serve; see its log.",
        )
    for pool in _waiting_pools(facts):
        if pool.live and pool.free and not pool.starts and pool.waited_s > READY_SECONDS:
            oldest = facts.oldest_transaction_s
            behind = "" if oldest is None else f"; the oldest transaction is {span(oldest)} old"
            return Verdict(
                "stopped",
                f"pool {pool.name} has {_runs(pool.ready)} ready, {pool.free:,} free slots, and "
                f"nothing was started in the last minute{behind}",
                "A lock or a stuck process: suimon doctor",
            )
    if facts.lost and facts.lost_s > LOST_SECONDS:
        not_taken = words.pick(facts.lost.n, "is not", "are not", more=facts.lost.more)
        return Verdict(
            "stopped",
            f"{_runs(facts.lost)} of dead workers {not_taken} taken back, for {span(facts.lost_s)}",
            "Start a worker: any pool will do.",
        )
    return None


def _slow(facts: Facts) -> Verdict | None:
    for pool in _waiting_pools(facts):
        if not pool.live:
            return Verdict(
                "slow",
                f"pool {pool.name} has {_runs(pool.ready)} ready and waits for a worker, "
                f"{span(pool.unserved_s)} so far",
                f"Start one: suimon worker PATH --pool {pool.name}",
            )
        if pool.waited_s <= READY_SECONDS:
            continue
        if pool.starts and not pool.free:
            eta = f", about {span(60 * pool.ready.n / pool.ends)}" if pool.ends else ""
            return Verdict(
                "slow",
                f"pool {pool.name} is saturated: {pool.starts:,} started in the last minute, "
                f"{_wait(pool.ready)}{eta}",
                pool.more,
            )
        if not pool.starts:
            longest = facts.longest
            run = (
                f"; the longest is {longest[0]} ({longest[1]}), {span(longest[2])}"
                if longest
                else ""
            )
            return Verdict(
                "slow",
                f"pool {pool.name} is full of long runs: {pool.running:,} in {pool.places:,} "
                f"{'places under its cap' if pool.capped else 'slots'}, {_wait(pool.ready)}{run}",
                pool.more,
            )
        return Verdict(
            "slow",
            f"pool {pool.name} is behind: the oldest of {pool.ready} ready runs waits for "
            f"{span(pool.waited_s)}, {pool.starts:,} started in the last minute",
            "See: suimon doctor",
        )
    return None


def _waiting_pools(facts: Facts) -> list[Pool]:
    """Those with ready runs that nobody holds on purpose, the longest waiting first."""
    waiting = [pool for pool in facts.pools if pool.ready and not pool.paused]
    return sorted(waiting, key=lambda pool: -pool.waited_s)


def _any_work(facts: Facts) -> bool:
    return bool(
        facts.running or facts.deliveries or facts.next_at or facts.due_s is not None
        or _any(facts.held)
        or any(pool.ready for pool in facts.pools)
    )  # fmt: skip


def _any(held: Sequence[Held]) -> bool:
    return any(one.runs for one in held)


def _word(one: Held) -> str:
    return one.reason.partition(":")[0]


def _by_number(held: Sequence[Held]) -> list[Held]:
    return sorted(held, key=lambda one: -one.runs.n)


def _listed(held: Sequence[Held]) -> str:
    ordered = _by_number(held)
    named = [
        f"{one.runs} {one.reason}{f' ({one.until})' if one.until else ''}"
        for one in ordered[:NAMED]
    ]
    rest = f", {len(ordered) - NAMED} more reasons" if len(ordered) > NAMED else ""
    return ", ".join(named) + rest


def _moving(facts: Facts) -> str:
    open_pools = [pool for pool in facts.pools if not pool.paused]
    ready = Count(
        sum(pool.ready.n for pool in open_pools), any(pool.ready.more for pool in open_pools)
    )
    starts = sum(pool.starts for pool in facts.pools)
    parts = [f"{facts.running} running", f"{ready} ready", f"{starts:,} started in the last minute"]
    if facts.deliveries:
        parts.append(_deliveries(facts.deliveries))
    others = [one for one in facts.held if one.runs]
    if others:
        parts.append(f"held: {_listed(others)}")
    return ", ".join(parts)


def _runs(count: Count) -> str:
    return words.count(count.n, "run", more=count.more)


def _wait(count: Count) -> str:
    return words.count(count.n, "waits", "wait", more=count.more)


def _deliveries(count: Count) -> str:
    return words.count(count.n, "delivery waits", "deliveries wait", more=count.more)


def span(seconds: float) -> str:
    """``12 s``, ``3 m 20 s``, ``2 h 5 m``, ``3 d 4 h``."""
    whole = int(seconds)
    for unit, size, below, small in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit} {rest} {below}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"
