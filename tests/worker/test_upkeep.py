"""The thread that keeps time for everybody outlives whatever one of its acts meets."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import pytest

from suimon.db.connect import Connection
from suimon.worker.upkeep import Upkeep


def _unforeseen(_: Connection) -> None:
    msg = "nobody thought of it"
    raise ValueError(msg)


def _refused(conn: Connection) -> None:
    conn.execute("select nobody_thought_of_it")


@pytest.mark.parametrize("fail", [_unforeseen, _refused])
def test_an_act_that_fails_unforeseen_ends_neither_the_thread_nor_the_others(
    db_url: str, caplog: pytest.LogCaptureFixture, fail: Callable[[Connection], None]
) -> None:
    done = threading.Event()
    upkeep = Upkeep(db_url, None, 3600.0, duties=False)
    upkeep._ask("bad", fail)
    upkeep._ask("good", lambda _: done.set())
    upkeep.start()
    try:
        assert done.wait(60)
        assert re.search("nobody.thought.of.it", caplog.text)
        assert upkeep.is_alive()
    finally:
        upkeep.close()
        upkeep.join(60)
