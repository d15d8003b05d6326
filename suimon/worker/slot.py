"""A slot: the child process in which user code runs, one run after the other.

`python -I -m suimon.worker.slot --in FD --out FD`, started by the guardian. It has no database, no
keys and no connection but two pipes to its worker (their language is in `wire`). Who does what:

    main thread       takes the runs in order and executes plain functions and spawns
    loop thread       executes up to `async_slots` `async def` tasks beside it (`slot_async`)
    commands thread   reads the worker's lines at once: cancel, give back, acknowledge, answer

A result is written before the next run begins, so the slot's death repeats only what was
unfinished. User code may call sys.exit, close descriptors, change the folder, print without end or
leave processes behind: the run is told off or tidied up after (`slot_tidy`), and the slot goes on.
What it cannot survive, a crash or os._exit, the guardian reports.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import io
import itertools
import os
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from suimon import errors
from suimon.core import clock
from suimon.core.redact import Redactor
from suimon.worker import processes, slot_code, slot_spawn, slot_turns, wire
from suimon.worker.slot_async import AsyncLane
from suimon.worker.slot_end import encode, failure, microseconds
from suimon.worker.slot_io import Commands, Output, leave
from suimon.worker.slot_logs import Capture, RunLog
from suimon.worker.slot_run import CURRENT, Desk, Program, Run
from suimon.worker.slot_tidy import Tidy, remember_processes

TICK_SECONDS = 0.25
CANCEL_TICK_SECONDS = 0.02
BAD_COMMAND = 4


def call_user(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The only way into a plain function; a cancel is raised only below such an entry."""
    return function(*args, **kwargs)


def next_item(iterator: Iterator[Any]) -> Any:
    """The only way into a spawn's source."""
    return next(iterator)


_ENTRIES = frozenset({call_user.__code__, next_item.__code__})
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120


class Slot(Desk):
    """The state all threads share. Plain dict, set and deque steps are atomic between them."""

    def __init__(self, fd_in: int, fd_out: int) -> None:
        self.fds = (fd_in, fd_out)
        self.output = Output(fd_out)
        self.commands = Commands(fd_in, self.obey, self.tick)
        self.main_thread = threading.get_ident()
        self.programs: dict[int, Program] = {}
        self.secrets = {}
        self.hidden = Redactor()
        self.holds = {}
        self.runs: dict[int, Run] = {}
        self.waiting: deque[Run] = deque()
        self.live: Run | None = None
        self.lane = AsyncLane(1, self.end_async)
        self.closing = False
        self.forked = False
        self.cancelling: Run | None = None
        self.questions: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self.question_numbers = itertools.count(1)
        self.start: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.sleeping = False
        self.left_over = False

    # ------------------------------------------------------------------ main thread

    def serve(self) -> None:
        """Load the code, then execute until told to finish."""
        # A crash in C code names the Python line on descriptor 2, which the worker keeps.
        faulthandler.enable(file=2)
        os.register_at_fork(after_in_child=self.become_stranger)
        processes.become_subreaper()
        self.commands.start()
        settings = self.start.get()
        self.lane = AsyncLane(max(1, settings.get("async_slots", 1)), self.end_async)
        sys.stdout = Capture("stdout", 1, self.current_log)
        sys.stderr = Capture("stderr", 2, self.current_log)
        tasks, problems = slot_code.survey(settings["root"])
        self.tidy = Tidy(self.on_cancel)
        gc.collect()
        gc.freeze()
        self.output.write(wire.hello(os.getpid(), tasks, problems))
        while self.step():
            pass
        leave(0)

    def step(self) -> bool:
        """Begin the next run, or wait for one; False when the slot shall end."""
        try:
            program = self.waiting[0].program
        except IndexError:
            return self.wait()
        if not program.ready and not self.prepare(program):
            return True
        if not program.is_async:
            try:
                run = self.waiting.popleft()
            except IndexError:
                return True
            if run.program is program:
                self.execute(run)
            else:
                # Given back and replaced between the two looks; put it where it was.
                self.waiting.appendleft(run)
            return True
        self.lane.room.acquire()
        try:
            run = self.waiting.popleft()
        except IndexError:
            self.lane.room.release()
            return True
        if run.program is program:
            self.lane.start(run)
        else:
            self.waiting.appendleft(run)
            self.lane.room.release()
        return True

    def prepare(self, program: Program) -> bool:
        """Find the program's function; a failure is the failure of the run that wanted it."""
        try:
            program.prepare()
        except BaseException as error:  # noqa: BLE001 - user code is imported here
            try:
                run = self.waiting.popleft()
            except IndexError:
                return False
            self.finish(run, failure(run, error, 0))
            return False
        if program.is_async and not self.lane.used:
            remember_processes(self.current)
            self.lane.used = True
        return True

    def wait(self) -> bool:
        """Nothing to do: tidy up, then sleep until rung."""
        if self.closing and not self.lane.active:
            return False
        self.tidy.look(clock.monotonic())
        if self.left_over and not self.lane.active:
            self.left_over = False
            self.tidy.end_processes(None, alone=True)
        self.sleeping = True
        if not self.waiting and not (self.closing and not self.lane.active):
            self.bell.get()
        self.sleeping = False
        return True

    def ring(self) -> None:
        """Wake the main thread if it sleeps. Called after what it shall see has been stored."""
        if self.sleeping:
            self.sleeping = False
            self.bell.put(None)

    def execute(self, run: Run) -> None:
        """A plain function or a spawn, from arguments to the written result."""
        started = ended = clock.monotonic()
        run.begun = True
        binding = True
        try:
            if run.cancelled:
                msg = "the run was cancelled before it began"
                raise errors.Cancelled(msg)
            if run.turn is not None:
                slot_turns.wait(run, slot_turns.begin(run))
                started = clock.monotonic()
            if run.program.kind == "spawn":
                self.live = run
                # A spawn's program serves one run, and may hold much.
                self.programs.pop(run.program.number, None)
                line = slot_spawn.spawn(run, call_user, next_item)
                ended = clock.monotonic()
                self.live = None
            else:
                args, kwargs = run.arguments()
                binding = False
                self.live = run
                value = call_user(run.program.function, args, kwargs)  # type: ignore[arg-type]
                ended = clock.monotonic()
                self.live = None
                line = wire.success(
                    run.token, microseconds(started, ended), encode(value, self.hidden)
                )
        except BaseException as error:  # noqa: BLE001 - user code; every end must be told
            self.live = None
            if self.forked:
                os._exit(1)
            line = failure(run, error, microseconds(started, clock.monotonic()), binding=binding)
        if self.forked:
            # A copy of this process that user code made by os.fork and let return.
            os._exit(0)
        failed = line[0] == 70  # "F"
        if failed:
            ended = clock.monotonic()
        self.tidy.after(run, started, ended, failed=failed, alone=not self.lane.active)
        self.finish(run, line)

    def finish(self, run: Run, line: bytes) -> None:
        """The run's last line, after everything else of it; then it is forgotten."""
        if run.journal is not None or run.pending_progress is not None:
            run.settle()
        if run.told is not None and line[0] != 70:  # "F": of a failed try nothing is told
            self.output.write(wire.events(run.token, run.told.events))
        self.runs.pop(run.token, None)
        self.output.write(line)

    def end_async(self, run: Run, line: bytes) -> None:
        """The same for an `async def` task, in the loop's thread."""
        if run.pids:
            self.tidy.end_processes(run, alone=False)
        if self.live is None and not self.lane.active and processes.has_children():
            self.left_over = True
        self.finish(run, line)
        self.ring()

    # ------------------------------------------------------------------ commands thread

    def obey(self, letter: str, body: Any) -> None:
        """One command from the worker. What cannot be understood ends the slot."""
        try:
            self.orders[letter](self, body)
        except Exception as error:  # noqa: BLE001 - nothing may end this thread silently
            os.write(2, f"slot: command {letter} failed: {error!r}\n".encode())
            leave(BAD_COMMAND)

    def take_runs(self, body: list[Any]) -> None:
        program = self.programs[body[0]]
        spawns = program.kind == "spawn"
        for token, given, meta in body[1]:
            run = Run(self, program, token, given, meta)
            if spawns:
                run.acks = queue.SimpleQueue()
            self.runs[token] = run
            self.waiting.append(run)
        self.ring()

    def take_program(self, body: dict[str, Any]) -> None:
        self.programs[body["n"]] = Program(body)

    def take_secrets(self, values: dict[str, str]) -> None:
        self.hidden.add(values)
        self.secrets |= values

    def forget(self, numbers: list[int]) -> None:
        for number in numbers:
            self.programs.pop(number, None)

    def acknowledged(self, body: dict[str, Any]) -> None:
        run = self.runs.get(body["tok"])
        if run is not None and run.acks is not None:
            run.acks.put((body["seq"], body["state"]))

    def answered(self, body: dict[str, Any]) -> None:
        waiting = self.questions.pop(body["q"], None)
        if waiting is not None:
            waiting.put(body)

    def cancel(self, token: int) -> None:
        run = self.runs.get(token)
        if run is None:
            return
        run.cancelled = True
        if run.task is not None or run.program.is_async:
            self.lane.cancel(run)
        elif run.begun:
            self.cancelling = run

    def give_back(self, _: None = None) -> None:
        tokens = []
        while True:
            try:
                run = self.waiting.pop()
            except IndexError:
                break
            self.runs.pop(run.token, None)
            tokens.append(run.token)
        self.output.write(wire.given_back(tokens[::-1]))

    def close(self, _: None = None) -> None:
        if self.waiting:
            self.give_back()
        self.closing = True
        self.ring()

    orders: dict[str, Callable[..., None]] = {  # noqa: RUF012 - never changed
        "I": lambda slot, body: slot.start.put(body),
        "P": take_program,
        "K": take_secrets,
        "N": lambda slot, body: slot_turns.heard(slot.holds, body),
        "R": take_runs,
        "D": forget,
        "A": acknowledged,
        "Q": answered,
        "X": cancel,
        "U": give_back,
        "Z": close,
    }

    def tick(self) -> float | None:
        """Send what runs hold back; ask again for a cancel that could not be raised yet."""
        live = self.live
        for run in (live, *list(self.lane.active)):
            if run is not None and (run.journal is not None or run.pending_progress is not None):
                run.tick()
        cancelling = self.cancelling
        if cancelling is not None:
            if cancelling.token not in self.runs:
                self.cancelling = None
            else:
                if cancelling is live:
                    signal.pthread_kill(self.main_thread, signal.SIGUSR1)
                return CANCEL_TICK_SECONDS
        return TICK_SECONDS if self.runs else None

    # ------------------------------------------------------------------ any thread

    def write(self, line: bytes) -> None:
        if not self.forked:
            self.output.write(line)

    def ask(self, run: Run, body: dict[str, Any]) -> queue.SimpleQueue[dict[str, Any]]:
        number = next(self.question_numbers)
        reply: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.questions[number] = reply
        self.write(wire.question(run.token, {"q": number, **body}))
        return reply

    def current(self) -> Run | None:
        """Whose code this is; threads of user code count for the plain run that is live."""
        return CURRENT.get() or self.live

    def current_log(self) -> RunLog | None:
        run = None if self.forked else self.current()
        return None if run is None else run.printed()

    def on_cancel(self, _: int, frame: Any) -> None:
        """SIGUSR1: raise Cancelled, but only inside the user code of the very run.

        Between the slot's own lines it would tear a result or a lock; the commands thread asks
        again in 20 ms. Raised once: what the user's code does with it is its own decision.
        """
        run = self.cancelling
        if run is None or run is not self.live:
            return
        while frame is not None and not frame.f_code.co_filename.startswith(_HERE):
            frame = frame.f_back
        if frame is not None and frame.f_code in _ENTRIES:
            self.cancelling = None
            msg = "the run was cancelled"
            raise errors.Cancelled(msg)

    def become_stranger(self) -> None:
        """In a process that user code forked: the pipes to the worker are not for it."""
        self.forked = True
        for fd in self.fds:
            os.close(fd)
        for name, fd in (("stdout", 1), ("stderr", 2)):
            raw = io.FileIO(fd, "w", closefd=False)
            text = io.TextIOWrapper(
                io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True
            )
            setattr(sys, name, text)


def main() -> None:
    """Entry of `python -I -m suimon.worker.slot`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--in", type=int, required=True, dest="fd_in")
    parser.add_argument("--out", type=int, required=True, dest="fd_out")
    options = parser.parse_args()
    for fd in (options.fd_in, options.fd_out):
        os.set_inheritable(fd, False)  # noqa: FBT003
    Slot(options.fd_in, options.fd_out).serve()


if __name__ == "__main__":
    main()
