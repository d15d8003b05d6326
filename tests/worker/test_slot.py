"""A real slot process, driven over its pipes: what user code does, and what becomes of it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import orjson
import pytest
from support.slot_harness import SlotHarness, log_text, wait_for

from suimon.worker import wire

# --------------------------------------------------------------------------- the plain way


def test_hello_names_tasks_and_what_could_not_be_imported(slot: SlotHarness) -> None:
    """The worker learns what this code can do, and a broken module does not hide the others."""
    assert slot.hello["pid"] == slot.process.pid
    assert slot.hello["tasks"]["work:double"] == {"generator": False, "async": False}
    assert slot.hello["tasks"]["work:agenerate"] == {"generator": True, "async": True}
    (problem,) = slot.hello["errors"]
    assert problem["module"] == "broken"
    assert "nowhere_to_be_found" in problem["message"]


def test_runs_end_in_the_order_they_were_sent(slot: SlotHarness) -> None:
    program = slot.task("work:double", item=True)
    tokens = slot.begin(program, *range(50))
    assert [slot.result(token)[:2] for token in tokens] == [("S", n * 2) for n in range(50)]


def test_c19_the_idempotency_key_names_run_and_vertex(slot: SlotHarness) -> None:
    """Same in all tries of a run's vertex, different between runs."""
    program = slot.task("work:told", item=True)
    assert slot.run(program, 5, key="k5") == [5, "run-1:v", "k5", 1, "run-1", False]
    assert slot.run(program, 5)[1] == "run-2:v"


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("exit", "error", "sys.exit(3)"),
        ("base", "error", "no"),
        ("fatal", "fatal", "never again"),
        ("deep", "error", "recursion"),
        ("unprintable", "error", "no readable text"),
        ("nan", "error", "$.metrics[1]"),
        ("nul", "error", "$.a"),
        ("lone", "error", "surrogate"),
        ("set", "error", "set"),
        ("big", "too_large", "limit"),
    ],
)
def test_c48_c49_c13_failures_say_what_and_where(
    slot: SlotHarness, how: str, kind: str, message: str
) -> None:
    """Whatever user code raises or returns, the run ends with one clear error; the slot goes on."""
    error = slot.fail(slot.task("work:misbehave"), {"how": how})
    assert error["kind"] == kind
    assert message in error["message"]
    assert slot.run(slot.task("work:double"), {"n": 1}) == 2


def test_long_errors_are_cut_and_made_printable(slot: SlotHarness) -> None:
    error = slot.fail(slot.task("work:misbehave"), {"how": "long"})
    assert error["message"].startswith("x\\x00\\ud800yyy")
    assert len(error["message"]) <= 4000
    assert len(error["traceback"]) <= wire.TRACEBACK_CHARS
    assert "work.py" in error["traceback"]
    assert "slot.py" not in error["traceback"]


@pytest.mark.parametrize("how", ["cwd", "stdout", "signals", "thread", "fork", "fork_raise"])
def test_a_run_does_not_disturb_the_next(slot: SlotHarness, how: str, slot_root: Path) -> None:
    """Folder, output, signals, threads and forked copies: the next run finds the slot as it was."""
    misbehave = slot.task("work:misbehave")
    (token,) = slot.begin(misbehave, {"how": how})
    assert slot.result(token)[0] == "S"
    (token,) = slot.begin(slot.task("work:speak"), {"how": "short"})
    letter, _, lines = slot.result(token)
    assert letter == "S"
    assert log_text(lines, "stderr") == "two\n"
    assert Path(f"/proc/{slot.process.pid}/cwd").readlink() == slot_root
    if how == "signals":
        time.sleep(1.2)  # the alarm that the run set would have rung by now
    assert slot.run(slot.task("work:double"), {"n": 4}) == 8
    assert slot.finish() == 0


def test_unknown_tasks_fail_their_run_only(slot: SlotHarness) -> None:
    error = slot.fail(slot.task("work:nothing_here"), {})
    assert 'has no "nothing_here"' in error["message"]
    error = slot.fail(slot.task("broken:f"), {})
    assert error["type"] == "ModuleNotFoundError"


def test_c12_a_full_disk_is_named_and_the_runs_files_go(slot: SlotHarness) -> None:
    misbehave = slot.task("work:misbehave")
    error = slot.fail(misbehave, {"how": "disk"})
    assert error["message"].startswith("the worker's disk is full")
    assert slot.run(misbehave, {"how": "temp"}) == []


# --------------------------------------------------------------------------- stopping


def test_what_has_not_begun_is_given_back_and_nothing_else(
    slot: SlotHarness, tmp_path: Path
) -> None:
    """`U` while a run is busy: that one goes on, the others come back, none is in both."""
    mark = str(tmp_path / "mark")
    busy, *others = slot.begin(slot.task("work:looking"), *[{"mark": mark}] * 4)
    wait_for(mark)
    slot.send(wire.GIVE_BACK)
    assert orjson.loads(slot.expect(b"U")[1]) == others
    slot.send(wire.cancel(busy))
    assert slot.result(busy)[0] in "SF"


def test_cancel_reaches_a_plain_function(slot: SlotHarness, tmp_path: Path) -> None:
    """Cancelled is raised inside it; it may clean up; the next run is not touched."""
    mark = str(tmp_path / "mark")
    (token,) = slot.begin(slot.task("work:napping"), {"mark": mark})
    wait_for(mark)
    slot.send(wire.cancel(token))
    letter, error, _ = slot.result(token)
    assert (letter, error["kind"]) == ("F", "cancelled")
    assert Path(mark + ".caught").exists()
    slot.send(wire.cancel(token))  # late: the run is over
    assert slot.run(slot.task("work:double"), {"n": 1}) == 2


def test_a_run_cancelled_before_it_began_does_not_run(slot: SlotHarness, tmp_path: Path) -> None:
    mark, second = str(tmp_path / "mark"), str(tmp_path / "second")
    busy, waiting = slot.begin(slot.task("work:napping"), {"mark": mark}, {"mark": second})
    wait_for(mark)
    slot.send(wire.cancel(waiting) + wire.cancel(busy))
    assert slot.result(busy)[1]["kind"] == "cancelled"
    assert slot.result(waiting)[1]["kind"] == "cancelled"
    assert not Path(second).exists()


def test_cancels_under_fire_hit_only_their_run(slot: SlotHarness) -> None:
    """300 short runs, a cancel for each at some moment: every run ends once, the slot lives."""
    tokens = slot.begin(slot.task("work:told", item=True), *range(300))
    for token in tokens:
        slot.send(wire.cancel(token))
    ends = [slot.result(token) for token in tokens]
    assert all(e[0] == "S" or e[1]["kind"] == "cancelled" for e in ends)
    assert slot.run(slot.task("work:double"), {"n": 1}) == 2


def test_a_crash_in_c_code_names_the_line(slot: SlotHarness) -> None:
    """The slot is lost, but its last words on descriptor 2 say where."""
    slot.begin(slot.task("work:crash"), {})
    with pytest.raises(EOFError, match=r"(?s)Segmentation fault.*work.py"):
        slot.next_line()
    assert slot.process.wait(5) == -signal.SIGSEGV


def test_finish_gives_back_what_waits_and_leaves(slot: SlotHarness) -> None:
    assert slot.run(slot.task("work:double"), {"n": 1}) == 2
    assert slot.finish() == 0


def test_the_slot_leaves_when_its_worker_is_gone(slot: SlotHarness, tmp_path: Path) -> None:
    """End of the pipe: no run without a worker, however busy the code is."""
    mark = str(tmp_path / "mark")
    slot.begin(slot.task("work:napping"), {"mark": mark})
    wait_for(mark)
    os.close(slot.to_fd)
    assert slot.process.wait(10) == 3
    slot.to_fd = os.open(os.devnull, os.O_WRONLY)


def test_a_killed_slot_has_written_all_it_finished(slot: SlotHarness, tmp_path: Path) -> None:
    """A result is in the pipe before the next run begins."""
    mark = str(tmp_path / "mark")
    done = slot.begin(slot.task("work:double", item=True), *range(20))
    slot.begin(slot.task("work:napping"), {"mark": mark})
    wait_for(mark)
    os.kill(slot.process.pid, signal.SIGKILL)
    assert [slot.result(token)[1] for token in done] == [n * 2 for n in range(20)]
    with pytest.raises(EOFError):
        slot.next_line()
