"""A store that fills and empties, and fan-outs with large items, for tests of storage pressure."""

from __future__ import annotations

import hashlib
from typing import Any
from unittest import mock

import pytest

from suimon.run import pressure, spawn, wait
from suimon.run.spawn import DeferredError
from suimon.store import payload
from suimon.store.payload import Content
from support.lab import Lab, Parent

MB = 1_000_000
ITEM = 100_000


def marks(lab: Lab, **wanted: Any) -> dict[str, Any]:
    return pressure.change(lab.conn, wanted, actor="test")


def fill(lab: Lab, size: int, run: str | None = None) -> str:
    """Something of so many bytes lies in the store; returns the run it belongs to."""
    run = run or lab.one("select suimon.uuid7()::text")
    lab.sql("insert into suimon.payloads (run_id, name, sha256)"
            " select %s::uuid, 'fill:' || n, suimon.keep_text(rpad(n || %s, %s, 'x'))"
            " from generate_series(1, 10) n", run, run, size // 10)  # fmt: skip
    return run


def empty(lab: Lab) -> None:
    lab.sql("delete from suimon.payloads where name like 'fill:%%'")


def store(lab: Lab) -> int:
    return int(lab.one("select suimon.store_bytes()"))


def send(
    lab: Lab, parent: Parent, first: int, n: int, *, ahead: int | None = None, size: int = ITEM
) -> tuple[int, bool]:
    """A chunk of n items of so many bytes, as a worker stores it, but for the compression."""
    places = range(first, first + n)
    texts = (f"{parent.fanout.id} {place} ".ljust(size - 2, "x") for place in places)
    with mock.patch.object(payload, "pack", _as_it_is):
        return spawn.chunk(
            lab.conn, parent.holder, parent.fanout, parent.child, root_id=parent.row.root_id,
            first=first, n=n, hashes="{" + ",".join(str(i + 1) for i in places) + "}", keys=None,
            items="\x1e".join(f'"{text}"' for text in texts), list_=spawn.List("kids", ahead),
        )  # fmt: skip


def _as_it_is(raw: bytes) -> Content:
    return Content(hashlib.sha256(raw).digest(), len(raw), "none", raw)


def refused(lab: Lab, parent: Parent, first: int, n: int, **more: Any) -> float:
    """The same, which finds no room; seconds to the next try."""
    with pytest.raises(DeferredError) as told:
        send(lab, parent, first, n, **more)
    return told.value.later_s


def park(lab: Lab, parent: Parent, in_s: float = 60.0) -> None:
    on = wait.On(storage=True, in_s=in_s)
    assert wait.park(lab.conn, parent.holder, [on], grace_s=10.0)[0]


def deferred(lab: Lab) -> list[tuple[Any, ...]]:
    return lab.sql("select run_id::text, attempt from suimon.steps where status = 'deferred'"
                   " order by ended_at")  # fmt: skip


def half_stored(lab: Lab, worker: int, pipeline: str = "kept") -> Parent:
    """A fan-out whose estimate was too low: pressure has met it in the middle of its list."""
    parent = lab.parent(worker, pipeline)
    send(lab, parent, 0, 40, ahead=4 * MB)
    return parent
