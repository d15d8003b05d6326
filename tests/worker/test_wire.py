"""The line language between worker and slot: what one side writes, the other reads unchanged."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suimon.worker import wire

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
tokens = st.integers(1, 2**40)
quick = settings(max_examples=60, deadline=None)


def one_line(data: bytes) -> bytes:
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    return data[:-1]


@quick
@given(st.lists(st.tuples(tokens, values), max_size=5), texts, st.booleans())
def test_runs_arrive_as_they_were_sent(entries: list[Any], key: str, as_text: bool) -> None:
    """Inputs survive the wire, given as values or as JSON text, whatever characters they hold."""
    meta = ["run", 2, key, "p"]
    given_as = [(t, orjson.dumps(v) if as_text else v, meta) for t, v in entries]
    letter, body = wire.command(one_line(wire.runs(7, given_as)))
    assert letter == "R"
    assert body == [7, [[t, v, meta] for t, v in entries]]


@quick
@given(tokens, values, texts)
def test_other_commands_arrive_as_they_were_sent(token: int, value: Any, text: str) -> None:
    """Every command decodes to what the worker meant."""
    sent: list[tuple[bytes, tuple[str, Any]]] = [
        (wire.init(text, async_slots=3), ("I", {"root": text, "async_slots": 3})),
        (wire.program({"n": 1, "shared": value}), ("P", {"n": 1, "shared": value})),
        (
            wire.acknowledge(token, 4, go_on=False),
            ("A", {"tok": token, "seq": 4, "state": "stop"}),
        ),
        (wire.answer(9, value), ("Q", {"q": 9, "ok": value})),
        (wire.refuse(9, "Gone", text), ("Q", {"q": 9, "err": {"type": "Gone", "message": text}})),
        (wire.forget([token]), ("D", [token])),
        (wire.cancel(token), ("X", token)),
        (wire.GIVE_BACK, ("U", None)),
        (wire.FINISH, ("Z", None)),
    ]
    for line, meaning in sent:
        assert wire.command(one_line(line)) == meaning


@quick
@given(tokens, values, texts)
def test_answers_split_into_their_fields(token: int, value: Any, text: str) -> None:
    """JSON with spaces stays one field; the letter and the token come before it."""
    number = str(token).encode()
    body = {"q": 1, "v": value}
    sent = [
        (wire.success(token, 17, orjson.dumps(value)), [b"S", number, b"17"], value),
        (wire.failure(token, 3, {"message": text}), [b"F", number, b"3"], {"message": text}),
        (wire.log(token, "stdout", text), [b"L", number, b"stdout"], text),
        (wire.ended(token, 12), [b"E", number], {"n": 12}),
        (wire.question(token, body), [b"Q", number], body),
        (wire.given_back([1, 2]), [b"U"], [1, 2]),
        (
            wire.hello(1, {"a:b": value}, []),
            [b"H"],
            {"pid": 1, "tasks": {"a:b": value}, "errors": []},
        ),
    ]
    for line, head, tail in sent:
        *fields, last = wire.split(one_line(line))
        assert fields == head
        assert orjson.loads(last) == tail
    assert wire.split(one_line(wire.progress(token, 3, 9))) == [b"G", number, b"3", b"9"]


@quick
@given(tokens, st.lists(st.tuples(values, st.integers(-(2**63), 2**63 - 1), texts), max_size=6))
def test_a_chunk_arrives_whole(token: int, rows: list[tuple[Any, int, str]]) -> None:
    """Items stay JSON text byte for byte, beside their keys and hashes."""
    items = [orjson.dumps(value) for value, _, _ in rows]
    hashes = [number for _, number, _ in rows]
    keys = [key for _, _, key in rows]
    line = wire.chunk_line(token, seq=2, first=1000, keys=keys, hashes=hashes, items=items)
    letter, number, rest = wire.split(one_line(line))
    assert letter == b"C"
    assert wire.chunk(number, rest) == wire.Chunk(token, 2, 1000, keys, hashes, items)


def test_a_chunk_that_lost_items_is_refused() -> None:
    """The number announced must be the number that came."""
    line = wire.chunk_line(1, seq=0, first=0, keys=None, hashes=[1, 2], items=[b"1", b"2"])
    _, number, rest = wire.split(line[:-1])
    with pytest.raises(wire.WireError, match="announces 2 items and holds 1"):
        wire.chunk(number, rest.rsplit(wire.RS, 1)[0])


@quick
@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_found_however_the_bytes_are_cut(lines: list[bytes], data: Any) -> None:
    """A pipe gives bytes in pieces of any size."""
    stream = b"".join(line + b"\n" for line in lines) + b"rest"
    buffer = wire.LineBuffer()
    found: list[bytes] = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        found += buffer.feed(stream[:cut])
        stream = stream[cut:]
    assert found == lines
    assert buffer.feed(b"\n") == [b"rest"]


def test_a_line_without_end_is_refused_at_the_limit() -> None:
    """A slot gone wild cannot fill the worker's memory."""
    buffer = wire.LineBuffer(limit=1000)
    buffer.feed(b"x" * 900)
    with pytest.raises(wire.WireError, match="longer than 1000 bytes"):
        buffer.feed(b"x" * 200)


def test_raw_json_with_a_line_end_is_refused() -> None:
    """JSON text from elsewhere must not break the framing."""
    with pytest.raises(wire.WireError, match="line end"):
        wire.runs(1, [(1, b'{"a":\n1}', [])])


def test_unknown_commands_are_refused() -> None:
    with pytest.raises(wire.WireError, match="unknown command"):
        wire.command(b"? 1")
