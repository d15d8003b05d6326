"""What slots say: results, log text, chunks of lists, questions. One line at a time, cheaply.

A success of a run with one vertex is the hot path: a lookup, a record, nothing decoded.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any, Final

import orjson

from suimon.core import backoff, clock
from suimon.core.events import Event
from suimon.run.finish import Again, Ended
from suimon.worker import wire
from suimon.worker.held import Held, Slot
from suimon.worker.questions import Questions
from suimon.worker.rawlog import RawLog

if TYPE_CHECKING:
    from suimon.worker.worker import Worker

log = logging.getLogger("suimon.worker")

#: Failures that another try cannot mend.
FINAL_KINDS: Final = frozenset({"deadline", "fatal", "input", "too_large", "items", "invalid"})


class Results:
    """Turns lines into records of the worker's outbox."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._questions = Questions(worker)
        self._rng = random.Random()  # noqa: S311  (jitter, no secret)

    def lines(self, slot: Slot, lines: list[bytes]) -> None:
        """Deal with whole lines of one slot, in order."""
        tokens = self._worker.tokens
        for line in lines:
            head = line[:1]
            if head == b"S":
                _, token, took, output = line.split(b" ", 3)
                held = tokens.get(int(token))
                if held is not None:
                    self._success(slot, held, int(took), output)
            elif head == b"C":
                _, token, rest = line.split(b" ", 2)
                self._chunk(int(token), rest)
            else:
                self._rare(slot, wire.split(line))

    def _rare(self, slot: Slot, parts: list[bytes]) -> None:
        head = parts[0]
        if head == b"H":
            self._worker.joining.slot_ready(slot, orjson.loads(parts[1]))
        elif head == b"U":
            self._worker.given_back(slot, orjson.loads(parts[1]))
        elif head == b"F":
            held = self._worker.tokens.get(int(parts[1]))
            if held is not None:
                self._failure(slot, held, int(parts[2]), orjson.loads(parts[3]))
        elif head == b"E":
            self._list_ended(slot, int(parts[1]), orjson.loads(parts[2]))
        elif head in (b"L", b"G", b"V"):
            self._said(head, parts)
        elif head == b"Q":
            self._questions.ask(int(parts[1]), orjson.loads(parts[2]))
        else:
            log.error("slot %d said %r; it is ended", slot.no, parts[0][:40])
            self._worker.slots.kill(slot, "it does not speak the protocol")

    def _said(self, head: bytes, parts: list[bytes]) -> None:
        """Beside its result: log text, progress, and the events of a try that ended well."""
        held = self._worker.tokens.get(int(parts[1]))
        if held is None:
            return
        if head == b"L":
            self._worker.outbox.log(held, parts[2].decode(), orjson.loads(parts[3]))
        elif head == b"V":
            held.told = (held.token, [Event(*each) for each in orjson.loads(parts[2])])
        elif not held.gone:
            self._worker.outbox.say_progress(held, int(parts[2]), int(parts[3]))

    # ------------------------------------------------------------------ ends

    def _success(self, slot: Slot, held: Held, took_us: int, output: bytes) -> None:
        program = held.program
        assert program is not None
        slot.take(held, clock.monotonic())
        if held.asks_turns:
            self._worker.turns.over(held)
        program.learn(took_us / 1e6)
        self._worker.slots.learn(program.mean_s or 0.0)
        self._close_raw(held)
        del self._worker.tokens[held.token]
        if held.gone:
            return
        if held.drive is not None:
            assert held.vertex is not None
            self._worker.driver.step_done(held, held.vertex, "succeeded", took_us, output, None)
            return
        told = None if held.told is None else held.take_told()
        run = held.run
        self._worker.outbox.end(
            Ended(
                run.id,
                run.claim_no,
                "succeeded",
                output.decode(),
                "",
                took_us,
                run.fanout_id,
                run.lane,
                told,
            )
        )

    def _failure(self, slot: Slot, held: Held, took_us: int, error: dict[str, Any]) -> None:
        program = held.program
        assert program is not None
        slot.take(held, clock.monotonic())
        if held.asks_turns:
            self._worker.turns.over(held, badly=True)
        if took_us:
            program.learn(took_us / 1e6)
        self._close_raw(held)
        self._worker.tokens.pop(held.token, None)
        if not held.gone:
            self.failed_try(held, took_us, error)

    def failed_try(self, held: Held, took_us: int, error: dict[str, Any]) -> None:
        """A try has failed: another one later, or the end of the step."""
        program = held.program
        assert program is not None
        kind = error.get("kind", "error")
        if held.cancel or (kind == "cancelled" and held.cancel_at is not None):
            self._cancelled(held)
            return
        if kind == "later":
            delay_s = self.before_deadline(held, error["delay_s"])
            reason, held.limited = held.limited, None
            waits = error.get("turn") and reason
            self._worker.outbox.park_later(held, delay_s, reason if waits and reason else "timer")
            return
        how = "timed_out" if kind in ("timeout", "deadline") else "failed"
        if program.spawns:
            self._worker.spawner.list_failed(held, how, error)
            return
        failures = max(1, held.attempt - held.interruptions)
        if kind not in FINAL_KINDS and failures <= program.retries:
            delay_s = self.before_deadline(
                held, backoff.delay(program.backoff, failures, self._rng)
            )
            text = orjson.dumps(error).decode()
            run = held.run
            self._worker.outbox.try_again(
                Again(run.id, run.claim_no, delay_s, how, held.vertex or "", text)
            )
            return
        if held.drive is not None:
            assert held.vertex is not None
            self._worker.driver.step_done(held, held.vertex, how, took_us, None, error)
            return
        run = held.run
        text = orjson.dumps(error).decode()
        self._worker.outbox.end(
            Ended(run.id, run.claim_no, how, "", text, took_us, run.fanout_id, run.lane)
        )

    def before_deadline(self, held: Held, delay_s: float) -> float:
        """A wait ends at the deadline at the latest; the run then ends timed_out."""
        if held.deadline_at is None:
            return delay_s
        return max(0.0, min(delay_s, held.deadline_at - clock.monotonic()))

    def _cancelled(self, held: Held) -> None:
        if held.drive is not None:
            self._worker.driver.stop(held)
        else:
            self._worker.outbox.end_cancelled(held)

    # ------------------------------------------------------------------ lists and questions

    def _chunk(self, token: int, rest: bytes) -> None:
        held = self._worker.tokens.get(token)
        if held is None or held.gone or held.drive is None or held.drive.spawning is None:
            if held is not None:
                seq = orjson.loads(rest.split(wire.RS, 1)[0])["seq"]
                self._worker.send_to_slot(held, wire.acknowledge(token, seq, go_on=False))
            return
        self._worker.spawner.chunk(held, rest)

    def _list_ended(self, slot: Slot, token: int, body: dict[str, Any]) -> None:
        held = self._worker.tokens.pop(token, None)
        if held is None:
            return
        slot.take(held, clock.monotonic())
        if held.asks_turns:
            self._worker.turns.over(held)
        self._close_raw(held)
        if held.gone:
            return
        if held.cancel:
            self._worker.driver.stop(held)
        else:
            self._worker.spawner.list_ended(held, body["n"])

    # ------------------------------------------------------------------ raw output

    def drain_raw(self, slot: Slot) -> None:
        """What subprocesses and C code wrote to descriptors 1 and 2, for the slot's current run."""
        for fd, stream in ((slot.handle.out_fd, "stdout"), (slot.handle.err_fd, "stderr")):
            for _ in range(16):  # at most 16 MiB a turn; the pipe keeps the rest
                data = slot.handle.read_raw(fd)
                if not data:
                    break
                if slot.given:
                    held = slot.given[0]
                    if held.raw is None:
                        held.raw = RawLog(slot.hidden)
                    for text in held.raw.take(stream, data):
                        self._worker.outbox.log(held, stream, text)

    def _close_raw(self, held: Held) -> None:
        if held.raw is not None:
            for stream, text in held.raw.end():
                self._worker.outbox.log(held, stream, text)
            held.raw = None
