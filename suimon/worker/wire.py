"""What a worker and its slots say to each other: lines over two pipes.

Each message is one line: a letter, then fields with one space between them. JSON inside a line is
orjson's, which never holds a raw control character, so "\\n" ends a line and "\\x1e" separates the
raw JSON texts of a chunk, whatever user data holds.

    worker -> slot
      I {"root","async_slots"}          first of all: where the user's code lives
      P {"n","kind","vertex",...}       program n, which later runs name
      K {"name": "value",...}           secrets, for runs that come later and are granted them
      R [n, [[token, input, meta],..]]  run these in order; meta = [run_id, attempt, key, pipeline]
      A {"tok","seq","state"}           a chunk is stored: "go" on, or "stop" reading
      Q {"q","ok"|"err"}                the answer to a question
      X token                           cancel this run
      N {"name","until"}                nobody calls this destination before (null: any more)
      D [n,...]                         forget these programs; they will not be named again
      U                                 give back what has not begun
      Z                                 finish what has begun, then exit 0
    slot -> worker
      H {"pid","tasks","errors"}        ready; what the code below root offers
      S token microseconds json         success
      F token microseconds json         failure {"type","message","kind","traceback"?,"position"?}
      C token header RS hashes RS items a chunk of a spawn
      E token {"n","stopped"?}          the list of a spawn has ended, all chunks acknowledged
      L token stream json-text          log text; stream: log, stdout, stderr, note
      G token done total                progress
      V token [[type,payload,key],...]  events, right before the S or E of their try
      Q token {"q","op",...}            a question
      U [token,...]                     what had not begun

A token is a number that the worker chooses; it names one try of one run inside one slot. Hot paths:
the worker reads with `LineBuffer` and `split`, about a microsecond a line, and decodes only the
lines that are rare. Everything here is pure; nothing here reads or writes a descriptor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

RESULT_LIMIT_BYTES = 16 * 1024 * 1024
# The longest line: a chunk of 1 MiB may end with one item at the limit; the rest is headers.
LINE_LIMIT_BYTES = RESULT_LIMIT_BYTES + 4 * 1024 * 1024
CHUNK_ITEMS = 1000
# An item above it is stored as a payload.
LARGE_BYTES = 8192
CHUNK_BYTES = 1024 * 1024
CHUNKS_UNACKNOWLEDGED = 2
TRACEBACK_CHARS = 4000
PAGE_ROWS = 500

RS = b"\x1e"
GIVE_BACK = b"U\n"
FINISH = b"Z\n"


class WireError(Exception):
    """The other side sent what no version of it sends; the only answer is to end that side."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Items of a spawn, still as JSON text: the worker stores them without ever parsing them."""

    token: int
    seq: int
    first: int
    keys: list[str] | None
    hashes: list[int]
    items: list[bytes]


class LineBuffer:
    """Turns pieces of bytes into whole lines. Bounded: a longer line is a `WireError`."""

    __slots__ = ("_parts", "_size", "limit")

    def __init__(self, limit: int = LINE_LIMIT_BYTES) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their ends."""
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines and self._parts:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts.clear()
            self._size = 0
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > self.limit:
                msg = f"a line is longer than {self.limit} bytes"
                raise WireError(msg)
        return lines


# --------------------------------------------------------------------------- the worker's side


def init(root: str, *, async_slots: int = 1) -> bytes:
    """`I`: where the user's code lives, and how many `async def` tasks may share the slot."""
    return _line(b"I", {"root": root, "async_slots": async_slots})


def program(definition: dict[str, Any]) -> bytes:
    """`P`: one vertex of one graph, sent once and then named by its number `n`."""
    return _line(b"P", definition)


def runs(number: int, entries: Iterable[tuple[int, Any, Sequence[Any]]]) -> bytes:
    """`R`: (token, input, meta) in order. An input given as bytes is JSON text, passed as it is."""
    listed = [
        (token, orjson.Fragment(given) if isinstance(given, bytes) else given, meta)
        for token, given, meta in entries
    ]
    return _line(b"R", (number, listed))


def secrets(values: Mapping[str, str]) -> bytes:
    """`K`: values by the names that tasks are granted. They are on no command line, in no file."""
    return _line(b"K", dict(values))


def hold(name: str, until: float | None) -> bytes:
    """`N`: a destination is held until then, on the clock that processes of a machine share."""
    return _line(b"N", {"name": name, "until": until})


def forget(numbers: Sequence[int]) -> bytes:
    """`D`: these programs will not be named again. A spawn's program is forgotten with its run."""
    return _line(b"D", list(numbers))


def acknowledge(token: int, seq: int, *, go_on: bool) -> bytes:
    """`A`: chunk `seq` is stored; read on, or stop because the fan-out is settled."""
    return _line(b"A", {"tok": token, "seq": seq, "state": "go" if go_on else "stop"})


def answer(question: int, ok: Any) -> bytes:
    """`Q`: the answer to a question."""
    return _line(b"Q", {"q": question, "ok": ok})


def refuse(question: int, kind: str, message: str) -> bytes:
    """`Q`: the question could not be answered; the task that asked gets the error."""
    return _line(b"Q", {"q": question, "err": {"type": kind, "message": message}})


def cancel(token: int) -> bytes:
    """`X`: this run shall stop."""
    return b"X %d\n" % token


def split(line: bytes) -> list[bytes]:
    """The fields of one line from a slot; JSON (with its spaces) stays whole in the last one.

    S, F, L and G give [letter, token, x, rest]; C, E, Q and V [letter, token, rest]; H and U
    [letter, rest]. Nothing is decoded here.
    """
    head = line[:1]
    if head in b"SFLG":
        return line.split(b" ", 3)
    if head in b"CEQV":
        return line.split(b" ", 2)
    return line.split(b" ", 1)


def chunk(token: bytes, rest: bytes) -> Chunk:
    """The decoded form of a `C` line's fields."""
    head, hashes, *items = rest.split(RS)
    header = orjson.loads(head)
    numbers = [int(text) for text in hashes.split(b",")] if hashes else []
    if not header["n"] == len(items) == len(numbers):
        msg = f"a chunk announces {header['n']} items and holds {len(items)}"
        raise WireError(msg)
    return Chunk(int(token), header["seq"], header["first"], header["keys"], numbers, items)


# --------------------------------------------------------------------------- the slot's side


def hello(pid: int, tasks: dict[str, Any], errors: list[Any]) -> bytes:
    """`H`: the code is loaded."""
    return _line(b"H", {"pid": pid, "tasks": tasks, "errors": errors})


def success(token: int, microseconds: int, result: bytes) -> bytes:
    """`S`: `result` is JSON text."""
    return b"S %d %d %b\n" % (token, microseconds, result)


def failure(token: int, microseconds: int, error: dict[str, Any]) -> bytes:
    """`F`: the error as an object; its texts must be free of lone surrogates."""
    return b"F %d %d %b\n" % (token, microseconds, orjson.dumps(error))


def chunk_line(
    token: int,
    *,
    seq: int,
    first: int,
    keys: list[str] | None,
    hashes: Sequence[int],
    items: Sequence[bytes],
    total: int | None = None,
    ahead: int | None = None,
) -> bytes:
    """`C`: items as canonical JSON texts with their hashes and, if the spawn has keys, those.

    In a first chunk, where that is known: ``total``, how many items the whole list has, and
    ``ahead``, the bytes of all its large ones.
    """
    head: dict[str, Any] = {"seq": seq, "first": first, "n": len(items), "keys": keys}
    if total is not None:
        head["total"] = total
    if ahead is not None:
        head["ahead"] = ahead
    header = orjson.dumps(head)
    numbers = ",".join(map(str, hashes)).encode()
    return b"C %d %b\n" % (token, RS.join((header, numbers, *items)))


def ended(token: int, total: int, *, stopped: bool = False) -> bytes:
    """`E`: the list has `total` items, or was left after that many because of a "stop"."""
    return b"E %d %b\n" % (
        token,
        orjson.dumps({"n": total, "stopped": True} if stopped else {"n": total}),
    )


def log(token: int, stream: str, text: str) -> bytes:
    """`L`: text without lone surrogates; may hold several lines."""
    return b"L %d %b %b\n" % (token, stream.encode(), orjson.dumps(text))


def progress(token: int, done: int, total: int) -> bytes:
    """`G`: how far a task says it is."""
    return b"G %d %d %d\n" % (token, done, total)


def events(token: int, told: Sequence[tuple[str, str, str]]) -> bytes:
    """`V`: (type, payload as JSON text, key) of each event, in order."""
    return b"V %d %b\n" % (token, orjson.dumps(told))


def question(token: int, body: dict[str, Any]) -> bytes:
    """`Q`: asks the worker; `body` holds the number `q` the answer will name, and `op`."""
    return b"Q %d %b\n" % (token, orjson.dumps(body))


def given_back(tokens: Sequence[int]) -> bytes:
    """`U`: these had not begun and never will here."""
    return _line(b"U", list(tokens))


def command(line: bytes) -> tuple[str, Any]:
    """One line from the worker as (letter, decoded value); the value of U and Z is None."""
    letter = line[:1].decode("ascii", "replace")
    if letter in ("U", "Z") and len(line) == 1:
        return letter, None
    if letter == "X":
        return letter, int(line[2:])
    if letter in ("I", "P", "K", "R", "N", "D", "A", "Q"):
        return letter, orjson.loads(memoryview(line)[2:])
    msg = f"unknown command {line[:40]!r}"
    raise WireError(msg)


def _line(letter: bytes, value: Any) -> bytes:
    line = letter + b" " + orjson.dumps(value) + b"\n"
    if line.find(b"\n") != len(line) - 1:
        msg = "raw JSON given to the wire holds a line end"
        raise WireError(msg)
    return line
