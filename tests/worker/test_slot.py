"""A real slot process, driven over its pipes: what user code does, and what becomes of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from support.slot_harness import SlotHarness, alive, log_text

from suimon.core import jsonsafe
from suimon.worker import wire

CODE = """
from __future__ import annotations
import asyncio, os, signal, subprocess, sys, threading, time
from suimon.errors import Cancelled, Fatal
from suimon.task import task

@task
def double(n): return n * 2

@task
def told(n, ctx):
    return [n, ctx.idempotency_key, ctx.item_key, ctx.attempt, ctx.run_id, ctx.cancelled]

@task
def misbehave(how):
    if how == "exit": sys.exit(3)
    if how == "base": raise KeyboardInterrupt("no")
    if how == "fatal": raise Fatal("never again")
    if how == "long": raise ValueError("x\\0\\ud800" + "y" * 10_000)
    if how == "deep": return misbehave(how)
    if how == "unprintable":
        class Odd(Exception):
            def __str__(self): raise RuntimeError
        raise Odd
    if how == "cwd": os.chdir("/"); return os.getcwd()
    if how == "stdout": sys.stdout = None; os.close(1); os.close(2); time.sleep(0.01)
    if how == "signals":
        signal.signal(signal.SIGUSR1, signal.SIG_DFL); signal.alarm(1); time.sleep(0.01)
    if how == "thread": threading.Thread(target=time.sleep, args=(60,)).start()
    if how == "fork":
        if os.fork() == 0: return "child"
    if how == "fork_raise":
        if os.fork() == 0: raise RuntimeError("in the child")
    if how == "nan": return {"metrics": [1.0, float("nan")]}
    if how == "nul": return {"a": "x\\0"}
    if how == "lone": return ["\\ud800"]
    if how == "set": return {1, 2}
    if how == "big": return "x" * (17 * 1024 * 1024)
    if how == "disk":
        path = os.path.join(os.environ["TMPDIR"], "part"); open(path, "w").write("x")
        raise OSError(28, "No space left on device")
    if how == "temp": return os.listdir(os.environ["TMPDIR"])
    return how

@task
def napping(mark):
    open(mark, "w").close()
    try:
        while True: time.sleep(0.01)
    except Cancelled:
        open(mark + ".caught", "w").close()
        raise

@task
def looking(mark, ctx):
    open(mark, "w").close()
    while not ctx.cancelled: sum(range(100))
    return "left"

@task
async def anap(seconds):
    await asyncio.sleep(seconds)
    return seconds

@task
async def aexit(n):
    async def inner(): sys.exit(4)
    asyncio.get_running_loop().create_task(inner())
    await asyncio.sleep(0.05)
    if n: sys.exit(5)
    return "fine"

@task
def speak(how, ctx):
    print("one"); print("two", file=sys.stderr); ctx.log("three", n=3)
    sys.stdout.buffer.write(b"\\xff\\x00raw\\n")
    if how == "lines":
        for n in range(200_000): print("line", n)
    if how == "solid":
        for n in range(40): sys.stdout.write("z" * 1_000_000)
        print("the end")
    ctx.progress(1, 4); ctx.progress(2, 4); ctx.progress(3, 4)

@task
async def aspeak(word):
    for _ in range(3):
        print(word); await asyncio.sleep(0.01)

@task
def leave_processes(how):
    if how == "background": return subprocess.Popen(["sleep", "1000"]).pid
    if how == "setsid": return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid
    if how == "stubborn":
        p = subprocess.Popen(["sh", "-c", "trap '' TERM; echo on; while :; do sleep 1; done"],
                             stdout=subprocess.PIPE)
        p.stdout.readline()
        return p.pid
    if how == "double":
        out = subprocess.run(["sh", "-c", "setsid sh -c 'sleep 1000 >/dev/null & echo $!'"],
                             stdout=subprocess.PIPE)
        return int(out.stdout)

@task
async def aprocess(seconds):
    p = await asyncio.create_subprocess_exec("sleep", "1000")
    await asyncio.sleep(seconds)
    return [p.pid, p.returncode]

@task
def generate(n, ctx):
    for i in range(n): yield {"id": i, "who": {"name": f"n{i}"}}

@task
async def agenerate(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield {"id": i}

@task
def breaks(at):
    for i in range(at): yield {"id": i}
    raise RuntimeError("the source broke")

@task
def endless(mark):
    open(mark, "w").close()
    i = 0
    while True:
        time.sleep(0.001); yield {"id": i}; i += 1

@task
def crash():
    import ctypes
    ctypes.string_at(0)

@task
def typed(n: int): return n + 1

@task
def rows_of(rows): return [[r["id"] for r in rows] for _ in range(2)]

@task
def merged(outcome):
    twice = [[c.position for c in outcome.failed] for _ in range(2)]
    first = outcome.first_failures[0]
    ok = sum(c.value for c in outcome.succeeded)
    return {"n": dict(outcome.counts), "failed": twice, "ok": ok,
            "first": [first.key, first.error.type], "whole": outcome}

@task
async def amerged(outcome):
    return [c.error.message async for c in outcome.failed]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "work.py").write_text(CODE)
    (folder / "broken.py").write_text("import nowhere_to_be_found\n")
    return folder


@pytest.fixture
def slot(root: Path, tmp_path: Path) -> Iterator[SlotHarness]:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {"TMPDIR": str(temporary), "SUIMON_SLOT": "0"}
    with SlotHarness(root, async_slots=4, env=env) as harness:
        yield harness


def wait_for(path: Path | str) -> None:
    end = time.monotonic() + 10
    while not Path(path).exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.005)


def gone(pid: int) -> bool:
    end = time.monotonic() + 5
    while alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


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
def test_a_run_does_not_disturb_the_next(slot: SlotHarness, how: str, root: Path) -> None:
    """Folder, output, signals, threads and forked copies: the next run finds the slot as it was."""
    misbehave = slot.task("work:misbehave")
    (token,) = slot.begin(misbehave, {"how": how})
    assert slot.result(token)[0] == "S"
    (token,) = slot.begin(slot.task("work:speak"), {"how": "short"})
    letter, _, lines = slot.result(token)
    assert letter == "S"
    assert log_text(lines, "stderr") == "two\n"
    assert Path(f"/proc/{slot.process.pid}/cwd").readlink() == root
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


def test_a_files_rows_are_items_and_can_be_inputs(slot: SlotHarness, root: Path) -> None:
    """A READ feeds a spawner row by row, or stands as a stream that can be read again."""
    (root / "orders.csv").write_text("id,city\n001,Bonn\n002,Ulm\n")
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
