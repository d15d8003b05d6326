"""Lists read in a slot and sent in chunks, and the merge results that come back as streams."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from support.slot_harness import SlotHarness, wait_for

from suimon.core import jsonsafe
from suimon.worker import wire

# --------------------------------------------------------------------------- spawns


def chunks_until_end(slot: SlotHarness, token: int, *, ack: bool = True) -> tuple[list, list]:
    chunks = []
    while True:
        line = slot.next_line()
        if line[0] != b"C":
            return chunks, line
        chunk = wire.chunk(line[1], line[2])
        chunks.append(chunk)
        if ack:
            slot.send(wire.acknowledge(token, chunk.seq, go_on=True))


def test_a_list_is_sent_in_chunks_with_hashes_and_keys(slot: SlotHarness) -> None:
    program = slot.spawner({"kind": "list"}, key="who.id")
    items = [{"z": 1, "who": {"id": n}} for n in range(2500)]
    (token,) = slot.begin(program, {"items": items})
    chunks, end = chunks_until_end(slot, token)
    assert [(c.seq, c.first, len(c.items)) for c in chunks] == [
        (0, 0, 1000),
        (1, 1000, 1000),
        (2, 2000, 500),
    ]
    assert orjson.loads(end[2]) == {"n": 2500}
    assert chunks[2].keys == [str(n) for n in range(2000, 2500)]
    assert chunks[0].items[7] == b'{"who":{"id":7},"z":1}'
    assert chunks[0].hashes[7] == jsonsafe.content_hash(chunks[0].items[7])


def aheads(slot: SlotHarness, source: dict[str, object], given: object, **more: object) -> list:
    """What each chunk of this list says of the bytes ahead."""
    (token,) = slot.begin(slot.spawner(source, chunk=10, **more), given)
    found = []
    while (line := slot.next_line())[0] == b"C":
        header = orjson.loads(line[2].split(wire.RS, 1)[0])
        found.append(header.get("ahead"))
        slot.send(wire.acknowledge(token, header["seq"], go_on=True))
    return found


def test_a_first_chunk_says_what_the_large_items_of_its_list_take(
    slot: SlotHarness, tmp_path: Path
) -> None:
    """Where it is asked for: of a list exactly; of a file by its size, unless one chunk is all."""
    large = {"text": "x" * 9989}  # 10,000 bytes as JSON
    listed = {"items": [large, {"n": 1}] * 15}
    assert aheads(slot, {"kind": "list"}, listed) == [None] * 3
    assert aheads(slot, {"kind": "list"}, listed, watched=True) == [150_000, None, None]
    rows = orjson.dumps(large) + b"\n"
    for count, said in ((30, [300_030, None, None]), (5, [50_000])):
        path = tmp_path / f"{count}.jsonl"
        path.write_bytes(rows * count)
        source = {"kind": "read", "path": str(path), "trusted": True}
        assert aheads(slot, source, {}, watched=True) == said
    source = {"kind": "task", "task": "work:generate"}
    assert aheads(slot, source, {"inputs": {"n": 15}}, watched=True) == [None, None]


@pytest.mark.parametrize("name", ["generate", "agenerate"])
def test_a_generator_is_read_with_two_chunks_ahead_at_most(slot: SlotHarness, name: str) -> None:
    """Without acknowledgement the slot stops after two chunks, and goes on with the first one."""
    program = slot.spawner({"kind": "task", "task": f"work:{name}"}, chunk=10)
    (token,) = slot.begin(program, {"inputs": {"n": 35}})
    assert [wire.chunk(*slot.expect(b"C")[1:]).seq for _ in range(2)] == [0, 1]
    with pytest.raises(AssertionError, match="said nothing"):
        slot.next_line(0.3)
    for seq in (0, 1):
        slot.send(wire.acknowledge(token, seq, go_on=True))
    chunks, end = chunks_until_end(slot, token)
    assert [len(c.items) for c in chunks] == [10, 5]
    assert (end[0], orjson.loads(end[2])) == (b"E", {"n": 35})


def test_stop_ends_the_reading(slot: SlotHarness, tmp_path: Path) -> None:
    program = slot.spawner({"kind": "task", "task": "work:endless"}, chunk=5)
    (token,) = slot.begin(program, {"inputs": {"mark": str(tmp_path / "mark")}})
    chunk = wire.chunk(*slot.expect(b"C")[1:])
    slot.send(wire.acknowledge(token, chunk.seq, go_on=False))
    _, end = chunks_until_end(slot, token)
    assert end[0] == b"E"
    assert orjson.loads(end[2])["stopped"] is True


def test_cancel_ends_a_spawn(slot: SlotHarness, tmp_path: Path) -> None:
    program = slot.spawner({"kind": "task", "task": "work:endless"})
    (token,) = slot.begin(program, {"inputs": {"mark": str(tmp_path / "mark")}})
    wait_for(tmp_path / "mark")
    slot.send(wire.cancel(token))
    _, end = chunks_until_end(slot, token)
    assert (end[0], orjson.loads(end[3])["kind"]) == (b"F", "cancelled")


def test_a_broken_source_names_the_position_and_keeps_what_came_before(slot: SlotHarness) -> None:
    program = slot.spawner({"kind": "task", "task": "work:breaks"}, chunk=10)
    (token,) = slot.begin(program, {"inputs": {"at": 13}})
    chunks, end = chunks_until_end(slot, token)
    assert [len(c.items) for c in chunks] == [10, 3]
    error = orjson.loads(end[3])
    assert (error["kind"], error["position"]) == ("error", 13)


@pytest.mark.parametrize(
    ("more", "items", "message"),
    [
        ({"key": "id"}, [{"id": 1}, {"x": 2}], 'item 1 has no field "id"'),
        ({"key": "id"}, [{"id": 1}, {"id": None}], "the key of item 1 is a NoneType"),
        ({"max_items": 1}, [1, 2], "max_items=1"),
        ({"item_shape": "object"}, [{}, [2]], "item 1 is list"),
    ],
)
def test_items_that_cannot_be_children_are_named(
    slot: SlotHarness, more: dict[str, object], items: list[object], message: str
) -> None:
    (token,) = slot.begin(slot.spawner({"kind": "list"}, **more), {"items": items})
    _, end = chunks_until_end(slot, token)
    error = orjson.loads(end[3])
    assert (end[0], error["kind"], error["position"]) == (b"F", "items", 1)
    assert message in error["message"]


def test_a_files_rows_are_items_and_can_be_inputs(slot: SlotHarness, slot_root: Path) -> None:
    """A READ feeds a spawner row by row, or stands as a stream that can be read again."""
    (slot_root / "orders.csv").write_text("id,city\n001,Bonn\n002,Ulm\n")
    program = slot.spawner({"kind": "read", "path": "orders.csv", "options": {}}, key="id")
    (token,) = slot.begin(program, {"inputs": {}})
    chunks, end = chunks_until_end(slot, token)
    assert end[0] == b"E"
    assert chunks[0].keys == ["001", "002"]
    assert chunks[0].items[1] == b'{"city":"Ulm","id":"002"}'
    reader = slot.task("work:rows_of", specials=[[["rows"], "read"]])
    assert slot.run(reader, {"rows": {"path": "orders.csv"}}) == [["001", "002"]] * 2
    (token,) = slot.begin(slot.spawner({"kind": "read", "path": "gone.csv"}), {"inputs": {}})
    error = slot.result(token)[1]
    assert (error["kind"], error["position"], error["code"]) == ("items", 0, "SUI-4003")


def test_input_that_does_not_fit_is_refused_with_its_path(slot: SlotHarness) -> None:
    """Kind "input": the worker does not try it again."""
    error = slot.fail(slot.task("work:typed", item=True), "x")
    assert (error["kind"], error["path"]) == ("input", "$")
    error = slot.fail(slot.task("work:typed"), {"n": 1, "m": 2})
    assert error["kind"] == "input"


@pytest.mark.slow
def test_memory_is_flat_over_a_long_list(slot: SlotHarness) -> None:
    """300,000 items cost the slot no more memory than 30,000."""
    peaks = []
    for n in (30_000, 300_000):
        program = slot.spawner({"kind": "task", "task": "work:generate"}, key="id")
        (token,) = slot.begin(program, {"inputs": {"n": n}})
        while (line := slot.next_line())[0] == b"C":
            chunk = wire.chunk(line[1], line[2])
            slot.send(wire.acknowledge(token, chunk.seq, go_on=True))
        assert orjson.loads(line[2]) == {"n": n}
        status = Path(f"/proc/{slot.process.pid}/status").read_text()
        peaks.append(int(status.split("VmHWM:")[1].split()[0]))
    assert peaks[1] - peaks[0] < 3_000


# --------------------------------------------------------------------------- merge results


def serve_children(slot: SlotHarness, token: int) -> tuple[str, object]:
    """Answer questions as the worker does: 1,200 children, every third failed."""
    while True:
        line = slot.next_line()
        if line[0] != b"Q":
            assert int(line[1]) == token
            return line[0].decode(), orjson.loads(line[3])
        ask = orjson.loads(line[2])
        assert (ask["op"], ask["fanout"], ask["limit"]) == ("children", "f1", 500)
        bad = ask["which"] == "failed"
        rows = [
            [n, f"k{n}", "failed" if bad else "succeeded", None if bad else 1,
             {"type": "E", "message": f"m{n}"} if bad else None, f"r{n}"]
            for n in range(ask["after"] + 1, 1200)
            if (n % 3 == 0) == bad
        ]  # fmt: skip
        slot.send(wire.answer(ask["q"], rows[:500]))


MERGE = {
    "fanout": "f1",
    "counts": {"total": 1200, "succeeded": 800, "failed": 400},
    "first_failures": [
        {"position": 0, "key": "k0", "state": "failed", "error": {"type": "E", "message": "m0"}}
    ],
}


def test_a_merge_result_streams_its_children_page_by_page(slot: SlotHarness) -> None:
    """Iterated twice, in item order, and as JSON it is counts and first failures."""
    program = slot.task("work:merged", specials=[[["outcome"], "merge"]])
    (token,) = slot.begin(program, {"outcome": MERGE})
    letter, value = serve_children(slot, token)
    assert letter == "S", value
    failed = list(range(0, 1200, 3))
    assert value["failed"] == [failed, failed]
    assert value["ok"] == 800
    assert value["n"]["timed_out"] == 0
    assert value["first"] == ["k0", "E"]
    assert value["whole"]["counts"]["total"] == 1200


def test_a_merge_result_can_be_awaited(slot: SlotHarness) -> None:
    program = slot.task("work:amerged", specials=[[["outcome"], "merge"]])
    (token,) = slot.begin(program, {"outcome": MERGE})
    letter, value = serve_children(slot, token)
    assert letter == "S", value
    assert value == [f"m{n}" for n in range(0, 1200, 3)]
