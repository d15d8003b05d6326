"""What the users of the slot tests have written: tasks that behave, and many that do not."""

from __future__ import annotations

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
    try:
        open(mark, "w").close()
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
