"""What runs share a slot with: async neighbours, output, and the processes they start."""

from __future__ import annotations

import time

import orjson
import pytest
from support.slot_harness import SlotHarness, alive, gone, log_text

from suimon.worker import wire

# --------------------------------------------------------------------------- async


def test_async_tasks_share_the_slot_and_plain_ones_go_on(slot: SlotHarness) -> None:
    """Four naps of 0.3 s take one nap's time, and a plain run does not wait for them."""
    nap = slot.task("work:anap", item=True)
    begun = time.monotonic()
    naps = slot.begin(nap, 0.3, 0.3, 0.3, 0.3)
    assert slot.run(slot.task("work:double"), {"n": 1}) == 2
    assert time.monotonic() - begun < 0.25
    ends = dict.fromkeys(naps)
    while any(v is None for v in ends.values()):
        line = slot.next_line()
        ends[int(line[1])] = line[0]
    assert set(ends.values()) == {b"S"}
    assert time.monotonic() - begun < 1.0


def test_a_timeout_ends_one_async_task_and_not_its_neighbour(slot: SlotHarness) -> None:
    nap = slot.task("work:anap", item=True, timeout=0.3)
    late, early = slot.begin(nap, 30, 0.1)
    assert slot.result(early)[0] == "S"
    letter, error, _ = slot.result(late)
    assert (letter, error["kind"]) == ("F", "timeout")
    assert "0.3 s" in error["message"]


def test_cancel_ends_one_async_task(slot: SlotHarness) -> None:
    long, short = slot.begin(slot.task("work:anap", item=True), 30, 0.2)
    slot.send(wire.cancel(long))
    assert slot.result(long)[1]["kind"] == "cancelled"
    assert slot.result(short)[0] == "S"


def test_exit_in_async_code_ends_only_its_run(slot: SlotHarness) -> None:
    program = slot.task("work:aexit")
    assert slot.run(program, {"n": 0}) == "fine"
    assert "sys.exit(5)" in slot.fail(program, {"n": 1})["message"]
    assert slot.run(slot.task("work:anap"), {"seconds": 0}) == 0


# --------------------------------------------------------------------------- output


def test_output_is_kept_by_stream_and_comes_before_the_result(slot: SlotHarness) -> None:
    (token,) = slot.begin(slot.task("work:speak"), {"how": "short"})
    _, _, lines = slot.result(token)
    assert log_text(lines, "stdout") == "one\n\\xff\\x00raw\n"
    assert log_text(lines, "stderr") == "two\n"
    assert log_text(lines, "log") == 'three {"n": 3}\n'
    progress = [line[2:] for line in lines if line[0] == b"G"]
    assert progress[0] == [b"1", b"4"]
    assert progress[-1] == [b"3", b"4"]
    assert len(progress) == 2


@pytest.mark.parametrize("how", ["lines", "solid"])
def test_c62_a_flood_is_cut_with_a_note(slot: SlotHarness, how: str) -> None:
    """Beginning and end of a flood are kept, at most 1 MB, in few messages."""
    (token,) = slot.begin(slot.task("work:speak"), {"how": how})
    letter, _, lines = slot.result(token)
    assert letter == "S"
    text = log_text(lines, "stdout")
    assert text.startswith("one\n")
    assert text.endswith("line 199999\n" if how == "lines" else "zzthe end\n")
    assert len(text) <= 1024 * 1024 + 100
    note = log_text(lines, "note")
    assert int(note.split()[0]) > 1_000_000
    assert len([line for line in lines if line[0] == b"L"]) < 200


def test_async_neighbours_keep_their_own_output(slot: SlotHarness) -> None:
    tokens = slot.begin(slot.task("work:aspeak", item=True), "a", "b", "c")
    said: dict[int, str] = dict.fromkeys(tokens, "")
    open_runs = set(tokens)
    while open_runs:
        line = slot.next_line()
        if line[0] == b"L":
            said[int(line[1])] += orjson.loads(line[3])
        else:
            open_runs.discard(int(line[1]))
    assert list(said.values()) == ["a\n" * 3, "b\n" * 3, "c\n" * 3]


# --------------------------------------------------------------------------- processes


@pytest.mark.parametrize("how", ["background", "setsid", "stubborn", "double"])
def test_c61_no_process_outlives_its_run(slot: SlotHarness, how: str) -> None:
    """Killed before the result is written, in whatever way it tried to stay."""
    pid = slot.run(slot.task("work:leave_processes"), {"how": how})
    assert not alive(pid)


def test_an_async_run_takes_its_own_processes_along_only(slot: SlotHarness) -> None:
    """The neighbour's process lives until the neighbour ends."""
    program = slot.task("work:aprocess", item=True)
    short, long = slot.begin(program, 0.2, 0.6)
    first = slot.result(short)[1]
    assert gone(first[0])
    second = slot.result(long)[1]
    assert second[1] is None  # it was still running when its own run looked
    assert gone(second[0])
