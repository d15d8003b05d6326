"""Ending process trees for certain, with nothing but the standard library and /proc.

A process that becomes a *subreaper* inherits every orphan below it, however often it was forked and
whatever session it put itself in. So "all descendants of P" is a closed set as long as P is a
subreaper, and a process without any child has no descendant at all: one system call tells.

Killing races with forking. Each round therefore lists again and kills again until a look finds
nobody; rounds are bounded, and what cannot be killed (uninterruptible sleep) is reported, not
waited for.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

ROUNDS = 200
ROUND_SECONDS = 0.005

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Orphans below this process become its children instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """SIGKILL for us when the *thread* that started us ends; at once if it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def hear_of_parents_death(number: int) -> None:
    """The signal `number` for us when the thread that started us ends; the caller judges it."""
    _prctl(_PR_SET_PDEATHSIG, number)


def has_children() -> bool:
    """Whether this process has any child, dead ones that nobody has waited for included."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def children(pid: int) -> list[int]:
    """The children of `pid` now, zombies included."""
    found: list[int] = []
    try:
        for thread in os.scandir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, Path(thread.path, "children").read_bytes().split())
    except OSError:
        pass
    return found if found or _HAS_CHILDREN_FILES else _children_by_scan(pid)


def descendants(pid: int, *, spare: Collection[int] = ()) -> list[int]:
    """All processes below `pid`, nearest first, without `spare` and what is below those."""
    found: list[int] = []
    ahead = [pid]
    while ahead:
        below = [child for child in children(ahead.pop()) if child not in spare]
        found += below
        ahead += below
    return found


def more_than(pid: int, limit: int) -> int:
    """How many processes are below `pid`, counted no further than is needed to pass `limit`."""
    count = 0
    ahead = [pid]
    while ahead and count <= limit:
        below = children(ahead.pop())
        count += len(below)
        ahead += below
    return count


def kill_groups(pid: int) -> None:
    """Kill `pid` and all below it, whole process groups at once.

    A group that is being signalled cannot fork out of it: the kernel refuses a fork while SIGKILL
    is pending. So this ends what forks faster than anybody can list. `pid` leads a session of its
    own (a slot does), therefore no group met here holds anybody else.
    """
    below = descendants(pid)
    groups = {pid}
    for each in below:
        with contextlib.suppress(OSError):
            groups.add(os.getpgid(each))
    for group in groups - {os.getpgrp()}:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    for each in below:
        kill(each)
    kill(pid)


def kill(pid: int) -> None:
    """SIGKILL, wherever it still makes sense."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def reap(pid: int) -> int | None:
    """The wait status of the dead child `pid`, or None if it lives or was reaped elsewhere."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return status if done else None


def kill_tree(pid: int) -> None:
    """Kill `pid` and all below it. Orphans made by this go to the nearest subreaper above."""
    for below in descendants(pid):
        kill(below)
    kill(pid)


def kill_below(pid: int, *, spare: Collection[int] = (), rounds: int = ROUNDS) -> list[int]:
    """Kill and reap all below this process but `spare`; returns those that would not die.

    `pid` is the calling process, which must be a subreaper. Bounded by `rounds` looks, about a
    second with the default.
    """
    for _ in range(rounds):
        left = descendants(pid, spare=spare)
        if not left:
            return []
        for other in left:
            kill(other)
        for other in left:
            reap(other)
        if descendants(pid, spare=spare):
            time.sleep(ROUND_SECONDS)
    return descendants(pid, spare=spare)


def status_fields(pid: int) -> tuple[int, int, int] | None:
    """(parent, session, start in clock ticks) of a process, or None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return int(fields[1]), int(fields[3]), int(fields[19])


def _children_by_scan(pid: int) -> list[int]:
    """For kernels without the `children` files: look at every process once."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - names only, and this runs in tight loops
        if name.isdigit():
            fields = status_fields(int(name))
            if fields is not None and fields[0] == pid:
                found.append(int(name))
    return found


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


# A kernel without these files (CONFIG_PROC_CHILDREN) makes each look a walk over all processes.
_HAS_CHILDREN_FILES = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists()
#: Between two counts of what runs below a slot; rarer where a count costs more.
COUNT_SECONDS = 0.1 if _HAS_CHILDREN_FILES else 1.0
