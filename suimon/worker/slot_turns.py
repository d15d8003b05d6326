"""A slot's side of destinations: asking for turns, waiting for their instant, giving them back.

A task whose decorator names a destination comes with its turn; `ctx.limit` asks for one and holds
it for a block; each call of `ctx.http` asks for one of its own, or makes use of the one that its
try holds already. Instants are on the monotonic clock that all processes of a machine share. A turn
whose last instant has passed is never used: a process that was frozen asks again.

A wait of more than about a second is not waited here: the worker says so, and `NotYet` takes the
task out of its slot as `Later` does.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from typing import Any, TypeAlias

from suimon import errors
from suimon.context import Later
from suimon.core import clock
from suimon.worker import slot_run

#: So much of a turn must be left for what comes before the call itself.
LEFT_SECONDS = 0.001
#: Siblings below one place call one after the other; who waits longer asks for a place of his own.
SIBLING_SECONDS = 1.0

#: ("ask", body) wants the worker's answer, ("sleep", seconds) a pause; both ways of waiting, in a
#: thread and in a loop, carry out the same steps.
Steps: TypeAlias = Generator[tuple[str, Any], Any, Any]


class NotYet(Later):
    """Its turn at a destination is too far away to be waited for in a slot."""

    waits_for_turn = True


class Turn:
    """The right to call a destination, as the worker gave it."""

    __slots__ = ("allow", "auth", "base_url", "last", "name", "number", "own", "timeout_s")

    def __init__(self, name: str, given: dict[str, Any], *, own: bool) -> None:
        self.name = name
        self.number: int = given["turn"]
        self.last: float = given["last"]
        self.base_url: str | None = given.get("base_url")
        self.auth: str | None = given.get("auth")
        self.allow: str | None = given.get("allow")
        self.timeout_s: float = given.get("timeout_s") or 10.0
        self.own = own  # to be given back by whoever asked for it

    def fits(self, now: float) -> bool:
        return now < self.last - LEFT_SECONDS


class Holding:
    """A place that a try keeps: of its decorator, or of a `ctx.limit` block."""

    __slots__ = ("lock", "turn", "used")

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.used = False
        self.lock = threading.Lock()


# --------------------------------------------------------------------------- the steps


def get_turn(run: slot_run.Run, name: str, *, instead: int | None = None, **more: Any) -> Steps:
    """Ask until there is a turn whose instant has come and has not passed."""
    while True:
        body = {"op": "turn", "name": name, "instead": instead, **more}
        given = yield "ask", body
        _raise_refusal(given)
        yield from _until(given["first"])
        turn = Turn(name, given, own=True)
        if _may(run, turn):
            return turn
        instead = turn.number


def begin(run: slot_run.Run) -> Steps:
    """The turn that came with the run: wait for its instant, or ask for another one."""
    name = run.program.destination
    assert name is not None
    assert run.turn is not None
    number, first, last, facts = run.turn
    yield from _until(first)
    turn = Turn(name, {"turn": number, "last": last, **(facts or {})}, own=False)
    if not _may(run, turn):
        turn = yield from get_turn(run, name, instead=number)
    run.holding = {name: Holding(turn)}


def get_call(run: slot_run.Run, name: str) -> Steps:
    """(turn, holding or None) for one call."""
    holding = (run.holding or {}).get(name)
    if holding is not None:
        waited = 0.0
        while not holding.lock.acquire(blocking=False):
            yield "sleep", 0.005
            waited += 0.005
            if waited > SIBLING_SECONDS:
                holding = None
                break
    if holding is None:
        turn = yield from get_turn(run, name, brief=True)
        return turn, None
    try:
        if not holding.used and _may(run, holding.turn):
            holding.used = True
            return holding.turn, holding
        holding.used = True
        turn = yield from get_turn(run, name, brief=True, under=holding.turn.number)
    except BaseException:
        holding.lock.release()
        raise
    return turn, holding


def end_call(run: slot_run.Run, turn: Turn, holding: Holding | None, *, well: bool) -> None:
    """A call is over, whatever came of it."""
    if turn.number and (holding is None or holding.turn is not turn):
        give_back(run, turn, well=well)
    if holding is not None:
        holding.lock.release()


def give_back(run: slot_run.Run, turn: Turn, *, well: bool) -> None:
    run.tell({"op": "turn_over", "turn": turn.number, "well": well})


def say_held(run: slot_run.Run, name: str, status: int, after_s: float | None) -> None:
    """The far side said 429 or 503: here it is known at once, elsewhere in a moment."""
    until = clock.monotonic() + (1.0 if after_s is None else after_s)
    run.desk.holds[name] = max(until, run.desk.holds.get(name, 0.0))
    run.tell({"op": "turn_held", "name": name, "status": status, "after_s": after_s})


def heard(holds: dict[str, float], body: dict[str, Any]) -> None:
    """The worker's word: a destination is held, or is not any more."""
    if body["until"] is None:
        holds.pop(body["name"], None)
    else:
        holds[body["name"]] = body["until"]


def _may(run: slot_run.Run, turn: Turn) -> bool:
    now = clock.monotonic()
    return turn.fits(now) and run.desk.holds.get(turn.name, 0.0) <= now


def _until(first: float) -> Steps:
    pause = first - clock.monotonic()
    if pause > 0:
        yield "sleep", pause


def _raise_refusal(given: dict[str, Any]) -> None:
    if "park" in given:
        raise NotYet(given["park"])
    if "error" in given:
        error = given["error"]
        raise errors.Fatal(error["message"], hint=error.get("hint"))


# --------------------------------------------------------------------------- two ways to wait


def wait(run: slot_run.Run, steps: Steps) -> Any:
    """Carry the steps out in a thread. A cancel ends a question, and a pause is short."""
    answer: Any = None
    while True:
        try:
            what, value = steps.send(answer)
        except StopIteration as ended:
            return ended.value
        answer = None
        try:
            if what == "ask":
                answer = run.ask(value)
            else:
                time.sleep(value)
        except BaseException as error:
            steps.throw(error)
            raise


async def wait_async(run: slot_run.Run, steps: Steps) -> Any:
    """The same in the loop."""
    answer: Any = None
    while True:
        try:
            what, value = steps.send(answer)
        except StopIteration as ended:
            return ended.value
        answer = None
        try:
            if what == "ask":
                answer = await run.ask_async(value)
            else:
                await asyncio.sleep(value)
        except BaseException as error:
            steps.throw(error)
            raise


class LimitBlock:
    """`with ctx.limit("crm"):`, in an `async def` task `async with`."""

    __slots__ = ("_before", "_name", "_run", "_turn")

    def __init__(self, run: slot_run.Run, name: str) -> None:
        self._run = run
        self._name = name
        self._turn: Turn | None = None
        self._before: Holding | None = None

    def __enter__(self) -> None:
        if self._run.is_async:
            msg = "in an `async def` task write `async with ctx.limit(...)`"
            raise TypeError(msg)
        if not self._nested():
            self._take(wait(self._run, get_turn(self._run, self._name)))

    def __exit__(self, kind: object, *_: object) -> None:
        self._leave(well=kind is None)

    async def __aenter__(self) -> None:
        if not self._nested():
            self._take(await wait_async(self._run, get_turn(self._run, self._name)))

    async def __aexit__(self, kind: object, *_: object) -> None:
        self._leave(well=kind is None)

    def _nested(self) -> bool:
        """Its try holds a place there already: that one counts."""
        return self._name in (self._run.holding or {})

    def _take(self, turn: Turn) -> None:
        self._turn = turn
        if self._run.holding is None:
            self._run.holding = {}
        self._run.holding[self._name] = Holding(turn)

    def _leave(self, *, well: bool) -> None:
        if self._turn is not None:
            assert self._run.holding is not None
            del self._run.holding[self._name]
            give_back(self._run, self._turn, well=well)
            self._turn = None
